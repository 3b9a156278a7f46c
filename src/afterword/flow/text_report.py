"""The demo's report for a terminal, and the words that it shares with the page."""

from __future__ import annotations

import json
import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from textwrap import wrap
from typing import Any

from afterword.flow.demo import PENALTY, DemoReport, Hit, System
from afterword.pages.tidy import tidy

WIDTH = 100
SHOWN = 4
NOTHING = "–"
QUESTION = "Why is the sky blue?"
BACKBONES = {
    "demo": "Gemma 3 270M, a base model",
    "demo-qwen": "Qwen2.5-Coder 1.5B, an instruct model",
}


@dataclass(frozen=True)
class Measure:
    """One column of numbers.

    Attributes:
        key: Its name in the report.
        name: Its name for a reader.
        short: The same where there is little room.
        better: `"higher"` or `"lower"`.
        meaning: What it says.
        style: How a value is written.
    """

    key: str
    name: str
    short: str
    better: str
    meaning: str
    style: str

    def show(self, value: float | None) -> str:
        """Return a value as text; a dash for one that is missing or not finite."""
        return self.style.format(value) if value is not None and isfinite(value) else NOTHING


MEASURES = (
    Measure("top1", "top-1", "top-1", "higher", "questions whose own document comes first", "{:.1%}"),
    Measure("mrr", "MRR", "MRR", "higher", "mean reciprocal rank of that document", "{:.3f}"),
    Measure(
        "retrieval",
        "held-out retrieval",
        "retrieval",
        "higher",
        "held-out queries whose embedding is nearest to its own target",
        "{:.1%}",
    ),
    Measure("cosine", "held-out cosine", "cosine", "higher", "mean cosine of embedding and target", "{:.3f}"),
    Measure(
        "recon",
        "reconstruction, nats per token",
        "nats/token",
        "lower",
        "how hard the response is to predict from the soft prompt",
        "{:.3f}",
    ),
    Measure("align", "alignment loss", "alignment", "lower", "squared distance of embedding and target", "{:.3g}"),
)


def render_text(report: DemoReport) -> str:
    """Return the report as plain text, no line wider than 100 columns but those that hold a longer path.

    Args:
        report: What the demo found.
    """
    blocks = [
        ["AFTERWORD DEMO", *wrap(tidy(story(report)), WIDTH), *wrap(caveat(report), WIDTH)],
        _hits(report.hits),
        _systems(report.systems),
        _curve(report.curve),
        _times(report),
    ]
    parts = ["\n".join(fit(line, WIDTH) for line in block) for block in blocks if block]
    return "\n\n".join([*parts, "\n".join(_next(report.model))]) + "\n"


def story(report: DemoReport) -> str:
    """Return what was done, in two sentences."""
    took = report.seconds.get("training")
    time = f" in {duration(took)}" if took is not None else ""
    return (
        f"The frozen language model {backbone_of(report)} answered {report.queries} queries. A few learned tokens and "
        f"two linear heads were trained for {report.steps} steps{time}, so that the embedding of a query comes close "
        f"to its target: the embedding of the response by the teacher, {report.teacher}."
    )


def caveat(report: DemoReport) -> str:
    """Return what a reader should not make of the numbers."""
    small = ", and a small base model whose answers are often wrong" if report.backbone == "demo" else ""
    return (
        f"This is a demonstration, not a benchmark: {report.queries} queries, one short training{small}. "
        "It shows which way training moves things, not how far the method goes."
    )


def backbone_of(report: DemoReport) -> str:
    """Return the name of the backbone, with what it is where we know."""
    known = BACKBONES.get(report.backbone)
    return f"“{report.backbone}” ({known})" if known else report.backbone


def duration(seconds: float) -> str:
    """Return a time as `8.4 s` or `3 min 20 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def values_of(system: System) -> dict[str, float]:
    """Return all measures of a system by key."""
    return {"top1": system.top1, "mrr": system.mrr, **system.validation}


def present(rows: Iterable[dict[str, Any]]) -> list[Measure]:
    """Return the measures that any of the rows has."""
    found = {key for row in rows for key in row}
    return [measure for measure in MEASURES if measure.key in found]


def python_snippet(model: str) -> str:
    """Return a few lines of Python that use the saved model."""
    return f"""from afterword import Afterword

model = Afterword.from_pretrained({json.dumps(tidy(model), ensure_ascii=False)})
questions = model.encode_query(["{QUESTION}"])
documents = model.encode_document(["Air scatters blue light most.", "Paris is in France."])
print(model.similarity(questions, documents))
print(model.decode(["{QUESTION}"]))"""


def commands(model: str) -> list[str]:
    """Return shell commands that use the saved model."""
    path = shlex.quote(tidy(model))
    return [
        f'afterword decode {path} "{QUESTION}"',
        f"afterword encode {path} texts.txt --out vectors.npy",
    ]


def columns_of(text: str) -> int:
    """Return how many columns a text takes in a terminal."""
    return sum(_columns(sign) for sign in text)


def fit(text: str, width: int) -> str:
    """Cut a text that is wider than `width` columns, and show that it was cut."""
    if columns_of(text) <= width:
        return text
    used, kept = 1, ""
    for sign in text:
        used += _columns(sign)
        if used > width:
            break
        kept += sign
    return f"{kept.rstrip()}…"


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines: the first column to the left, the others to the right."""
    widths = [max(map(columns_of, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(_pad(cell, width, i == 0) for i, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]


def _hits(hits: Sequence[Hit]) -> list[str]:
    if not hits:
        return []
    more = f" ({SHOWN} of {len(hits)} questions; the page shows all)" if len(hits) > SHOWN else ""
    lines = [
        f"RETRIEVAL BY ANSWER{more}",
        f"What the embedding decodes to (greedy, repetition penalty {PENALTY}) before (at the warm start)",
        "and after, and what it finds; ✓: right.",
    ]
    for hit in hits[:SHOWN]:
        lines += [
            fit(f"  {tidy(hit.question)}", WIDTH),
            f"    before  {tidy(hit.before) or '(nothing)'}",
            f"    after   {tidy(hit.after) or '(nothing)'}",
            f"    finds   {_documents(hit)}",
        ]
    return lines


def _documents(hit: Hit) -> str:
    found = [
        f"{'✓ ' if title == hit.right else ''}{fit(tidy(title), 24)} {score:.3f}" for title, score in hit.documents
    ]
    if hit.right not in [title for title, _ in hit.documents]:
        found.append(f"not found: {fit(tidy(hit.right), 24)}")
    return " · ".join(found)


def _systems(systems: Sequence[System]) -> list[str]:
    rows = [values_of(system) for system in systems]
    measures = present(rows)
    cells = [["", *(measure.short for measure in measures)]]
    for system, values in zip(systems, rows, strict=True):
        cells.append([fit(tidy(system.name), 36), *(measure.show(values.get(measure.key)) for measure in measures)])
    lower = " and ".join(measure.short for measure in measures if measure.better == "lower")
    notes = "top-1, MRR: does a question find its document? The others: held-out queries and their targets."
    low = [f"Higher is better, but for {lower}."] if lower else []
    return ["MEASURES BEFORE AND AFTER", *_indent([*align(cells), *wrap(" ".join([notes, *low]), WIDTH - 2)])]


def _curve(curve: Sequence[dict[str, Any]]) -> list[str]:
    if not curve:
        return ["VALIDATION", "  No validation was recorded."]
    shown = thinned(curve, 7)
    cells = [["step", *(str(event.get("step", "")) for event in shown)]]
    cells += [[m.short, *(m.show(event.get(m.key)) for event in shown)] for m in present(curve)]
    return ["VALIDATION on held-out responses, by step of training", *_indent(align(cells))]


def thinned(curve: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return at most so many events, evenly spread, the first and the last among them."""
    if len(curve) <= most:
        return list(curve)
    return [curve[round(i * (len(curve) - 1) / (most - 1))] for i in range(most)]


def _times(report: DemoReport) -> list[str]:
    stages = ", ".join(f"{name} {duration(seconds)}" for name, seconds in report.seconds.items())
    total = duration(sum(report.seconds.values(), 0.0))
    machine = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    lines = [f"Time: {stages}; {total} in all.", f"Made on {report.day}: {machine}; model {report.fingerprint}."]
    return ["TIME AND MACHINE", *_indent([part for line in lines for part in wrap(tidy(line), WIDTH - 2)])]


def _next(model: str) -> list[str]:
    snippet = [line for line in python_snippet(model).splitlines() if line]
    return ["USE THE MODEL", *_indent([*commands(model), "or in Python:", *snippet])]


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in lines]


def _pad(text: str, width: int, left: bool) -> str:
    space = " " * (width - columns_of(text))
    return text + space if left else space + text


def _columns(sign: str) -> int:
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in ("W", "F") else 1
