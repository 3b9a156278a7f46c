"""The demo's report as one HTML page that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from math import isfinite
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
    values_of,
)
from afterword.pages.charts import line_chart
from afterword.pages.html import bar, escaped, page, section, table
from afterword.pages.tidy import tidy


def render_page(report: DemoReport) -> str:
    """Return the report as one HTML page: no scripts, nothing loaded, every text escaped.

    Args:
        report: What the demo found.
    """
    sections = [
        section("hits", "Retrieval by answer", _hits(report.hits)),
        section("measures", "Measures before and after", _systems(report.systems)),
        section("validation", "Validation during training", _curves(report.curve)),
        section("use", "Use the model", _use(report.model)),
        section("time", "Time and machine", _made(report)),
    ]
    css = (files("afterword.flow") / "data" / "demo.css").read_text(encoding="utf-8")
    return page(f"Afterword demo: {report.backbone}, {report.day}", _header(report), sections, css)


def _header(report: DemoReport) -> str:
    day = escaped(report.day)
    return f"""<p class="kicker">Afterword demo · <time datetime="{day}">{day}</time></p>
<h1>A language model that embeds what it would answer</h1>
<p class="lead">{escaped(story(report))}</p>
<p class="caveat">{escaped(caveat(report))}</p>
{_tiles(report)}"""


def _tiles(report: DemoReport) -> str:
    """Show the first measures of the last system large, those of the others beside them."""
    if not report.systems:
        return ""
    *others, last = report.systems
    tiles = []
    for measure in present([values_of(last)])[:4]:
        now = measure.show(values_of(last)[measure.key])
        before = "".join(
            f"<dd>{measure.show(values_of(system)[measure.key])} <span>{escaped(system.name)}</span></dd>"
            for system in others
            if measure.key in values_of(system)
        )
        tiles.append(
            f"<div><dt><strong>{measure.name}</strong>: {measure.meaning}</dt>"
            f"<dd><b>{now}</b> <span>{escaped(last.name)}</span></dd>{before}</div>"
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
        else (f'<p class="missing">Not among them: the right document, <bdi>{escaped(hit.right)}</bdi>.</p>')
    )
    return f"""<article>
<h3><bdi>{escaped(hit.question)}</bdi></h3>
<dl>
<div><dt>before</dt><dd>{_said(hit.before)}</dd></div>
<div class="after"><dt>after</dt><dd>{_said(hit.after)}</dd></div>
</dl>
<h4>Nearest documents</h4>
<ol role="list">{found}</ol>{missing}
</article>
"""


def _said(text: str) -> str:
    return f"<bdi>{escaped(text)}</bdi>" if tidy(text) else "<i>(nothing)</i>"


def _document(title: str, score: float, right: bool) -> str:
    kind, mark = (' class="right"', ' <span class="mark">✓ right</span>') if right else ("", "")
    shown = f'<span class="score">{bar(score)}{score:.3f}</span>'
    return f"<li{kind}><span><bdi>{escaped(title)}</bdi>{mark}</span> {shown}</li>"


def _systems(systems: Sequence[System]) -> str:
    rows = [values_of(system) for system in systems]
    measures = present(rows)
    head = ["encoder", *(measure.name for measure in measures)]
    cells = [
        [escaped(system.name), *(measure.show(values.get(measure.key)) for measure in measures)]
        for system, values in zip(systems, rows, strict=True)
    ]
    caption = f"How well each encoder finds the document that answers a question; {NOTHING} where it was not measured"
    meanings = "".join(f"<div><dt>{m.name}</dt><dd>{m.meaning}; {m.better} is better</dd></div>" for m in measures)
    return f'{table(caption, head, cells, "stack")}\n<dl class="meanings">{meanings}</dl>'


def _curves(curve: Sequence[dict[str, Any]]) -> str:
    measures = present(curve)
    if not measures:
        return "<p>No validation was recorded.</p>"
    charts = "".join(_figure(measure, curve) for measure in measures)
    rows = [
        [escaped(f"step {event.get('step', NOTHING)}"), *(m.show(event.get(m.key)) for m in measures)]
        for event in curve
    ]
    numbers = table("Validation by step", ["when", *(m.name for m in measures)], rows, "stack")
    return (
        "<p>Measured on held-out responses, before the first step (after the warm start) and as training went on.</p>\n"
        f'<div class="charts">\n{charts}</div>\n<details><summary>The same as a table</summary>\n{numbers}\n</details>'
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
        f"{line_chart(points, f'{measure.name} by step: {said}', 'step', percent='%' in measure.style)}</figure>\n"
    )


def _use(model: str) -> str:
    path = f"<p>The trained model is in <code>{escaped(model)}</code>.</p>"
    shell = "\n".join(escape(command) for command in commands(model))
    return (
        f'{path}\n<h3>In Python</h3>\n<pre tabindex="0"><code>{escape(python_snippet(model))}</code></pre>\n'
        f'<h3>On the command line</h3>\n<pre tabindex="0"><code>{shell}</code></pre>\n'
    )


def _made(report: DemoReport) -> str:
    total = sum(report.seconds.values(), 0.0)
    times = [
        [escaped(name), f'<span class="score">{bar(s / total if total else 0.0)}{duration(s)}</span>']
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
    made = [[escaped(name), f"<bdi>{escaped(value)}</bdi>"] for name, value in facts.items()]
    return (
        f'<div class="made">\n{table("Time of each stage", ["stage", "time"], times, "times")}\n'
        f"{table('What made this report', ['what', 'value'], made, 'facts')}\n</div>"
    )
