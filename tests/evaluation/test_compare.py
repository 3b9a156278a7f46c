"""The paired bootstrap: against scipy and scikit-learn on the drawn items written out, and numbers worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

from afterword.evaluation import compare
from afterword.evaluation.compare import Comparison, Difference, counts_of
from afterword.evaluation.results import EncoderScores, Evaluation, Items, TaskScore
from afterword.evaluation.statistics import statistic


def score(task: str, value: float, items: Items | None) -> TaskScore:
    return TaskScore(task, "STS", "main", value, {}, {}, texts=1, tokens=None, seconds=1.0, items=items)


def evaluation(*encoders: dict[str, tuple[float, Items | None]]) -> Evaluation:
    made = [
        EncoderScores(f"encoder {i}", "", {}, {task: score(task, *values) for task, values in tasks.items()})
        for i, tasks in enumerate(encoders)
    ]
    return Evaluation(("suite",), tuple(made), {}, {})


def reference(items: Items, counts: np.ndarray) -> float:
    """The score of the items, each written out as often as it was drawn."""
    values = np.repeat(items.values, counts)
    if items.kind == "mean":
        return float(np.mean(values))
    gold = np.repeat(items.gold, counts)
    return float(spearmanr(values, gold)[0] if items.kind == "spearman" else average_precision_score(gold, values))


def random_items(kind: Any, seed: int, count: int = 40, digits: int = 1) -> Items:
    """Items of few different values, so that there are many ties; all seeds share their gold labels."""
    gold = np.random.default_rng(0).normal(size=count).round(1)
    values = (gold + np.random.default_rng(seed).normal(size=count)).round(digits)
    labels = {"mean": [], "spearman": gold.tolist(), "average_precision": (gold > 0.5).astype(float).tolist()}
    return Items(kind, values.tolist(), labels[kind])


KINDS = ["mean", "spearman", "average_precision"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("digits", [0, 1, 8])
def test_statistics_of_draws_are_those_of_the_items_written_out(kind: str, digits: int) -> None:
    items = random_items(kind, 3, digits=digits)
    counts = np.concatenate([np.ones((1, 40), np.int64), *counts_of("task", 40, 50)])
    expected = [reference(items, row) for row in counts]
    assert statistic(items)(counts) == pytest.approx(expected, abs=1e-12)
    assert len(set(expected)) > 20


def test_statistics_worked_by_hand() -> None:
    every = np.ones((1, 4), np.int64)
    assert statistic(Items("mean", [0.0, 1.0, 1.0, 0.0]))(every)[0] == 0.5
    # ranks 1 2.5 2.5 4 and 1 2 3 4: covariance 1.125, variances 1.125 and 1.25
    tied = statistic(Items("spearman", [0.1, 0.2, 0.2, 0.9], [1.0, 2.0, 3.0, 4.0]))(every)[0]
    assert tied == pytest.approx(1.125 / (1.125 * 1.25) ** 0.5)
    # right, wrong, right, wrong from the top: (1/1 + 2/3) / 2
    ranked = Items("average_precision", [0.9, 0.8, 0.7, 0.6], [1.0, 0.0, 1.0, 0.0])
    assert statistic(ranked)(every)[0] == pytest.approx(5 / 6)
    # the wrong one twice: right, wrong, wrong, right: (1/1 + 2/4) / 2
    assert statistic(ranked)(np.array([[1, 2, 1, 0]]))[0] == pytest.approx(0.75)


def test_what_is_not_defined_is_nan() -> None:
    only = np.array([[3, 0, 0]])
    assert np.isnan(statistic(Items("spearman", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]))(only)).all()
    assert np.isnan(statistic(Items("average_precision", [1.0, 2.0, 3.0], [0.0, 1.0, 1.0]))(only)).all()


def test_draws_are_of_the_whole_and_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.concatenate(list(counts_of("task", 50, 2000)))
    assert counts.shape == (2000, 50)
    assert (counts.sum(axis=1) == 50).all()
    assert counts.mean(axis=0) == pytest.approx(np.ones(50), abs=0.15)  # of a binomial: 1, and variance 1 − 1/50
    assert counts.var() == pytest.approx(1 - 1 / 50, rel=0.03)
    assert (counts == np.concatenate(list(counts_of("task", 50, 2000)))).all()
    assert (counts != np.concatenate(list(counts_of("other", 50, 2000)))).any()
    assert (counts != np.concatenate(list(counts_of("task", 50, 2000, seed=1)))).any()
    monkeypatch.setattr(compare, "BLOCK", 120)
    blocks = list(counts_of("task", 50, 7))
    assert [len(block) for block in blocks] == [2, 2, 2, 1]
    assert all((block.sum(axis=1) == 50).all() for block in blocks)


def test_two_items_worked_by_hand() -> None:
    first, other = Items("mean", [0.0, 1.0]), Items("mean", [1.0, 1.0])
    found = Comparison(evaluation({"t": (0.5, first)}, {"t": (1.0, other)})).difference(["t"], 1)
    # The first item drawn twice, once, never: the difference is 1, 0.5 or 0, each more often than in 2.5 % of draws.
    assert found == Difference(0.5, 0.0, 1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_are_percentiles_of_the_paired_differences(kind: str) -> None:
    first, other = random_items(kind, 1), random_items(kind, 2)
    found = Comparison(evaluation({"t": (0.50, first)}, {"t": (0.53, other)}), 300, 5).difference(["t"], 1)
    counts = np.concatenate(list(counts_of("t", 40, 300, 5)))
    drawn = [reference(other, row) - reference(first, row) for row in counts]
    whole = np.ones(40, np.int64)
    move = 0.03 - (reference(other, whole) - reference(first, whole))  # main scores are not those of the items
    low, high = np.percentile(drawn, [2.5, 97.5])
    assert found is not None and (found.low, found.high) == pytest.approx((low + move, high + move))
    assert found.value == pytest.approx(0.03)


def test_the_width_is_that_of_theory() -> None:
    noise = np.random.default_rng(0).normal(size=(2, 900))
    first, other = (Items("mean", row.tolist()) for row in (noise[0], 0.9 * noise[0] + 0.2 * noise[1]))
    found = Comparison(evaluation({"t": (0.0, first)}, {"t": (0.1, other)}), 4000).difference(["t"], 1)
    assert found is not None and found.low is not None and found.high is not None
    standard_error = np.std(np.subtract(other.values, first.values)) / 30
    assert found.high - found.low == pytest.approx(2 * 1.96 * standard_error, rel=0.06)
    assert found.high - found.low < 0.5 * 2 * 1.96 / 30  # unpaired it would be wider by far


def test_means_combine_the_draws_of_their_tasks() -> None:
    names = [f"task {i}" for i in range(4)]
    items = [(random_items("spearman", 10 + i), random_items("spearman", 20 + i)) for i in range(4)]
    scores = [
        {name: (reference(both[e], np.ones(40, np.int64)), both[e]) for name, both in zip(names, items, strict=True)}
        for e in range(2)
    ]
    found = Comparison(evaluation(*scores), 200).difference(names, 1)
    drawn = np.zeros(200)
    for name, (first, other) in zip(names, items, strict=True):
        counts = np.concatenate(list(counts_of(name, 40, 200)))
        drawn += [(reference(other, row) - reference(first, row)) / 4 for row in counts]
    assert found is not None
    assert found.value == pytest.approx(np.mean([scores[1][n][0] - scores[0][n][0] for n in names]))
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(drawn, [2.5, 97.5])))


def test_a_pair_does_not_depend_on_who_else_is_there() -> None:
    a, b, c = ({"t": (0.5 + i / 10, random_items("average_precision", i))} for i in range(3))
    three = Comparison(evaluation(a, b, c))
    assert three.difference(["t"], 2) == Comparison(evaluation(a, c)).difference(["t"], 1)


def test_the_same_encoder_twice_has_no_difference() -> None:
    one = {"t": (0.5, random_items("spearman", 1))}
    assert Comparison(evaluation(one, one)).difference(["t"], 1) == Difference(0.0, 0.0, 0.0)


ITEMS = Items("spearman", [1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0])
UNLIKE = {
    "no items": None,
    "other length": Items("spearman", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
    "other labels": Items("spearman", [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]),
    "other kind": Items("mean", [1.0, 2.0, 3.0, 4.0]),
    "not a number": Items("spearman", [1.0, float("nan"), 3.0, 4.0], [1.0, 3.0, 2.0, 4.0]),
}


@pytest.mark.parametrize("other", UNLIKE.values(), ids=UNLIKE)
def test_items_that_do_not_belong_together_give_no_interval(other: Items | None) -> None:
    for pair in ((ITEMS, other), (other, ITEMS)):
        first, second = {"t": (0.5, pair[0]), "u": (0.5, ITEMS)}, {"t": (0.75, pair[1]), "u": (0.625, ITEMS)}
        comparison = Comparison(evaluation(first, second), 50)
        assert comparison.difference(["t"], 1) == Difference(0.25)
        assert comparison.difference(["t", "u"], 1) == Difference(0.1875)
        alone = comparison.difference(["u"], 1)
        assert alone is not None and alone.low is not None


@pytest.mark.parametrize("items", [Items("mean", []), Items("mean", [0.5]), Items("spearman", [1.0, 2.0], [])])
def test_items_that_cannot_be_drawn_give_no_interval(items: Items) -> None:
    both = [{"t": (value, items)} for value in (0.25, 0.5)]
    assert Comparison(evaluation(*both), 50).difference(["t"], 1) == Difference(0.25)


def test_mostly_undefined_draws_give_no_interval() -> None:
    constant = Items("spearman", [1.0, 1.0, 1.0], [1.0, 2.0, 3.0])
    both = [{"t": (0.25, constant)}, {"t": (0.5, Items("spearman", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]))}]
    assert Comparison(evaluation(*both), 50).difference(["t"], 1) == Difference(0.25)
    rare = Items("average_precision", [4.0, 3.0, 2.0, 1.0], [0.0, 1.0, 0.0, 0.0])  # 0.75⁴ = 32 % without a right one
    other = Items("average_precision", [1.0, 3.0, 2.0, 4.0], [0.0, 1.0, 0.0, 0.0])
    found = Comparison(evaluation({"t": (0.5, rare)}, {"t": (0.5, other)})).difference(["t"], 1)
    assert found is not None and found.low is not None and found.high is not None and found.low < 0 < found.high


def test_a_missing_score_gives_no_difference() -> None:
    comparison = Comparison(evaluation({"t": (0.5, None), "u": (float("nan"), None)}, {"u": (0.5, None)}))
    assert comparison.difference(["t"], 1) is None
    assert comparison.difference(["u"], 1) is None
    assert comparison.difference([], 1) is None
