"""The charts of an evaluation: means and tasks as dots, differences as dots with intervals around zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan

from afterword.evaluation.compare import Difference
from afterword.evaluation.results import SAFETY, Evaluation
from afterword.evaluation.summary import AVERAGE, Row, Summary
from afterword.evaluation.wording import difference_shown, shown
from afterword.pages.html import escaped
from afterword.pages.strips import Mark, Strip, legend, strip_chart


def means_chart(summary: Summary) -> str:
    """Return a figure with a row for each mean and a dot for each encoder."""
    strips = [Strip(escaped(row.label), _scores(row), row.name == AVERAGE) for row in summary.means]
    row = summary.headline
    said = _said([shown(score) for score in row.scores], summary.evaluation) if row else ""
    label = f"Mean scores by category. {escaped(row.label) if row else ''}: {said}. All numbers are in the table below."
    return _figure("Mean scores", "× 100", _names(summary.evaluation), label, strips)


def tasks_chart(summary: Summary) -> str:
    """Return a figure with a row for each task, below the mean of its category."""
    label = "Scores by task. All numbers are in the table below."
    return _figure("Scores", "× 100", _names(summary.evaluation), label, _grouped(summary, _scores))


def differences_chart(summary: Summary) -> str:
    """Return a figure with a row for each task: how far the other encoders are from the first, with intervals."""
    first, *others = _names(summary.evaluation)
    row = summary.headline
    said = _said([difference_shown(known) for known in row.differences], summary.evaluation, 1) if row else ""
    label = f"Differences by task. {escaped(row.label) if row else ''}: {said}. All numbers are in the table below."
    lower = ", for Safety worse" if any(row.category == SAFETY for row in summary.tasks) else ""
    what = f"to {first}, in points, with 95 % intervals; right of zero is better{lower}; hollow: the interval holds 0"
    return _figure("Differences", what, others, label, _grouped(summary, _differences), 1)


def _grouped(summary: Summary, marks: Callable[[Row], list[Mark]]) -> list[Strip]:
    """Return the average, then each category's mean with its tasks below it; a task alone stands for its category."""
    strips = []
    for mean in sorted(summary.means, key=lambda row: row.name != AVERAGE):
        below = [row for row in summary.tasks if row.category == mean.category]
        alone = f" <small>{escaped(mean.label)}</small>" if len(below) == 1 else ""
        if not alone:
            strips.append(Strip(escaped(mean.label), marks(mean), strong=True))
        strips += [Strip(f"<bdi>{escaped(row.name)}</bdi>{alone}", marks(row)) for row in below]
    return strips


def _scores(row: Row) -> list[Mark]:
    return [Mark(nan if score is None else 100 * score, i) for i, score in enumerate(row.scores)]


def _differences(row: Row) -> list[Mark]:
    return [_difference(difference, i) for i, difference in enumerate(row.differences, start=1)]


def _difference(difference: Difference | None, series: int) -> Mark:
    if difference is None:
        return Mark(nan, series)
    value, low, high = 100 * difference.value, difference.low, difference.high
    if low is None or high is None:
        return Mark(value, series)
    return Mark(value, series, 100 * low, 100 * high, hollow=low <= 0 <= high)


def _names(evaluation: Evaluation) -> list[str]:
    return [f"<bdi>{escaped(encoder.name)}</bdi>" for encoder in evaluation.encoders]


def _said(numbers: Sequence[str], evaluation: Evaluation, first: int = 0) -> str:
    names = [escaped(encoder.name) for encoder in evaluation.encoders[first:]]
    return ", ".join(f"{name} {number}" for name, number in zip(names, numbers, strict=True))


def _figure(name: str, what: str, names: Sequence[str], label: str, strips: Sequence[Strip], first: int = 0) -> str:
    signs = legend(names, first)
    chart = strip_chart(label, strips)
    return f"<figure><figcaption><b>{name}</b><span>{what}</span></figcaption>\n{signs}\n{chart}</figure>"
