"""Exact search: the same documents in the same order as a plain sort in float64, whatever the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from afterword.search.exact import Block, exact_top, products


def blocks(vectors: NDArray[np.float32], size: int) -> list[Block]:
    rows = np.arange(len(vectors))
    return [(rows[at : at + size], vectors[at : at + size]) for at in range(0, len(vectors), size)]


def reference(
    vectors: NDArray[np.float32], queries: NDArray[np.float32], k: int
) -> list[tuple[list[int], list[float]]]:
    """Each product by itself, summed in float64 and rounded once; of equal ones the earlier first."""
    found = []
    for query in queries.astype(np.float64):
        scores = [float(np.float32(np.sum(row * query))) for row in vectors.astype(np.float64)]
        order = sorted(range(len(scores)), key=lambda row: (-scores[row], row))[:k]
        found.append((order, [scores[row] for row in order]))
    return found


def plain(found: list[tuple[NDArray[np.int64], NDArray[np.float32]]]) -> list[tuple[list[int], list[float]]]:
    return [(rows.tolist(), scores.tolist()) for rows, scores in found]


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 60),
    dimension=st.integers(1, 40),
    asked=st.integers(1, 5),
    k=st.integers(1, 70),
    size=st.integers(1, 64),
    distinct=st.integers(1, 60),
)
def test_it_equals_a_plain_sort(
    seed: int, count: int, dimension: int, asked: int, k: int, size: int, distinct: int
) -> None:
    """Many vectors are equal, so that ties are everywhere: blocks, k and the company of other queries do not matter."""
    draw = np.random.default_rng(seed)
    pool = draw.standard_normal((distinct, dimension)).astype(np.float32)
    vectors = pool[draw.integers(0, distinct, count)]
    queries = draw.standard_normal((asked, dimension)).astype(np.float32)
    assert plain(exact_top(blocks(vectors, size), queries, k)) == reference(vectors, queries, k)


def test_a_thousand_equal_vectors_come_in_their_order() -> None:
    vectors = np.repeat(np.random.default_rng(1).standard_normal((1, 33)).astype(np.float32), 1000, axis=0)
    (found,) = exact_top(blocks(vectors, 77), vectors[:1], 500)
    assert found[0].tolist() == list(range(500))
    assert len(set(found[1].tolist())) == 1


def test_a_difference_in_the_last_digit_counts() -> None:
    """float32 products of these cannot tell them apart, whatever the order of summing; float64 can."""
    draw = np.random.default_rng(2)
    row = draw.standard_normal(256).astype(np.float32)
    rows = np.repeat(row[None], 9, axis=0)
    rows[6, 5] = np.nextafter(rows[6, 5], np.float32(np.inf) * np.sign(row[5]))
    query = row[None]
    assert plain(exact_top(blocks(rows, 4), query, 9)) == reference(rows, query, 9)


def test_huge_products_are_no_riddle() -> None:
    """1e30 · 1e30 is beyond float32: infinite scores come first, and nothing is lost to NaN."""
    vectors = np.array([[1, 0], [1e30, -1e30], [1e30, 1e30], [2, 0]], np.float32)
    (found,) = exact_top(blocks(vectors, 2), np.array([[1e30, 1e30]], np.float32), 4)
    assert found[0].tolist() == [2, 3, 0, 1]
    assert np.isposinf(found[1][0])


@pytest.mark.parametrize("skipped", [[], [0], [1, 2, 5]])
def test_rows_keep_the_numbers_that_blocks_give_them(skipped: list[int]) -> None:
    vectors = np.random.default_rng(3).standard_normal((6, 4)).astype(np.float32)
    kept = np.array([row for row in range(6) if row not in skipped])
    (found,) = exact_top([(kept[:2], vectors[kept[:2]]), (kept[2:], vectors[kept[2:]])], vectors[:1], 10)
    assert sorted(found[0].tolist()) == kept.tolist()


def test_no_blocks_find_nothing() -> None:
    (found,) = exact_top([], np.ones((1, 3), np.float32), 5)
    assert found[0].tolist() == []


def test_views_of_a_record_are_as_good_as_arrays() -> None:
    """As the shards give them: the vectors of a record lie apart from each other."""
    records = np.zeros(50, np.dtype([("key", "V16"), ("vector", "<f4", (7,)), ("crc", "<u4")]))
    records["vector"] = np.random.default_rng(4).standard_normal((50, 7))
    queries = np.random.default_rng(5).standard_normal((3, 7)).astype(np.float32)
    copied = np.ascontiguousarray(records["vector"])
    assert plain(exact_top(blocks(records["vector"], 9), queries, 8)) == reference(copied, queries, 8)


@given(st.integers(1, 300), st.integers(1, 50))
@settings(max_examples=20)
def test_a_product_does_not_depend_on_its_neighbours(dimension: int, count: int) -> None:
    draw = np.random.default_rng(dimension)
    first, second = draw.standard_normal((2, count, dimension)).astype(np.float32)
    alone = [products(a[None], b[None])[0] for a, b in zip(first, second, strict=True)]
    assert products(first, second).tolist() == alone
