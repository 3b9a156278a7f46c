"""Rows of dots: where they stand, and what says so to those who cannot see them."""

from __future__ import annotations

import pytest

from afterword.pages.strips import COLOURS, SHAPES, Mark, Strip, legend, strip_chart
from tests.pages.reader import Page


def share(text: str | None) -> float:
    assert text is not None and text.endswith("%")
    return float(text[:-1]) / 100


def test_dots_and_intervals_stand_where_the_scale_says() -> None:
    page = Page(strip_chart("a label", [Strip("one", [Mark(5.0, 1, 2.5, 10.0)]), Strip("two", [Mark(-10.0)], True)]))
    assert [tag["aria-label"] for tag in page.named("div") if tag.get("role") == "img"] == ["a label"]
    words = [word for word in page.words if word.strip()]
    assert words == ["-10", "-5", "0", "5", "10", "one", "two", "-10", "-5", "0", "5", "10"]
    assert [share(text["x"]) for text in page.named("text")] == [0.0, 0.25, 0.5, 0.75, 1.0] * 2
    dots = [share(svg["x"]) for svg in page.named("svg") if "x" in svg]
    assert dots == [0.75, 0.0]
    ends = [(share(t["x1"]), share(t["x2"])) for t in page.named("line") if str(t["class"]).startswith("s")]
    assert ends == [(0.625, 1.0)]
    zero = [share(t["x1"]) for t in page.named("line") if t["class"] == "zero"]
    assert zero == [0.5, 0.5]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_keeps_its_lane_and_is_not_drawn(value: float) -> None:
    page = Page(strip_chart("x", [Strip("one", [Mark(value), Mark(1.0, 1)])]))
    assert [tag["class"] for tag in page.named("path")] == ["s1"]
    assert "nan" not in strip_chart("x", [Strip("one", [Mark(value)])])
    assert page.named("g")[0]["transform"] == "translate(0 5.5)"


@pytest.mark.parametrize(
    "strips", [[], [Strip("one", [])], [Strip("one", [Mark(0.0)])]], ids=["no row", "no dot", "zero"]
)
def test_an_empty_chart_has_a_scale(strips: list[Strip]) -> None:
    assert "role" in Page(strip_chart("x", strips)).named("div")[0]


def test_series_differ_in_more_than_colour() -> None:
    page = Page(legend([str(i) for i in range(COLOURS * len(SHAPES))]))
    signs = [(tag["class"], tag["d"]) for tag in page.named("path")]
    assert len(set(signs)) == COLOURS * len(SHAPES)
    assert len({shape for _, shape in signs[:5]}) == 5
    one = Page(legend(["x"], first=3)).named("path")[0]
    assert (one["class"], one["d"]) == signs[3]


def test_hollow_dots_say_so() -> None:
    assert Page(strip_chart("x", [Strip("one", [Mark(1.0, hollow=True)])])).named("path")[0]["class"] == "s0 hollow"
