"""Padding, order and size of token batches."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from afterword.backbone.batch import TokenBatch, by_length, token_batch

CPU = torch.device("cpu")
ROWS = st.lists(st.lists(st.integers(0, 299), max_size=9), max_size=6)
LENGTHS = st.lists(st.integers(0, 60), max_size=40)
BUDGETS = st.none() | st.integers(1, 200)


def rows_of(batch: TokenBatch) -> list[list[int]]:
    return [ids[mask.bool()].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)]


def test_padding_stands_on_the_left_and_is_masked() -> None:
    batch = token_batch([[5, 6, 7], [], [8]], CPU, shared=(1,))
    assert batch.ids.tolist() == [[5, 6, 7], [0, 0, 0], [0, 0, 8]]
    assert batch.mask.tolist() == [[1, 1, 1], [0, 0, 0], [0, 0, 1]]
    assert batch.shared == (1,)


@given(ROWS)
def test_padded_rows_can_be_read_back(rows: list[list[int]]) -> None:
    batch = token_batch(rows, CPU)
    assert rows_of(batch) == rows
    assert batch.ids.shape == batch.mask.shape == (len(rows), max(map(len, rows), default=0))
    assert (batch.ids[batch.mask == 0] == 0).all()
    assert (batch.mask.diff(dim=1) >= 0).all()


@given(ROWS, st.lists(st.integers(0, 299), max_size=4))
def test_unshared_writes_the_prefix_into_each_row(rows: list[list[int]], shared: list[int]) -> None:
    batch = token_batch(rows, CPU, tuple(shared)).unshared()
    assert rows_of(batch) == [[*shared, *row] for row in rows]
    assert batch.shared == ()


@given(LENGTHS, st.integers(1, 9), BUDGETS)
def test_every_index_comes_once(lengths: list[int], max_rows: int, max_tokens: int | None) -> None:
    groups = list(by_length(lengths, max_rows, max_tokens))
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))


@given(LENGTHS, st.integers(1, 9), BUDGETS)
def test_no_group_is_over_its_budget_unless_an_item_alone_is(
    lengths: list[int], max_rows: int, max_tokens: int | None
) -> None:
    for group in by_length(lengths, max_rows, max_tokens):
        assert 1 <= len(group) <= max_rows
        padded = len(group) * max(lengths[i] for i in group)
        assert max_tokens is None or padded <= max_tokens or len(group) == 1


@given(LENGTHS, st.integers(1, 9), BUDGETS)
def test_longest_come_first_and_equals_keep_their_order(
    lengths: list[int], max_rows: int, max_tokens: int | None
) -> None:
    order = [index for group in by_length(lengths, max_rows, max_tokens) for index in group]
    assert order == sorted(order, key=lambda i: (-lengths[i], i))


@given(LENGTHS, st.integers(1, 9), BUDGETS)
def test_a_group_ends_only_when_the_next_item_does_not_fit(
    lengths: list[int], max_rows: int, max_tokens: int | None
) -> None:
    groups = list(by_length(lengths, max_rows, max_tokens))
    for group in groups[:-1]:
        padded = (len(group) + 1) * lengths[group[0]]
        assert len(group) == max_rows or (max_tokens is not None and padded > max_tokens)


@given(LENGTHS, st.integers(1, 9), st.integers(1, 2000))
def test_packed_groups_count_tokens(lengths: list[int], max_rows: int, max_tokens: int) -> None:
    groups = list(by_length(lengths, max_rows, max_tokens, packed=True))
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group, after in zip(groups, [*groups[1:], []], strict=False):
        sizes = [lengths[i] for i in group]
        assert 1 <= len(group) <= max_rows
        assert len(group) == 1 or sum(sizes) <= max_tokens
        if after and len(group) < max_rows:
            assert sum(sizes) + lengths[after[0]] > max_tokens


def test_hand_worked_groups() -> None:
    lengths = [3, 10, 4, 25, 4, 1]
    assert list(by_length(lengths, max_rows=3, max_tokens=20)) == [[3], [1, 2], [4, 0, 5]]
    assert list(by_length(lengths, max_rows=4)) == [[3, 1, 2, 4], [0, 5]]
    assert list(by_length(lengths, max_rows=9, max_tokens=20, packed=True)) == [[3], [1, 2, 4], [0, 5]]
    assert list(by_length([9, 1, 1, 1, 1, 1, 1, 1, 1], 9, 17, packed=True)) == [list(range(9))]


class Counted(list[int]):
    """Lengths that know how often they were looked at."""

    looks = 0

    def __getitem__(self, place):  # type: ignore[no-untyped-def, override]
        self.looks += 1
        return super().__getitem__(place)


@pytest.mark.parametrize("packed", [True, False])
def test_work_grows_with_the_items_not_with_items_times_groups(packed: bool) -> None:
    lengths = Counted([7] * 3000)
    assert len(list(by_length(lengths, len(lengths), 70, packed=packed))) == 300
    assert lengths.looks <= 3 * 3000
