"""What an evaluation found, in a shape that reports are written from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

CATEGORIES = (
    "Retrieval",
    "Reranking",
    "Clustering",
    "Pair classification",
    "Classification",
    "STS",
    "Summarization",
    "Reasoning",
    "Safety",
)
"""In the order of the paper's Table 1, then those of its Table 2."""

SAFETY = "Safety"


@dataclass(frozen=True)
class Items:
    """The score of a task item by item, so that the difference of two encoders gets an interval.

    Attributes:
        kind: How a score is made of the items: `mean` of their values; `spearman` correlation or `average_precision` of
            their values with their gold labels.
        values: One number an item.
        gold: One label an item; empty for `mean`.
    """

    kind: Literal["mean", "spearman", "average_precision"]
    values: list[float]
    gold: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class TaskScore:
    """One encoder on one task.

    Attributes:
        task: mteb's name of the task, or that of the local set.
        category: One of `CATEGORIES`.
        metric: mteb's name of the main score, such as `ndcg_at_10`.
        score: The main score, between 0 and 1 (a correlation may be negative).
        prompts: What stood before the texts, by side: `query`, `document`, or `text` where both sides are alike.
        size: What was measured on, such as `{"queries": 225, "documents": 1398}`.
        texts: Texts encoded.
        tokens: Their tokens, where the encoder's tokenizer can be asked.
        seconds: Time of encoding.
        items: The score item by item, where it has such a form.
        versions: Revision of the data and version of mteb, as they were when the task ran.
    """

    task: str
    category: str
    metric: str
    score: float
    prompts: Mapping[str, str]
    size: Mapping[str, int]
    texts: int
    tokens: int | None
    seconds: float
    items: Items | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def lower_is_better(self) -> bool:
        """Whether a lower score is a better one: harmful passages found."""
        return self.category == SAFETY


@dataclass(frozen=True)
class EncoderScores:
    """One encoder on all tasks.

    Attributes:
        name: As it was asked for on the command line, or the encoder's own name.
        revision: Fingerprint of weights, prompts, type and length.
        facts: What made it: dimension, dtype, batch size, kind of instructions, length.
        tasks: Its scores by task, in the order in which they ran.
    """

    name: str
    revision: str
    facts: Mapping[str, str | int]
    tasks: Mapping[str, TaskScore]


@dataclass(frozen=True)
class Evaluation:
    """Encoders side by side.

    Attributes:
        suites: Names of suites or folders.
        encoders: In the order asked for; differences are to the first.
        skipped: Tasks that could not be run, and why.
        facts: Day, machine, versions, seed, sampling.
    """

    suites: tuple[str, ...]
    encoders: tuple[EncoderScores, ...]
    skipped: Mapping[str, str]
    facts: Mapping[str, str | int]

    def tasks(self) -> list[tuple[str, str]]:
        """Return category and name of every task that any encoder has, by category and then as they ran."""
        found = {score.task: score.category for encoder in self.encoders for score in encoder.tasks.values()}
        return sorted(
            ((category, task) for task, category in found.items()), key=lambda pair: CATEGORIES.index(pair[0])
        )
