"""Charts of many rows: a dot for each series, with its interval, on one scale.

The rows are laid out by the page, not by the drawing: names wrap and keep their size on a narrow screen, and only the
places along the scale are relative to its width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

from afterword.pages.charts import ticks

COLOURS = 6
SHAPES = (
    "M-4,0a4,4 0 1 0 8,0a4,4 0 1 0 -8,0Z",
    "M-3.6,-3.6H3.6V3.6H-3.6Z",
    "M0,-5L5,0L0,5L-5,0Z",
    "M0,-4.8L4.8,3.8H-4.8Z",
    "M-4.8,-3.8H4.8L0,4.8Z",
)
"""Around their own middle, in pixels: colour alone must not tell series apart."""

LANE, EDGE = 11, 13


@dataclass(frozen=True)
class Mark:
    """One dot.

    Attributes:
        value: Where it stands; one that is not finite is not drawn.
        series: Index of what it belongs to, for colour and shape.
        low: Lower end of its interval, if it has one.
        high: Upper end.
        hollow: Draw its outline only.
    """

    value: float
    series: int = 0
    low: float | None = None
    high: float | None = None
    hollow: bool = False


@dataclass(frozen=True)
class Strip:
    """One row: its name, as HTML, its marks, one below the other, and whether it stands out."""

    name: str
    marks: Sequence[Mark]
    strong: bool = False


def strip_chart(label: str, strips: Sequence[Strip]) -> str:
    """Return rows of dots on one scale that includes zero.

    Args:
        label: What the chart shows, for those who cannot see it, as HTML without tags. The numbers themselves must be
            in a table on the same page.
        strips: Rows, from the top.
    """
    ends = [end for strip in strips for mark in strip.marks for end in _ends(mark)]
    levels = ticks(min(ends, default=0.0), max(ends, default=0.0), 5)
    lowest, width = levels[0], levels[-1] - levels[0]

    def x(value: float) -> str:
        return f"{100 * (value - lowest) / width:.2f}%"

    grid = "".join(f'<line class="{_line(v)}" x1="{x(v)}" x2="{x(v)}" y1="0" y2="100%"></line>' for v in levels)
    scale = "".join(f'<text class="mark" x="{x(v)}" y="14">{v + 0.0:g}</text>' for v in levels)
    axis = f'<div class="axis"><span></span><div><svg>{scale}</svg></div></div>'
    rows = "".join(_row(strip, grid, x) for strip in strips)
    return f'<div class="strips" role="img" aria-label="{label}">\n{axis}\n{rows}{axis}\n</div>'


def legend(names: Sequence[str], first: int = 0) -> str:
    """Return the signs of series beside their names, which are HTML, from index `first` on."""
    signs = "".join(
        f'<li><svg viewBox="-6 -6 12 12" aria-hidden="true">{_sign(i, False)}</svg> <span>{name}</span></li>'
        for i, name in enumerate(names, start=first)
    )
    return f'<ul class="legend" role="list">{signs}</ul>'


def _ends(mark: Mark) -> list[float]:
    known = [end for end in (mark.value, mark.low, mark.high) if end is not None and isfinite(end)]
    return [0.0, *known] if isfinite(mark.value) else [0.0]


def _line(value: float) -> str:
    return "zero" if value == 0 else "grid"


def _row(strip: Strip, grid: str, x: Callable[[float], str]) -> str:
    high = LANE * max(1, len(strip.marks)) + EDGE
    top = -LANE * (len(strip.marks) - 1) / 2
    marks = "".join(_mark(mark, top + LANE * i, x) for i, mark in enumerate(strip.marks) if isfinite(mark.value))
    kind = ' class="strong"' if strip.strong else ""
    plot = f'<div style="min-height:{high}px"><svg>{grid}{marks}</svg></div>'
    return f"<div{kind}><span>{strip.name}</span>{plot}</div>\n"


def _mark(mark: Mark, down: float, x: Callable[[float], str]) -> str:
    line = ""
    if mark.low is not None and mark.high is not None:
        line = (
            f'<line class="s{mark.series % COLOURS}" x1="{x(mark.low)}" x2="{x(mark.high)}" y1="50%" y2="50%" '
            f'transform="translate(0 {down:g})"></line>'
        )
    sign = f'<g transform="translate(0 {down:g})">{_sign(mark.series, mark.hollow)}</g>'
    return f'{line}<svg x="{x(mark.value)}" y="50%">{sign}</svg>'


def _sign(series: int, hollow: bool) -> str:
    kind = f"s{series % COLOURS}{' hollow' if hollow else ''}"
    return f'<path class="{kind}" d="{SHAPES[series % len(SHAPES)]}"></path>'
