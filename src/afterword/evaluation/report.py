"""The report of an evaluation: Markdown here, JSON and a page beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from afterword.corpus.manifest import write_whole
from afterword.evaluation.page import render_page
from afterword.evaluation.report_json import to_json
from afterword.evaluation.results import Evaluation
from afterword.evaluation.summary import Row, Summary, about, prompt_rows, speed, task_versions, unprompted
from afterword.evaluation.wording import NOTHING, difference_shown, rate, shown, visible
from afterword.pages.tidy import tidy

NAME = "report"


def write_report(summary: Summary, folder: Path) -> list[Path]:
    """Write `report.md`, `report.html` and `report.json`, whole or not at all.

    Args:
        summary: As `summarise` makes it.
        folder: Where to; it is made if need be, and older reports in it are replaced.

    Returns:
        The files, in that order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"md": to_markdown(summary), "html": render_page(summary), "json": to_json(summary)}
    for kind, text in texts.items():
        write_whole(folder / f"{NAME}.{kind}", text)
    return [folder / f"{NAME}.{kind}" for kind in texts]


def to_markdown(summary: Summary) -> str:
    """Return the report as Markdown: what the page shows, in tables.

    Args:
        summary: As `summarise` makes it.
    """
    evaluation = summary.evaluation
    parts = [
        f"# Evaluation: {_safe(', '.join(evaluation.suites))}",
        *(f"{note}" for note in summary.notes),
        means_table(summary),
        _differences(summary, summary.means, "Differences of means"),
        _tasks(summary),
        _differences(summary, summary.tasks, "Differences by task"),
        _skipped(evaluation),
        _speed(evaluation),
        _prompts(evaluation),
        _facts(evaluation),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _names(evaluation: Evaluation) -> list[str]:
    return [_safe(encoder.name) for encoder in evaluation.encoders]


def means_table(summary: Summary) -> str:
    """Return the table of means by category, with its heading; its columns are aligned in a terminal too."""
    head = ["category (tasks)", *_names(summary.evaluation)]
    rows = [head, *([_safe(row.label), *_scores(row)] for row in summary.means)]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[row[0].ljust(wide[0]), *map(str.rjust, row[1:], wide[1:])] for row in rows]
    return "## Means\n\n" + _table(padded[0], padded[1:], numbers=1)


def _tasks(summary: Summary) -> str:
    rows = []
    for row in summary.tasks:
        metric, size = about(summary.evaluation, row.name)
        rows.append([_safe(row.name), row.category, _safe(metric), _safe(size), *_scores(row)])
    return "## Tasks\n\n" + _table(["task", "category", "metric", "size", *_names(summary.evaluation)], rows, numbers=4)


def _scores(row: Row) -> list[str]:
    return [f"**{shown(score)}**" if i in row.best else shown(score) for i, score in enumerate(row.scores)]


def _differences(summary: Summary, rows: Sequence[Row], heading: str) -> str:
    first, *others = _names(summary.evaluation) or [""]
    if not others:
        return ""
    cells = [[_safe(row.name), *map(difference_shown, row.differences)] for row in rows]
    return f"## {heading}\n\nTo {first}.\n\n" + _table(["", *others], cells, numbers=1)


def _skipped(evaluation: Evaluation) -> str:
    rows = [[_safe(task), _safe(reason)] for task, reason in evaluation.skipped.items()]
    return "## Skipped\n\n" + _table(["task", "reason"], rows) if rows else ""


def _speed(evaluation: Evaluation) -> str:
    rows = []
    for name, encoder in zip(_names(evaluation), evaluation.encoders, strict=True):
        took = speed(encoder)
        tokens = NOTHING if took.tokens is None else f"{took.tokens:,}"
        rates = [rate(took.texts_per_second), rate(took.tokens_per_second)]
        rows.append([name, f"{took.texts:,}", tokens, f"{took.seconds:,.1f}", *rates])
    return "## Speed\n\n" + _table(["encoder", "texts", "tokens", "seconds", "texts/s", "tokens/s"], rows, numbers=1)


def _prompts(evaluation: Evaluation) -> str:
    rows = [
        [_safe(task), _safe(who), _safe(side), f"“{_safe(visible(prompt))}”" if prompt else "(none)"]
        for task, who, sides in prompt_rows(evaluation)
        for side, prompt in (sides or {"text": ""}).items()
    ]
    names = ", ".join(map(_safe, unprompted(evaluation)))
    none = f"Without a prompt: {names}." if names else ""
    legend = "⏎ is the end of a line, ␣ a space at either end." if rows else ""
    numbers = _table(["task", "encoders", "side", "prompt"], rows) if rows else ""
    return "\n\n".join(filter(None, ["## Prompts", none, legend, numbers]))


def _facts(evaluation: Evaluation) -> str:
    keys = dict.fromkeys(key for encoder in evaluation.encoders for key in encoder.facts)
    rows = [["revision", *(_safe(encoder.revision) for encoder in evaluation.encoders)]]
    rows += [[_safe(key), *(_safe(e.facts.get(key, NOTHING)) for e in evaluation.encoders)] for key in keys]
    facts = [[_safe(name), _safe(value)] for name, value in evaluation.facts.items()]
    encoders = _table(["", *_names(evaluation)], rows)
    versions = [[_safe(task), _safe(made)] for task, made in task_versions(evaluation).items()]
    tables = [encoders, _table(["what", "value"], facts), _table(["task", "versions"], versions) if versions else ""]
    return "## What made this report\n\n" + "\n\n".join(filter(None, tables))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int | None = None) -> str:
    """Build a table; columns from `numbers` on stand to the right."""
    right = len(head) if numbers is None else numbers
    rule = ["-" * max(3, len(name)) if i < right else "-" * max(3, len(name) - 1) + ":" for i, name in enumerate(head)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])


def _safe(text: object) -> str:
    """Return a text on one line that Markdown shows as it is."""
    plain = tidy(str(text))
    for sign in "\\`*[]|":
        plain = plain.replace(sign, f"\\{sign}")
    return plain.replace("&", "&amp;").replace("<", "&lt;")
