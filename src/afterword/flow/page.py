"""The demo's report as one HTML page that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from math import ceil, floor, isfinite, log10
from string import Template
from typing import Any

from afterword.flow.demo import DemoReport, Hit, System
from afterword.flow.text_report import (
    NOTHING,
    Measure,
    backbone_of,
    caveat,
    commands,
    duration,
    present,
    python_snippet,
    story,
    tidy,
    values_of,
)

PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Afterword demo: $backbone, $day</title>
<style>
$css</style>
</head>
<body>
<header>
<p class="kicker">Afterword demo · <time datetime="$day">$day</time></p>
<h1>A language model that embeds what it would answer</h1>
<p class="lead">$story</p>
<p class="caveat">$caveat</p>
$tiles
</header>
<main>
$sections
</main>
</body>
</html>
""")

WIDE, HIGH = 240, 156
RIGHT, TOP, BOTTOM = 8, 8, 34


def render_page(report: DemoReport) -> str:
    """Return the report as one HTML page: no scripts, nothing loaded, every text escaped.

    Args:
        report: What the demo found.
    """
    sections = [
        _section("hits", "Retrieval by answer", _hits(report.hits)),
        _section("measures", "Measures before and after", _systems(report.systems)),
        _section("validation", "Validation during training", _curves(report.curve)),
        _section("use", "Use the model", _use(report.model)),
        _section("time", "Time and machine", _made(report)),
    ]
    return PAGE.substitute(
        css=(files("afterword.flow") / "data" / "page.css").read_text(encoding="utf-8"),
        backbone=_e(report.backbone),
        day=_e(report.day),
        story=_e(story(report)),
        caveat=_e(caveat(report)),
        tiles=_tiles(report),
        sections="\n".join(sections),
    )


def _e(text: object) -> str:
    return escape(tidy(str(text)))


def _section(name: str, heading: str, body: str) -> str:
    return f'<section aria-labelledby="{name}">\n<h2 id="{name}">{heading}</h2>\n{body}\n</section>'


def _tiles(report: DemoReport) -> str:
    """Show the first measures of the last system large, those of the others beside them."""
    if not report.systems:
        return ""
    *others, last = report.systems
    tiles = []
    for measure in present([values_of(last)])[:4]:
        now = measure.show(values_of(last)[measure.key])
        before = "".join(
            f"<dd>{measure.show(values_of(system)[measure.key])} <span>{_e(system.name)}</span></dd>"
            for system in others
            if measure.key in values_of(system)
        )
        tiles.append(
            f"<div><dt><strong>{measure.name}</strong>: {measure.meaning}</dt>"
            f"<dd><b>{now}</b> <span>{_e(last.name)}</span></dd>{before}</div>"
        )
    return f'<dl class="tiles">{"".join(tiles)}</dl>'


def _hits(hits: Sequence[Hit]) -> str:
    if not hits:
        return "<p>No questions were asked.</p>"
    note = (
        "These questions were not among the queries that the model was trained on. For each one: what the language "
        "model says when it goes on from the soft prompt, and the documents whose embeddings lie nearest, with their "
        "cosines. “Before” is the warm start: the heads are set in closed form, no gradient step has been taken yet."
    )
    return f'<p>{note}</p>\n<div class="hits">\n{"".join(map(_hit, hits))}</div>'


def _hit(hit: Hit) -> str:
    found = "".join(_document(title, score, title == hit.right) for title, score in hit.documents)
    missing = (
        ""
        if hit.right in [title for title, _ in hit.documents]
        else (f'<p class="missing">Not among them: the right document, <bdi>{_e(hit.right)}</bdi>.</p>')
    )
    return f"""<article>
<h3><bdi>{_e(hit.question)}</bdi></h3>
<dl>
<div><dt>before</dt><dd>{_said(hit.before)}</dd></div>
<div class="after"><dt>after</dt><dd>{_said(hit.after)}</dd></div>
</dl>
<h4>Nearest documents</h4>
<ol role="list">{found}</ol>{missing}
</article>
"""


def _said(text: str) -> str:
    return f"<bdi>{_e(text)}</bdi>" if tidy(text) else "<i>(nothing)</i>"


def _document(title: str, score: float, right: bool) -> str:
    kind, mark = (' class="right"', ' <span class="mark">✓ right</span>') if right else ("", "")
    return (
        f'<li{kind}><span><bdi>{_e(title)}</bdi>{mark}</span> <span class="score">{_bar(score)}{score:.3f}</span></li>'
    )


def _bar(share: float) -> str:
    width = 100 * min(max(share, 0.0), 1.0) if isfinite(share) else 0.0
    return f'<span class="bar" aria-hidden="true"><span style="width:{width:.1f}%"></span></span>'


def _systems(systems: Sequence[System]) -> str:
    rows = [values_of(system) for system in systems]
    measures = present(rows)
    head = ["encoder", *(measure.name for measure in measures)]
    cells = [
        [_e(system.name), *(measure.show(values.get(measure.key)) for measure in measures)]
        for system, values in zip(systems, rows, strict=True)
    ]
    caption = f"How well each encoder finds the document that answers a question; {NOTHING} where it was not measured"
    meanings = "".join(f"<div><dt>{m.name}</dt><dd>{m.meaning}; {m.better} is better</dd></div>" for m in measures)
    return f'{_table(caption, head, cells, "stack")}\n<dl class="meanings">{meanings}</dl>'


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Build a table; the roles keep it one for a screen reader where a narrow screen shows it as blocks."""
    top = "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in head)
    body = "".join(f'<tr role="row">{_cells(head, row)}</tr>\n' for row in rows)
    return (
        f'<table role="table" class="{kind}"><caption>{caption}</caption>\n<thead role="rowgroup"><tr role="row">{top}'
        f'</tr></thead>\n<tbody role="rowgroup">\n{body}</tbody></table>'
    )


def _cells(head: Sequence[str], row: Sequence[str]) -> str:
    rest = zip(head[1:], row[1:], strict=True)
    return f'<th role="rowheader" scope="row">{row[0]}</th>' + "".join(
        f'<td role="cell" data-label="{name}">{value}</td>' for name, value in rest
    )


def _curves(curve: Sequence[dict[str, Any]]) -> str:
    measures = present(curve)
    if not measures:
        return "<p>No validation was recorded.</p>"
    charts = "".join(_figure(measure, curve) for measure in measures)
    rows = [
        [_e(f"step {event.get('step', NOTHING)}"), *(m.show(event.get(m.key)) for m in measures)] for event in curve
    ]
    table = _table("Validation by step", ["when", *(m.name for m in measures)], rows, "stack")
    return (
        "<p>Measured on held-out responses, before the first step (after the warm start) and as training went on.</p>\n"
        f'<div class="charts">\n{charts}</div>\n<details><summary>The same as a table</summary>\n{table}\n</details>'
    )


def _figure(measure: Measure, curve: Sequence[dict[str, Any]]) -> str:
    both = (event for event in curve if {"step", measure.key} <= event.keys())
    known = [(float(event["step"]), float(event[measure.key])) for event in both]
    points = [(step, value) for step, value in known if isfinite(value)]
    if not points:
        return f"<figure><figcaption><b>{measure.name}</b> no finite value</figcaption></figure>\n"
    (first, then), (last, now) = points[0], points[-1]
    said = f"{measure.show(then)} at step {first:g}, {measure.show(now)} at step {last:g}"
    return (
        f"<figure><figcaption><b>{measure.name}</b> {measure.show(then)} → {measure.show(now)} "
        f"<span>({measure.better} is better)</span></figcaption>\n"
        f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{measure.name} by step: {said}">'
        f"{_chart(points, percent='%' in measure.style)}</svg></figure>\n"
    )


def _chart(points: Sequence[tuple[float, float]], percent: bool) -> str:
    """Draw a line through points, with axes."""
    steps, values = [step for step, _ in points], [value for _, value in points]
    levels = ticks(min(values), max(values))
    labels = [f"{100 * level:g}%" if percent else f"{level:g}" for level in levels]
    marks = [tick for tick in ticks(steps[0], steps[-1], 5) if steps[0] <= tick <= steps[-1] and tick == int(tick)]
    left = 10 + 6.8 * max(map(len, labels))

    def x(step: float) -> float:
        return left + (WIDE - left - RIGHT) * ((step - steps[0]) / ((steps[-1] - steps[0]) or 1))

    def y(value: float) -> float:
        return HIGH - BOTTOM - (HIGH - TOP - BOTTOM) * (value - levels[0]) / (levels[-1] - levels[0])

    grid = "".join(
        f'<line class="grid" x1="{left:.1f}" x2="{WIDE - RIGHT}" y1="{y(level):.1f}" y2="{y(level):.1f}"></line>'
        f'<text class="level" x="{left - 6:.1f}" y="{y(level) + 4:.1f}">{label}</text>'
        for level, label in zip(levels, labels, strict=True)
    )
    below = "".join(f'<text class="mark" x="{x(s):.1f}" y="{HIGH - BOTTOM + 16}">{s:g}</text>' for s in marks)
    axis = f'<text class="mark" x="{(left + WIDE - RIGHT) / 2:.1f}" y="{HIGH - 3}">step</text>'
    path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in points)
    dots = "".join(f'<circle cx="{x(s):.1f}" cy="{y(v):.1f}" r="2.6"></circle>' for s, v in points)
    return f'{grid}{below}{axis}<polyline points="{path}"></polyline>{dots}'


def ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Return round numbers, evenly spaced, from at or below `low` to at or above `high`."""
    size = max(abs(low), abs(high))
    span = high - low if high - low > 1e-4 * size else size  # the labels show six digits
    least = (max(span, 1e-12) if span else 1.0) / most
    power = float(f"1e{floor(log10(least))}")
    step = next(power * lead for lead in (1, 2, 5, 10, 20) if power * lead >= least)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [i * step for i in range(first, max(last, first + 1) + 1)]


def _use(model: str) -> str:
    path = f"<p>The trained model is in <code>{_e(model)}</code>.</p>"
    shell = "\n".join(escape(command) for command in commands(model))
    return (
        f'{path}\n<h3>In Python</h3>\n<pre tabindex="0"><code>{escape(python_snippet(model))}</code></pre>\n'
        f'<h3>On the command line</h3>\n<pre tabindex="0"><code>{shell}</code></pre>\n'
    )


def _made(report: DemoReport) -> str:
    total = sum(report.seconds.values(), 0.0)
    times = [
        [_e(name), f'<span class="score">{_bar(s / total if total else 0.0)}{duration(s)}</span>']
        for name, s in report.seconds.items()
    ]
    times.append(["all", duration(total)])
    facts = {
        "date": report.day,
        "backbone": backbone_of(report),
        "teacher": report.teacher,
        "queries": report.queries,
        "steps of training": report.steps,
        **report.machine,
        "model fingerprint": report.fingerprint,
    }
    made = [[_e(name), f"<bdi>{_e(value)}</bdi>"] for name, value in facts.items()]
    return (
        f'<div class="made">\n{_table("Time of each stage", ["stage", "time"], times, "times")}\n'
        f"{_table('What made this report', ['what', 'value'], made, 'facts')}\n</div>"
    )
