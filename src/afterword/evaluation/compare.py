"""Is a difference of two encoders more than the luck of which items were measured? The paired bootstrap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from zlib import crc32

import numpy as np
from jaxtyping import Float, Int

from afterword.evaluation.results import EncoderScores, Evaluation, Items
from afterword.evaluation.statistics import statistic

DRAWS = 1000
BLOCK = 1_000_000
"""Counts that are in memory at a time: a task has up to 100,000 items."""

INSIDE = (2.5, 97.5)


@dataclass(frozen=True)
class Difference:
    """How much higher an encoder scores than the first one.

    Attributes:
        value: Difference of the main scores, or of their means.
        low: Lower end of its 95 % interval; None where there is none.
        high: Upper end.
    """

    value: float
    low: float | None = None
    high: float | None = None


class Comparison:
    """Differences of encoders to the first one, with 95 % percentile intervals of a paired bootstrap over items.

    The items of a task are drawn with replacement, the same ones for every encoder (hence paired), and the score is
    computed anew for each draw. The score of the items can differ a little from mteb's main score, which may go by
    another similarity; so only the scatter of the resampled differences around the difference of all items is used, and
    laid around the difference of the main scores. For means over tasks the scatter of the tasks is averaged draw by
    draw: items are random, tasks are fixed. It says nothing about other tasks, nor about another training.

    Args:
        evaluation: Encoders to compare.
        draws: How many times to draw.
        seed: Of the draws; not negative. A task's draws depend on it, the task's name and its number of items alone.
    """

    def __init__(self, evaluation: Evaluation, draws: int = DRAWS, seed: int = 0) -> None:
        self._encoders = evaluation.encoders
        self._scatter = {task: _scatter(task, self._encoders, draws, seed) for _, task in evaluation.tasks()}

    def difference(self, tasks: Sequence[str], other: int) -> Difference | None:
        """Return the difference of the unweighted means over tasks.

        Args:
            tasks: Names of one or more tasks.
            other: Index of the encoder that is compared with the first one.

        Returns:
            None where one of the two has no finite score on one of the tasks. Without an interval where one of the
            tasks has no items that belong together, or too few draws with a defined score.
        """
        pairs = [(score_of(self._encoders[0], task), score_of(self._encoders[other], task)) for task in tasks]
        known = [then - first for first, then in pairs if first is not None and then is not None]
        if not tasks or len(known) < len(tasks):
            return None
        value = sum(known) / len(known)
        scatter = [self._scatter[task][other] for task in tasks if other in self._scatter[task]]
        if len(scatter) < len(tasks):
            return Difference(value)
        return _around(value, np.mean(scatter, axis=0))


def score_of(encoder: EncoderScores, task: str) -> float | None:
    """Return the main score of an encoder on a task, None where it has none or one that is not finite."""
    found = encoder.tasks.get(task)
    return found.score if found is not None and isfinite(found.score) else None


def counts_of(task: str, items: int, draws: int = DRAWS, seed: int = 0) -> Iterator[Int[np.ndarray, "block items"]]:
    """Yield how often each item is in each draw, in blocks of draws that fit into memory.

    Args:
        task: Its name; other tasks have other draws.
        items: How many items it has.
        draws: How many draws in all.
        seed: Not negative.
    """
    generator = np.random.default_rng([seed, crc32(task.encode("utf-8", "surrogatepass"))])
    rows = max(1, BLOCK // items)
    for start in range(0, draws, rows):
        block = min(rows, draws - start)
        drawn = generator.integers(items, size=(block, items)) + items * np.arange(block)[:, None]
        yield np.bincount(drawn.ravel(), minlength=block * items).reshape(block, items)


def _scatter(
    task: str, encoders: Sequence[EncoderScores], draws: int, seed: int
) -> Mapping[int, Float[np.ndarray, " draws"]]:
    """Return by index of encoder how far each resampled difference lies from that of all items."""
    items = [found.items if (found := encoder.tasks.get(task)) else None for encoder in encoders]
    first, *rest = items
    others = [i for i, other in enumerate(rest, start=1) if first and other and _belong(first, other)]
    if first is None or not others:
        return {}
    kept = [first, *(other for i in others if (other := items[i]))]
    scores = [statistic(one) for one in kept]
    whole = np.ones((1, len(first.values)), np.int64)
    blocks = [[score(counts) for score in scores] for counts in counts_of(task, whole.size, draws, seed)]
    moved = np.concatenate(blocks, axis=1) - np.stack([score(whole) for score in scores])
    return {i: row - moved[0] for i, row in zip(others, moved[1:], strict=True)}


def _belong(one: Items, other: Items) -> bool:
    """Tell whether two encoders were measured on the same items, in a form that can be drawn from."""
    alike = one.kind == other.kind and len(one.values) == len(other.values) and one.gold == other.gold
    labelled = one.kind == "mean" or len(one.gold) == len(one.values)
    return alike and labelled and len(one.values) > 1 and bool(np.isfinite([one.values, other.values]).all())


def _around(value: float, scatter: Float[np.ndarray, " draws"]) -> Difference:
    known = scatter[np.isfinite(scatter)]
    if 2 * len(known) < len(scatter):
        return Difference(value)
    low, high = np.percentile(known, INSIDE)
    return Difference(value, value + float(low), value + float(high))
