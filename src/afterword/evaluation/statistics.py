"""Scores from items that were drawn several times or not at all: mean, Spearman correlation, average precision.

A draw is a row of counts, how often each item is in it. Then the items are sorted once for all draws, and a draw costs
sums along them; ties count as if the drawn items had been written out and handed to the usual functions.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from afterword.evaluation.results import Items


def statistic(items: Items, counts: Int[np.ndarray, "draws items"]) -> Float[np.ndarray, " draws"]:
    """Return the score that each draw of the items has.

    Args:
        items: At least one item, with as many gold labels as values unless `kind` is `mean`.
        counts: How often each item was drawn; every row has at least one item.

    Returns:
        A score for each draw. NaN where it is not defined: a correlation where all values or all labels are equal, an
        average precision where no drawn label is 1.
    """
    values, gold = np.asarray(items.values, np.float64), np.asarray(items.gold, np.float64)
    if items.kind == "mean":
        return _mean(values, counts)
    if items.kind == "spearman":
        return _correlation(_ranks(values, counts), _ranks(gold, counts), counts)
    return _average_precision(values, gold, counts)


def _mean(values: Float[np.ndarray, " items"], counts: Int[np.ndarray, "draws items"]) -> Float[np.ndarray, " draws"]:
    return np.asarray(counts @ values / counts.sum(axis=1))


def _correlation(
    one: Float[np.ndarray, "draws items"],
    other: Float[np.ndarray, "draws items"],
    counts: Int[np.ndarray, "draws items"],
) -> Float[np.ndarray, " draws"]:
    """Return Pearson's correlation of ranks, whose mean is known: half of one more than there are items."""
    middle = (counts.sum(axis=1, keepdims=True) + 1) / 2
    one, other = one - middle, other - middle
    spread = (counts * one * one).sum(axis=1) * (counts * other * other).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray((counts * one * other).sum(axis=1) / np.sqrt(spread))


def _ranks(
    values: Float[np.ndarray, " items"], counts: Int[np.ndarray, "draws items"]
) -> Float[np.ndarray, "draws items"]:
    """Return the rank of each item among the drawn ones, from 1; equal values share the mean of their ranks."""
    order, starts = _groups(values)
    equal = np.add.reduceat(counts[:, order], starts, axis=1)
    shared = np.cumsum(equal, axis=1) - (equal - 1) / 2
    ranks = np.empty(counts.shape)
    ranks[:, order] = np.repeat(shared, np.diff(starts, append=len(values)), axis=1)
    return ranks


def _average_precision(
    values: Float[np.ndarray, " items"], gold: Float[np.ndarray, " items"], counts: Int[np.ndarray, "draws items"]
) -> Float[np.ndarray, " draws"]:
    """Sum the precision at every distinct value, weighted by the share of right items that it adds."""
    order, starts = _groups(-values)
    drawn = np.add.reduceat(counts[:, order], starts, axis=1)
    right = np.add.reduceat((counts * gold)[:, order], starts, axis=1)
    precision = np.cumsum(right, axis=1) / np.maximum(np.cumsum(drawn, axis=1), 1)
    with np.errstate(invalid="ignore"):
        return np.asarray((right * precision).sum(axis=1) / right.sum(axis=1))


def _groups(values: Float[np.ndarray, " items"]) -> tuple[Int[np.ndarray, " items"], Int[np.ndarray, " groups"]]:
    """Return the order of rising values, and where in it each group of equal values starts."""
    order = np.argsort(values, kind="stable")
    return order, np.flatnonzero(np.diff(values[order], prepend=-np.inf))
