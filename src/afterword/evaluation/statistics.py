"""Scores from items that were drawn several times or not at all: mean, Spearman correlation, average precision.

A draw is a row of counts, how often each item is in it. So the items are sorted once for all draws, and a draw costs
sums along them; ties count as if the drawn items had been written out and handed to the usual functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int

from afterword.evaluation.results import Items

Counts: TypeAlias = Int[np.ndarray, "draws items"]
Scores: TypeAlias = Float[np.ndarray, " draws"]


def statistic(items: Items) -> Callable[[Counts], Scores]:
    """Return the function that gives the score of each draw of the items.

    It takes how often each item was drawn, at least one in every row. It returns NaN where the score is not defined: a
    correlation where all values or all labels are equal, an average precision where no drawn label is 1.

    Args:
        items: At least one item, with as many gold labels as values unless `kind` is `mean`.
    """
    values, gold = np.asarray(items.values, np.float64), np.asarray(items.gold, np.float64)
    if items.kind == "mean":
        return lambda counts: np.asarray(counts @ values / counts.sum(axis=1))
    if items.kind == "spearman":
        one, other = _Sorted(values), _Sorted(gold)
        return lambda counts: _correlation(one.ranks(counts), other.ranks(counts), counts)
    falling, right = _Sorted(-values), gold[np.argsort(-values, kind="stable")]
    return lambda counts: _average_precision(falling, right, counts)


class _Sorted:
    """The order of rising values, and where in it each group of equal values starts."""

    def __init__(self, values: Float[np.ndarray, " items"]) -> None:
        self.order = np.argsort(values, kind="stable")
        self._back = np.argsort(self.order)
        self._starts = np.flatnonzero(np.diff(values[self.order], prepend=-np.inf))
        self._sizes = np.diff(self._starts, append=len(values))

    def grouped(self, ordered: Float[np.ndarray, "draws items"] | Counts) -> np.ndarray:
        """Return sums over equal values of what stands in their order, of shape `(draws, groups)`."""
        return ordered if len(self._starts) == len(self.order) else np.add.reduceat(ordered, self._starts, axis=1)

    def ranks(self, counts: Counts) -> Float[np.ndarray, "draws items"]:
        """Return the rank of each item among the drawn ones, from 1; equal values share the mean of their ranks."""
        equal = self.grouped(np.take(counts, self.order, axis=1))
        shared = np.cumsum(equal, axis=1) - (equal - 1) / 2
        return np.take(np.repeat(shared, self._sizes, axis=1), self._back, axis=1)


def _correlation(
    one: Float[np.ndarray, "draws items"], other: Float[np.ndarray, "draws items"], counts: Counts
) -> Scores:
    """Return Pearson's correlation of ranks, whose mean is known: half of one more than there are items."""
    middle = (counts.sum(axis=1, keepdims=True) + 1) / 2
    one, other = one - middle, other - middle
    spread = (counts * one * one).sum(axis=1) * (counts * other * other).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray((counts * one * other).sum(axis=1) / np.sqrt(spread))


def _average_precision(falling: _Sorted, right: Float[np.ndarray, " items"], counts: Counts) -> Scores:
    """Sum the precision at every distinct value, weighted by the share of right items that it adds."""
    ordered = np.take(counts, falling.order, axis=1)
    drawn, found = falling.grouped(ordered), falling.grouped(ordered * right)
    precision = np.cumsum(found, axis=1) / np.maximum(np.cumsum(drawn, axis=1), 1)
    with np.errstate(invalid="ignore"):
        return np.asarray((found * precision).sum(axis=1) / found.sum(axis=1))
