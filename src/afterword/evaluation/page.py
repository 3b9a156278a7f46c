"""The report of an evaluation as one HTML page that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

from afterword.evaluation.compare import Difference
from afterword.evaluation.page_charts import differences_chart, means_chart, tasks_chart
from afterword.evaluation.results import EncoderScores, Evaluation
from afterword.evaluation.summary import AVERAGE, Row, Summary, about, prompt_rows, speed, task_versions, unprompted
from afterword.evaluation.wording import NOTHING, difference_shown, rate, shown, visible
from afterword.pages.html import escaped, page, section, table


def render_page(summary: Summary) -> str:
    """Return the report as one HTML page: no scripts, nothing loaded, every text escaped.

    Args:
        summary: As `summarise` makes it.
    """
    evaluation = summary.evaluation
    several = len(evaluation.encoders) > 1
    chart = differences_chart(summary) if several else tasks_chart(summary)
    sections = [
        section("means", "Means", f"{means_chart(summary)}\n{_means(summary)}"),
        section("chart", "Differences by task" if several else "Scores by task", chart),
        section("tasks", "Tasks", _tasks(summary)),
        *_skipped(evaluation),
        section("speed", "Speed", _speed(evaluation)),
        section("prompts", "Prompts", _prompts(evaluation)),
        section("made", "What made this report", _made(evaluation)),
    ]
    css = (files("afterword.evaluation") / "data" / "report.css").read_text(encoding="utf-8")
    return page(f"Evaluation: {', '.join(evaluation.suites)}", _header(summary), sections, css)


def _header(summary: Summary) -> str:
    evaluation = summary.evaluation
    tasks, encoders = len(summary.tasks), len(evaluation.encoders)
    size = f"{encoders} encoder{'s' * (encoders != 1)}, {tasks} task{'s' * (tasks != 1)}"
    notes = "".join(f"<li>{escaped(note)}</li>" for note in summary.notes)
    return (
        f'<p class="kicker">Afterword evaluation · {size}</p>\n'
        f"<h1><bdi>{escaped(', '.join(evaluation.suites))}</bdi></h1>\n{_tiles(summary)}\n"
        f'<ul class="notes">{notes}</ul>'
    )


def _tiles(summary: Summary) -> str:
    row = summary.headline
    if row is None:
        return "<p>No task has a score.</p>"
    compared = ["", *(f"<dd>{difference_shown(difference)}</dd>" for difference in row.differences)]
    label = f"<span>{escaped(row.label)}</span>"
    tiles = "".join(
        f"<div><dt><strong>{_name(encoder)}</strong></dt><dd><b>{shown(score)}</b> {label}</dd>{difference}</div>"
        for encoder, score, difference in zip(summary.evaluation.encoders, row.scores, compared, strict=True)
    )
    return f'<dl class="tiles">{tiles}</dl>'


def _name(encoder: EncoderScores) -> str:
    return f"<bdi>{escaped(encoder.name)}</bdi>"


def _heads(evaluation: Evaluation) -> list[str]:
    return [escaped(encoder.name) for encoder in evaluation.encoders]


def _means(summary: Summary) -> str:
    rows = [
        [f'<span class="whole">{row.label}</span>' if row.name == AVERAGE else escaped(row.label), *_scores(row)]
        for row in summary.means
    ]
    caption = "Means over tasks, in brackets their number"
    return table(caption, ["category", *_heads(summary.evaluation)], rows, "stack scores")


def _tasks(summary: Summary) -> str:
    rows = []
    for row in summary.tasks:
        metric, size = about(summary.evaluation, row.name)
        what = " · ".join(filter(None, (row.category, escaped(metric), escaped(size))))
        lower = ", lower is safer" if row.lower_is_better else ""
        rows.append([f"<bdi>{escaped(row.name)}</bdi> <small>{what}{lower}</small>", *_scores(row)])
    return table("Main score of each task", ["task", *_heads(summary.evaluation)], rows, "stack scores")


def _scores(row: Row) -> list[str]:
    """Return a cell for each encoder: the score, bold where it is the best, and its difference to the first."""
    scores = [f"<b>{shown(score)}</b>" if i in row.best else shown(score) for i, score in enumerate(row.scores)]
    compared = ["", *(f" <small>{_difference(known)}</small>" if known else "" for known in row.differences)]
    return [f"<span>{score}{difference}</span>" for score, difference in zip(scores, compared, strict=True)]


def _skipped(evaluation: Evaluation) -> list[str]:
    if not evaluation.skipped:
        return []
    return [section("skipped", "Skipped", _pairs("Tasks that were not run", evaluation.skipped, ["task", "reason"]))]


def _difference(difference: Difference) -> str:
    """Return a difference that breaks before its interval, if it must, and not within it."""
    return difference_shown(difference).replace(", ", ",&nbsp;")


def _speed(evaluation: Evaluation) -> str:
    rows = []
    for encoder in evaluation.encoders:
        took = speed(encoder)
        tokens = NOTHING if took.tokens is None else f"{took.tokens:,}"
        rates = [rate(took.texts_per_second), rate(took.tokens_per_second)]
        rows.append([_name(encoder), f"{took.texts:,}", tokens, f"{took.seconds:,.1f}", *rates])
    head = ["encoder", "texts", "tokens", "seconds", "texts/s", "tokens/s"]
    return table("Time of encoding, over all tasks", head, rows, "stack")


def _prompts(evaluation: Evaluation) -> str:
    rows = [
        [f"<bdi>{escaped(task)}</bdi>", f"<bdi>{escaped(who)}</bdi>", _sides(sides)]
        for task, who, sides in prompt_rows(evaluation)
    ]
    numbers = table(
        "What stood before the texts; ⏎ is the end of a line, ␣ a space at either end",
        ["task", "encoders", "prompts"],
        rows,
        "prompts",
    )
    names = ", ".join(f"<bdi>{escaped(name)}</bdi>" for name in unprompted(evaluation))
    none = f"<p>Without a prompt: {names}.</p>\n" if names else ""
    return none + (f"<details><summary>Prompts of each task</summary>\n{numbers}\n</details>" if rows else "")


def _sides(sides: Mapping[str, str]) -> str:
    given = [(side, visible(prompt)) for side, prompt in sides.items() if prompt]
    return "<br>".join(f"{escaped(side)}: <q>{escaped(prompt)}</q>" for side, prompt in given) or "none"


def _made(evaluation: Evaluation) -> str:
    encoders = evaluation.encoders
    keys = dict.fromkeys(key for encoder in encoders for key in encoder.facts)
    rows = [["revision", *(escaped(encoder.revision) for encoder in encoders)]]
    rows += [[escaped(key), *(_fact(encoder.facts.get(key, NOTHING)) for encoder in encoders)] for key in keys]
    made = table("Encoders", ["what", *_heads(evaluation)], rows, "stack scores facts")
    return f"{made}\n{_pairs('Run', evaluation.facts)}\n{_versions(evaluation)}"


def _versions(evaluation: Evaluation) -> str:
    versions = task_versions(evaluation)
    if not versions:
        return ""
    numbers = _pairs("Versions of data and mteb", versions, ["task", "versions"])
    return f"<details><summary>Versions of each task</summary>\n{numbers}\n</details>"


def _pairs(caption: str, facts: Mapping[str, object], head: Sequence[str] = ("what", "value")) -> str:
    rows: Sequence[Sequence[str]] = [[f"<bdi>{escaped(name)}</bdi>", _fact(value)] for name, value in facts.items()]
    return table(caption, head, rows, "facts")


def _fact(value: object) -> str:
    return f"<bdi>{escaped(value)}</bdi>"
