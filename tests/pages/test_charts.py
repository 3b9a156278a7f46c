"""Charts: their axes enclose what is drawn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from afterword.pages.charts import line_chart, ticks
from tests.pages.reader import Page


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_ticks_enclose_their_range(one: float, other: float) -> None:
    low, high = sorted((one, other))
    marks = ticks(low, high)
    slack = 1e-6 * max(1e-6, high - low, abs(high))
    assert 2 <= len(marks) <= 8
    assert marks == sorted(set(marks))
    assert marks[0] <= low + slack and marks[-1] >= high - slack


def test_a_line_lies_between_its_axes() -> None:
    chart = Page(line_chart([(0.0, 0.25), (10.0, 0.75), (20.0, 0.5)], "a label", "step", percent=True))
    assert chart.named("svg")[0]["aria-label"] == "a label"
    assert chart.named("svg")[0]["role"] == "img"
    words = " ".join(chart.words)
    assert all(shown in words for shown in ("20%", "80%", "step", "10"))
    points = [tuple(map(float, point.split(","))) for point in str(chart.named("polyline")[0]["points"]).split()]
    assert points == [(float(str(dot["cx"])), float(str(dot["cy"]))) for dot in chart.named("circle")]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert abs((x1 - x0) - (x2 - x1)) < 0.11
    assert y1 < y2 < y0 and abs((y0 - y2) - (y2 - y1)) < 0.11
