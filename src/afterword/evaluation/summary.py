"""What the reports show, row by row: means over tasks, tasks, differences, speed, prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from afterword.evaluation.compare import DRAWS, Comparison, Difference, score_of
from afterword.evaluation.results import CATEGORIES, SAFETY, EncoderScores, Evaluation

AVERAGE = "Average"
APART = (SAFETY, "Reasoning")
"""Categories of the paper's Table 2, which its average leaves out: lower is better in the first."""


@dataclass(frozen=True)
class Row:
    """A task, or the mean over several.

    Attributes:
        name: A category, `Average`, or a task.
        category: The category that it belongs to; empty for the average.
        tasks: The tasks that count: those that every encoder has a score on, of the encoders that have any here.
        known: How many tasks any encoder has here.
        scores: Unweighted mean over the tasks, by encoder; None for an encoder that has none of them.
        differences: To the first encoder, of the second and all later ones.
    """

    name: str
    category: str
    tasks: tuple[str, ...]
    known: int
    scores: tuple[float | None, ...]
    differences: tuple[Difference | None, ...]

    @property
    def lower_is_better(self) -> bool:
        """Whether a lower score is a better one."""
        return self.category == SAFETY

    @property
    def best(self) -> frozenset[int]:
        """Indices of the best encoders, equal as shown; empty where there is nothing to choose from."""
        shown = {i: round(100 * score, 1) for i, score in enumerate(self.scores) if score is not None}
        if len(shown) < 2:
            return frozenset()
        top = (min if self.lower_is_better else max)(shown.values())
        return frozenset(i for i, score in shown.items() if score == top)

    @property
    def label(self) -> str:
        """Name and number of tasks; how to read it where that differs."""
        few = str(self.known) if len(self.tasks) == self.known else f"{len(self.tasks)} of {self.known}"
        return f"{self.name} ({few}){', lower is safer' if self.lower_is_better else ''}"


@dataclass(frozen=True)
class Speed:
    """What an encoder took for all of its tasks; rates are None where nothing was timed."""

    texts: int
    tokens: int | None
    seconds: float
    texts_per_second: float | None
    tokens_per_second: float | None


@dataclass(frozen=True)
class Summary:
    """An evaluation and what follows from it.

    Attributes:
        evaluation: What was found.
        means: The categories of the paper's Table 1, the average over their tasks, then safety and reasoning.
        tasks: Every task, by category and then in the order in which they ran.
        notes: How to read the numbers, a sentence or two each.
    """

    evaluation: Evaluation
    means: tuple[Row, ...]
    tasks: tuple[Row, ...]
    notes: tuple[str, ...]

    @property
    def headline(self) -> Row | None:
        """The row that says most: the average, else the first mean there is."""
        return next((row for row in self.means if row.name == AVERAGE), next(iter(self.means), None))


def summarise(evaluation: Evaluation, draws: int = DRAWS, seed: int = 0) -> Summary:
    """Return means, tasks and differences to the first encoder.

    Args:
        evaluation: What was found.
        draws: How many times the items are drawn for the intervals.
        seed: Of the draws.
    """
    comparison = Comparison(evaluation, draws, seed)
    means = [_row(evaluation, comparison, *parts) for parts in _plan(evaluation)]
    tasks = [_row(evaluation, comparison, task, category, [task]) for category, task in evaluation.tasks()]
    return Summary(evaluation, tuple(means), tuple(tasks), tuple(_notes(evaluation, means, draws, seed)))


def _plan(evaluation: Evaluation) -> list[tuple[str, str, list[str]]]:
    """Return name, category and tasks of each mean."""
    by = {category: [task for of, task in evaluation.tasks() if of == category] for category in CATEGORIES}
    general = [category for category in CATEGORIES if category not in APART]
    plan = [(category, category, by[category]) for category in general]
    plan.append((AVERAGE, "", [task for category in general for task in by[category]]))
    plan += [(category, category, by[category]) for category in APART]
    return [parts for parts in plan if parts[2]]


def _row(evaluation: Evaluation, comparison: Comparison, name: str, category: str, tasks: Sequence[str]) -> Row:
    scores = [[score_of(encoder, task) for task in tasks] for encoder in evaluation.encoders]
    known = [any(score is not None for score in of) for of in scores]
    shared = [
        i
        for i in range(len(tasks))
        if any(known) and all(of[i] is not None for of, some in zip(scores, known, strict=True) if some)
    ]
    means = [_mean([of[i] for i in shared]) for of in scores]
    counted = tuple(tasks[i] for i in shared)
    differences = [comparison.difference(counted, other) for other in range(1, len(scores))]
    return Row(name, category, counted, len(tasks), tuple(means), tuple(differences))


def _mean(scores: Sequence[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return sum(known) / len(known) if scores and len(known) == len(scores) else None


def about(evaluation: Evaluation, task: str) -> tuple[str, str]:
    """Return the metric of a task and what it was measured on, as the first encoder that has it says."""
    found = next(encoder.tasks[task] for encoder in evaluation.encoders if task in encoder.tasks)
    return found.metric, ", ".join(f"{count:,} {name}" for name, count in found.size.items())


def speed(encoder: EncoderScores) -> Speed:
    """Return texts, tokens and time over all tasks; tokens a second over those whose tokens are known."""
    tasks = list(encoder.tasks.values())
    counted = [(task.tokens, task.seconds) for task in tasks if task.tokens is not None]
    texts, seconds = sum(task.texts for task in tasks), float(sum(task.seconds for task in tasks))
    tokens, timed = sum(count for count, _ in counted), float(sum(time for _, time in counted))
    return Speed(
        texts=texts,
        tokens=tokens if counted else None,
        seconds=seconds,
        texts_per_second=texts / seconds if seconds > 0 else None,
        tokens_per_second=tokens / timed if timed > 0 else None,
    )


def prompt_rows(evaluation: Evaluation) -> list[tuple[str, str, dict[str, str]]]:
    """Return task, names of the encoders that share them, and prompts by side; `all` where every encoder does.

    Encoders without a prompt on any task, which `unprompted` names, are left out.
    """
    silent, rows = unprompted(evaluation), []
    for _, task in evaluation.tasks():
        groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for encoder in evaluation.encoders:
            if task in encoder.tasks and encoder.name not in silent:
                groups.setdefault(tuple(encoder.tasks[task].prompts.items()), []).append(encoder.name)
        shared = len(groups) == 1 and not silent
        rows += [(task, "all" if shared else ", ".join(who), dict(sides)) for sides, who in groups.items()]
    return rows


def unprompted(evaluation: Evaluation) -> list[str]:
    """Return the names of encoders that were given nothing but the texts."""
    return [e.name for e in evaluation.encoders if not any(any(s.prompts.values()) for s in e.tasks.values())]


def _notes(evaluation: Evaluation, means: Sequence[Row], draws: int, seed: int) -> list[str]:
    notes = ["Scores are mteb's main scores × 100; means are unweighted over tasks."]
    if any(len(row.tasks) < row.known for row in means):
        notes.append("“n of m” means that only tasks on which all encoders have a score are in the mean.")
    apart = [row.name for row in means if row.name in APART]
    if apart and any(row.name == AVERAGE for row in means):
        notes.append(f"The average leaves out {' and '.join(apart)}.")
    if len(evaluation.encoders) > 1:
        notes.append(
            "Differences are to the first encoder, in points. In brackets their 95 % interval, where the score is "
            f"known item by item: a paired bootstrap over the items of each task ({draws:,} draws, seed {seed}). It "
            "shows the luck of the items, not that of a training; one interval in twenty misses."
        )
    return notes


def task_versions(evaluation: Evaluation) -> dict[str, str]:
    """Return by task the versions that its scores were made with; those of encoders that differ stand side by side."""
    told: dict[str, dict[str, None]] = {}
    for _, task in evaluation.tasks():
        having = [encoder.tasks[task] for encoder in evaluation.encoders if task in encoder.tasks]
        made = [", ".join(f"{name} {version}" for name, version in score.versions.items()) for score in having]
        told[task] = dict.fromkeys(filter(None, made))
    return {task: "; ".join(versions) for task, versions in told.items() if versions}
