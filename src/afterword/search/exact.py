"""The documents with the largest products, found exactly and block by block.

Products are taken in float32, which is quick and wrong in the last digits, differently for each block. So whatever
might be among the best by the error that these products can have is computed again in float64, and rounded to float32
then. What is found, and in what order, does not depend on blocks or on which queries come together; of equal scores the
earlier document comes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 8192
"""Pairs of a query and a document that are computed again at once."""

Block = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Numbers of the documents, *shape* `(B,)`, and their vectors, `(B, d)`."""


@dataclass(frozen=True)
class _Best:
    """The best found so far: query, document and score of each, by query, best first. *Shapes:* `(n,)`."""

    queries: NDArray[np.int64]
    rows: NDArray[np.int64]
    scores: NDArray[np.float32]

    def with_more(self, other: _Best, k: int) -> _Best:
        """Return the best `k` of each query of both."""
        queries, rows = np.concatenate([self.queries, other.queries]), np.concatenate([self.rows, other.rows])
        scores = np.concatenate([self.scores, other.scores])
        order = np.lexsort((rows, -scores, queries))
        queries = queries[order]
        place = np.arange(len(queries)) - np.searchsorted(queries, queries)
        kept = order[place < k]
        return _Best(queries[place < k], rows[kept], scores[kept])

    def worst(self, count: int, k: int) -> NDArray[np.float64]:
        """Return the `k`-th score of each query, minus infinity where there are fewer. *Shape:* `(Q,)`."""
        found = np.bincount(self.queries, minlength=count)
        worst = np.full(count, -np.inf)
        full = np.flatnonzero(found >= k)
        worst[full] = self.scores[np.searchsorted(self.queries, full) + k - 1]
        return worst


def exact_top(
    blocks: Iterable[Block], queries: NDArray[np.float32], k: int, longest: float | None = None
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Find the `k` largest products of each query.

    Args:
        blocks: The vectors to compare with; each is looked at once.
        queries: *Shape:* `(Q, d)`.
        k: How many to find.
        longest: Length that no vector exceeds, where it is known; else each block is measured.

    Returns:
        For each query the numbers of the documents and their scores, best first; fewer than `k` where there are fewer.
    """
    best = _Best(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    lengths = np.linalg.norm(queries.astype(np.float64), axis=1)
    for rows, vectors in blocks:
        if len(rows):
            reach = lengths * (length_of(vectors) if longest is None else longest)
            found = _candidates(vectors, queries, reach, best.worst(len(queries), k), k)
            for start in range(0, len(found[0]), _AT_ONCE):
                asked, places = (part[start : start + _AT_ONCE] for part in found)
                again = _Best(asked, rows[places], products(queries[asked], vectors[places]))
                best = best.with_more(again, k)
    edges = np.searchsorted(best.queries, np.arange(len(queries) + 1)).tolist()
    return [(best.rows[a:b], best.scores[a:b]) for a, b in pairwise(edges)]


def products(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the product of each pair of rows, right to the last digit of float32. *Shapes:* `(n, d)`² → `(n,)`."""
    with np.errstate(over="ignore", invalid="ignore"):
        exact: NDArray[np.float64] = np.sum(first.astype(np.float64) * second.astype(np.float64), axis=1)
        return exact.astype(np.float32)


def length_of(vectors: NDArray[np.float32]) -> float:
    """Return the length of the longest vector. *Shape:* `(B, d)`, B at least 1."""
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.max(np.einsum("bd,bd->b", vectors, vectors), initial=0.0)))


def _candidates(
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    reach: NDArray[np.float64],
    least: NDArray[np.float64],
    k: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return every query and place in a block that may be among the best.

    A float32 product of `d` terms is off by at most about `d · 2⁻²⁴ · ‖q‖ · ‖v‖`, in whatever order it was summed;
    `reach` is the product of the lengths.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scores = queries @ vectors.T
        slack = 4.0 * (vectors.shape[1] + 8) * 2.0**-24 * reach
        if np.isneginf(least).any() and len(vectors) > k:
            place = len(vectors) - k
            least = np.maximum(least, np.partition(scores, place, axis=1)[:, place].astype(np.float64) - slack)
        # What is not smaller, rather than what is larger: NaN, from products beyond float32, is computed again too.
        asked, places = np.nonzero(~(scores < (least - slack)[:, None]))
    return asked.astype(np.int64), places.astype(np.int64)
