"""The demo's report as a page and as text: complete, escaped, self-contained, and readable when parts are missing."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from afterword.flow.demo import DemoReport, Hit, System
from afterword.flow.page import render_page
from afterword.flow.text_report import columns_of, duration, fit, render_text, thinned
from tests.pages.reader import Page

HOSTILE = "<script>alert(1)</script> \"quoted\" 'single' & $day ${css} \ud83d \x1b[31mred\x00 \u202eturned"


def event(step: int, recon: float, cosine: float) -> dict[str, Any]:
    numbers = {"recon": recon, "align": 0.00123 + 1 / (step + 900), "cosine": cosine, "retrieval": cosine / 2}
    return {"event": "validation", "step": step, **numbers}


def system(name: str, top1: float, mrr: float, validation: dict[str, Any] | None = None) -> System:
    return System(name, top1, mrr, {k: v for k, v in (validation or {}).items() if isinstance(v, float)})


def hit(question: str, right: str = "Rayleigh scattering", **changes: Any) -> Hit:
    documents = [("Rayleigh scattering", 0.6213), ("Paris", 0.4187), ("The sun", -0.0712)]
    said = {"before": "The sky is the sky.", "after": "Because the air scatters blue light most."}
    return Hit(**{"question": question, "documents": documents, "right": right, **said, **changes})


CURVE = [event(0, 4.2317, 0.4123), event(25, 3.8125, 0.5086), event(43, 3.6471, 0.5519)]
REPORT = DemoReport(
    backbone="demo",
    teacher="all-MiniLM-L6-v2",
    model="afterword-demo/training/model",
    fingerprint="0123456789abcdef",
    queries=698,
    steps=43,
    seconds={"queries": 0.1, "backbone": 41.3, "responses": 87.2, "targets": 14.9, "training": 203.4, "measures": 19.6},
    machine={"processor": "x86_64", "threads": "2", "device": "cpu", "dtype": "bfloat16", "torch": "2.13.0"},
    day="2026-05-04",
    systems=[
        system("mean pooling of the same LLM", 0.1333, 0.2214),
        system("before training (random heads)", 0.0167, 0.0789),
        system("after the warm start", 0.5833, 0.6712, CURVE[0]),
        system("after training", 0.7167, 0.8045, CURVE[-1]),
    ],
    curve=CURVE,
    hits=[hit("Why does the sky look blue?"), *(hit(f"Question {i}?") for i in range(1, 8))],
)
BARE = replace(REPORT, seconds={}, machine={}, systems=[], curve=[], hits=[])


def hostile() -> DemoReport:
    bad = hit(HOSTILE, right=HOSTILE, before=HOSTILE, after=HOSTILE, documents=[(HOSTILE, 0.5), ("x", 0.25)])
    names = {"backbone": HOSTILE, "teacher": HOSTILE, "model": HOSTILE, "fingerprint": HOSTILE, "day": HOSTILE}
    odd = {"machine": {HOSTILE: HOSTILE}, "seconds": {HOSTILE: 1.0}, "systems": [system(HOSTILE, 0.5, 0.5)]}
    return replace(REPORT, hits=[bad], **names, **odd)


def numbers(report: DemoReport) -> list[str]:
    """All figures of a report, as they are written."""
    shares = [v for s in report.systems for v in (s.top1, *(s.validation.get(k) for k in ("retrieval",)))]
    plain = [v for s in report.systems for v in (s.mrr, s.validation.get("recon"), s.validation.get("cosine"))]
    return [
        *(f"{v:.1%}" for v in shares if v is not None),
        *(f"{v:.3f}" for v in plain if v is not None),
        *(f"{s.validation['align']:.3g}" for s in report.systems if "align" in s.validation),
        *(f"{e['recon']:.3f}" for e in report.curve),
        *(duration(seconds) for seconds in (*report.seconds.values(), sum(report.seconds.values(), 0.0))),
        *(f"{score:.3f}" for h in report.hits for _, score in h.documents),
        str(report.queries),
        str(report.steps),
        report.fingerprint,
        report.day,
        report.model,
        *report.machine.values(),
    ]


def test_the_page_shows_every_number_and_text() -> None:
    page = Page(render_page(REPORT))
    for expected in numbers(REPORT):
        assert expected in page.text, expected
    for h in REPORT.hits:
        assert {h.question, h.before, h.after} <= {*page.words}
    assert "Gemma 3 270M" in page.text
    assert "not a benchmark" in page.text


def test_the_page_is_well_formed_and_accessible() -> None:
    page = Page(render_page(REPORT))
    assert page.named("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len(page.named("table")) == len(page.named("caption")) == 4
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in page.named("svg"))
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(names) == len(set(names))
    assert {s["aria-labelledby"] for s in page.named("section")} <= set(names)
    assert len(page.named("svg")) == 4


@pytest.mark.parametrize("report", [REPORT, BARE, hostile()], ids=["whole", "bare", "hostile"])
def test_the_page_loads_nothing(report: DemoReport) -> None:
    text = render_page(report)
    page = Page(text)
    assert page.named("script") == []
    assert not [a for _, attributes in page.tags for a in attributes if a in ("src", "href", "srcset") or a[:2] == "on"]
    assert not re.search(r"https?:|url\(|@import", text)


def test_hostile_text_is_escaped() -> None:
    text = render_page(hostile())
    page = Page(text)
    assert "<script" not in text
    assert "<script>alert(1)</script> \"quoted\" 'single' & $day ${css} \ufffd [31mred turned" in page.text
    text.encode("utf-8")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", text)


def test_the_right_document_is_marked_or_named_as_missing() -> None:
    found = Page(render_page(replace(REPORT, hits=[hit("q", right="Paris")])))
    assert [item for item in found.named("li") if item.get("class") == "right"] == [{"class": "right"}]
    assert "Paris ✓ right" in found.text
    missed = replace(REPORT, hits=[hit("q", right="The moon")])
    assert "the right document, The moon" in Page(render_page(missed)).text
    assert "not found: The moon" in render_text(missed)
    assert "✓ Paris 0.419" in render_text(replace(REPORT, hits=[hit("q", right="Paris")]))


@pytest.mark.parametrize(
    "curve",
    [[], CURVE[:1], [event(0, 2.0, 0.5), event(25, 2.0, 0.5)], [{"step": 3}], [event(0, float("nan"), float("inf"))]],
    ids=["empty", "one point", "flat", "no measure", "not finite"],
)
def test_any_curve_can_be_shown(curve: list[dict[str, Any]]) -> None:
    report = replace(REPORT, curve=curve)
    page = Page(render_page(report))
    assert "nan" not in re.sub(r"[a-z]*nan[a-z]+", "", render_page(report))
    assert ("No validation was recorded." in page.text) == (not curve or curve == [{"step": 3}])
    assert "VALIDATION" in render_text(report)


def test_what_is_missing_is_left_out() -> None:
    without = replace(REPORT, systems=[system("one", 0.5, 0.25), system("two", 0.75, float("nan"))])
    page = Page(render_page(without))
    assert "50.0%" in page.text and "75.0%" in page.text and "–" in page.text
    assert "cosine" not in render_text(replace(without, curve=[])).split("MEASURES")[1].split("VALIDATION")[0]
    assert "No questions were asked." in Page(render_page(BARE)).text
    assert "(nothing)" in Page(render_page(replace(REPORT, hits=[hit("q", after=" \n")]))).text
    assert "after   (nothing)" in render_text(replace(REPORT, hits=[hit("q", after=" \n")]))
    assert render_text(BARE).startswith("AFTERWORD DEMO")


def test_a_report_read_back_gives_the_same_page() -> None:
    again = DemoReport.from_json(REPORT.to_json())
    assert render_page(again) == render_page(REPORT)
    assert render_text(again) == render_text(REPORT)


def test_the_text_is_complete_and_fits_a_terminal() -> None:
    text = render_text(REPORT)
    lines = text.splitlines()
    assert 40 <= len(lines) <= 60
    assert max(map(columns_of, lines)) <= 100
    assert not any(line != line.rstrip() for line in lines)
    assert "…" not in text
    joined = " ".join(text.split())
    for expected in numbers(REPORT):
        assert expected in joined, expected


@pytest.mark.parametrize(
    "shown",
    [HOSTILE, "long " * 80, "字" * 120, "👩\u200d🔬" * 60, "e\u0301" * 200],
    ids=["hostile", "long", "wide", "joined", "accents"],
)
def test_no_text_makes_a_line_too_wide(shown: str) -> None:
    bad = hit(shown, right=shown, before=shown, after=shown, documents=[(shown, 0.5), (shown[1:], 0.4), ("x", 0.2)])
    report = replace(REPORT, hits=[bad] * 9, systems=[system(shown, 0.5, 0.5, CURVE[0])], curve=CURVE * 9)
    text = render_text(report)
    assert max(map(columns_of, text.splitlines())) <= 100
    assert not re.search(r"[\x00-\x09\x0b-\x1f\ud800-\udfff\u202e]", text)


def test_tables_of_the_text_are_aligned() -> None:
    lines = render_text(REPORT).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("MEASURES"))
    assert len({len(line) for line in lines[start + 1 : start + 6]}) == 1


def test_a_long_path_stays_whole() -> None:
    path = "/data/" + "folder with spaces/" * 8 + "model"
    assert f"afterword decode '{path}'" in render_text(replace(REPORT, model=path))
    assert f"encode '{path}'" in "".join(Page(render_page(replace(REPORT, model=path))).words)


def test_snippets_are_valid_python() -> None:
    for path in ("runs/first/model", 'odd "name"\\with $signs'):
        page = Page(render_page(replace(REPORT, model=path)))
        snippet = next(word for word in page.words if word.startswith("from afterword"))
        compile(snippet, "snippet", "exec")
        assert repr(path) in snippet or path.replace("\\", "\\\\").replace('"', '\\"') in snippet


def test_other_backbones_are_not_called_small() -> None:
    text = Page(render_page(replace(REPORT, backbone="Qwen/Qwen3-0.6B"))).text
    assert "Qwen/Qwen3-0.6B" in text and "270M" not in text and "base model" not in text
    assert "instruct model" in Page(render_page(replace(REPORT, backbone="demo-qwen"))).text


def test_small_helpers() -> None:
    assert [duration(s) for s in (0.04, 8.4, 60.0, 203.4)] == ["0.0 s", "8.4 s", "1 min 0 s", "3 min 23 s"]
    assert fit("abcdef", 6) == "abcdef"
    assert fit("abcdefg", 6) == "abcde…"
    assert fit("字字字", 5) == "字字…"
    events = [{"step": i} for i in range(30)]
    assert [e["step"] for e in thinned(events, 7)] == [0, 5, 10, 14, 19, 24, 29]
