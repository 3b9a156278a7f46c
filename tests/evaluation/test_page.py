"""The page of an evaluation: complete, escaped, self-contained, and readable for one encoder as for six."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from afterword.evaluation.page import render_page
from afterword.evaluation.results import Evaluation
from afterword.evaluation.summary import summarise
from afterword.evaluation.wording import difference_shown, shown
from tests.evaluation.fabricated import PAPER, evaluation
from tests.pages.reader import Page

HOSTILE = "<script>alert(1)</script> \"quoted\" 'single' & $css \ud83d \x1b[31mred\x00 \u202eturned"
RIGHT_TO_LEFT = "מודל עברי טוב"
FEW = {"STS": ("cosine_spearman", "spearman", 2, 0.7), "Retrieval": ("ndcg_at_10", "mean", 1, 0.4)}
ONE = {"Safety": ("top_5_rate", "mean", 1, 0.5)}
MANY = {category: (metric, kind, 9, level) for category, (metric, kind, _, level) in PAPER.items()}


def render(found: Evaluation) -> str:
    return render_page(summarise(found, draws=50))


def hostile() -> Evaluation:
    found = evaluation([HOSTILE, RIGHT_TO_LEFT], FEW, count=20)
    encoders = []
    for encoder in found.encoders:
        tasks = {
            f"{HOSTILE}{i}": replace(
                score, task=f"{HOSTILE}{i}", metric=HOSTILE, prompts={HOSTILE: HOSTILE}, versions={HOSTILE: HOSTILE}
            )
            for i, score in enumerate(encoder.tasks.values())
        }
        encoders.append(replace(encoder, revision=HOSTILE, facts={HOSTILE: HOSTILE}, tasks=tasks))
    return Evaluation((HOSTILE,), tuple(encoders), {HOSTILE: HOSTILE}, {HOSTILE: HOSTILE})


def with_gaps() -> Evaluation:
    """The second encoder lacks a task and has a score that is no number; the third has nothing."""
    found = evaluation(["A", "B", "C"], FEW, count=20)
    _, *rest = found.encoders[1].tasks
    tasks = {name: found.encoders[1].tasks[name] for name in rest}
    tasks[rest[0]] = replace(tasks[rest[0]], score=float("nan"))
    second, third = replace(found.encoders[1], tasks=tasks), replace(found.encoders[2], tasks={}, facts={})
    return replace(found, encoders=(found.encoders[0], second, third))


CASES = {
    "paper": evaluation(count=30),
    "one encoder": evaluation(["A"], FEW, count=20),
    "one task": evaluation(["A"], ONE, count=20),
    "six encoders": evaluation([f"runs/{'long-' * 12}{i}/model" for i in range(6)], FEW, count=20),
    "63 tasks": evaluation(["A", "B"], MANY, count=20),
    "gaps": with_gaps(),
    "hostile": hostile(),
    "no tasks": Evaluation(("suite",), evaluation(["A", "B"], {}).encoders, {}, {}),
    "no encoder": Evaluation((), (), {}, {}),
}
every_case = pytest.mark.parametrize("found", CASES.values(), ids=CASES)


@every_case
def test_the_page_is_well_formed_and_accessible(found: Evaluation) -> None:
    page = Page(render(found))
    assert page.named("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len(page.named("table")) == len(page.named("caption")) >= 4
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(names) == len(set(names))
    assert {s["aria-labelledby"] for s in page.named("section")} <= set(names)
    charts = [attributes for _, attributes in page.tags if attributes.get("role") == "img"]
    assert len(charts) == 2 and all(chart["aria-label"] for chart in charts)


@every_case
def test_the_page_loads_nothing(found: Evaluation) -> None:
    text = render(found)
    page = Page(text)
    assert page.named("script") == []
    assert not [a for _, attributes in page.tags for a in attributes if a in ("src", "href", "srcset") or a[:2] == "on"]
    assert not re.search(r"https?:|url\(|@import", text)


@every_case
def test_the_page_shows_every_number(found: Evaluation) -> None:
    summary = summarise(found, draws=50)
    page = Page(render_page(summary))
    assert not re.search(r"\bnan\b|\binf\b|None", page.text)
    for row in (*summary.means, *summary.tasks):
        for number in map(shown, row.scores):
            assert number in page.text
        for difference in filter(None, row.differences):
            assert difference_shown(difference) in page.text


def test_the_page_shows_what_made_it() -> None:
    text = Page(render(CASES["paper"])).text
    for fact in (
        "mean pooling",
        "runs/first/model",
        "bfloat16",
        "2026-05-04",
        "mteb 2.26.24",
        "0004f5a6b7c8d9",
        "MSMARCO",
    ):
        assert fact in text
    assert "query: Generate text that answers this question 0⏎query:␣" in text
    assert "Safety (1), lower is safer" in text and "for Safety worse" in text
    assert "3 encoders, 54 tasks" in text


def test_charts_have_a_dot_for_each_score_and_difference() -> None:
    page = Page(render(CASES["63 tasks"]))
    dots = [svg for svg in page.named("svg") if "x" in svg]
    means = len(MANY) + 1
    assert len(dots) == 2 * means + means + 63
    intervals = [line for line in page.named("line") if re.fullmatch(r"s\d", str(line["class"]))]
    assert len(intervals) == means + 63
    assert "Differences by task" in page.text
    assert "Scores by task" in Page(render(CASES["one encoder"])).text


def test_differences_that_may_be_none_are_hollow() -> None:
    summary = summarise(evaluation(["A", "B"], count=20), draws=50)
    drawn = [row.differences[0] for row in (*summary.means, *summary.tasks)]
    alone = 2  # the means of categories with one task stand in no row of their own
    open_ones = [d for d in drawn if d and d.low is not None and d.high is not None and d.low <= 0 <= d.high]
    hollow = [path for path in Page(render_page(summary)).named("path") if "hollow" in str(path["class"])]
    assert 0 < len(hollow) < len(drawn)
    assert len(open_ones) - alone <= len(hollow) <= len(open_ones)


def test_the_best_is_marked() -> None:
    page = render(CASES["one task"])
    assert "<b>" in page and "<span><b>" not in page  # alone, nothing is best
    two = evaluation(["A", "B"], ONE, count=20)  # the second one is safer, since lower
    assert f"<span><b>{shown(0.45)}</b>" in render(two)


def test_hostile_text_is_escaped() -> None:
    text = render(hostile())
    page = Page(text)
    assert "<script" not in text
    assert "<script>alert(1)</script> \"quoted\" 'single' & $css \ufffd [31mred turned" in page.text
    text.encode("utf-8")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", text)
    assert f"<bdi>{RIGHT_TO_LEFT}</bdi>" in text


def test_a_missing_score_is_a_dash() -> None:
    page = Page(render(with_gaps()))
    assert "–" in page.text
    assert "Average (1 of 3)" in page.text


def test_pages_are_the_same_each_time() -> None:
    assert render(evaluation(count=30)) == render(CASES["paper"])
