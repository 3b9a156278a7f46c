"""Which rows attend side by side. That the states are right is tested in test_passes.py and test_both_ways.py."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from afterword.backbone.packed import Kept, Packing, similar

CPU = torch.device("cpu")
LENGTHS = st.lists(st.integers(0, 300), max_size=30)


def alone(*lengths: int) -> list[list[int]]:
    return similar(lengths, lengths)


def test_similar_by_hand() -> None:
    """Half the longest is alike; groups must save a third of all work."""
    assert alone(100, 3, 50, 4, 49) == [[0, 2], [4], [1, 3]]
    assert alone(20, 20, 20) == [[0, 1, 2]]
    assert alone(20, 9) == [[0], [1]]  # 400 + 81 against 800
    assert alone(20, 20, 20, 9) == [[0, 1, 2, 3]]  # 1200 + 81 against 1600
    assert alone(0, 7, 0) == [[1]]
    assert alone(0, 0) == [[]]
    assert alone() == [[]]


def test_what_stands_before_counts() -> None:
    assert similar([4, 4, 4, 4], [100, 8, 9, 7]) == [[0], [1, 2, 3]]
    assert similar([4, 4, 4, 4], [104, 100, 90, 101]) == [[0, 1, 2, 3]]


@given(LENGTHS)
def test_every_row_with_tokens_is_in_one_group_and_little_is_padding(lengths: list[int]) -> None:
    groups = similar(lengths, lengths)
    assert sorted(i for group in groups for i in group) == [i for i, n in enumerate(lengths) if n]
    looked_at = sum(len(group) * max((lengths[i] for i in group), default=0) ** 2 for group in groups)
    assert looked_at <= 1.5 * 4 * sum(n * n for n in lengths)


def test_a_pass_in_groups_gives_each_token_its_own_place() -> None:
    """With attention that returns what asks, every token must come back where it was."""
    packing = Packing([2, 40, 1, 6, 38, 12], CPU, both_ways=True)
    assert [group.chosen for group in packing.groups] == [[1, 4], [3, 5], [0, 2]]
    tokens = sum(packing.lengths)
    flat = torch.arange(tokens, dtype=torch.float32)[:, None, None].expand(-1, 2, 3)
    beside = [group.rows.beside(flat).transpose(1, 2).flatten(0, 1) for group in packing.groups]
    assert packing._back is not None
    assert torch.equal(torch.cat(beside)[packing._back], flat)


def test_even_rows_need_no_index() -> None:
    packing = Packing([5, 5, 5], CPU)
    assert packing._back is None
    assert packing.groups[0].rows.into is None


def test_rows_that_saw_nothing_before_need_no_room_for_it() -> None:
    packing = Packing([4] * 4, CPU, before=Kept((90, 0, 0, 0)))
    long, short = packing.groups
    assert (long.chosen, short.chosen) == ([0], [1, 2, 3])
    assert long.earlier is not None
    assert short.earlier is None
