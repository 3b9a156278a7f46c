"""A line through points, as SVG, and the round numbers on the axes of any chart."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

WIDE, HIGH = 240, 156
RIGHT, TOP, BOTTOM = 8, 8, 34


def line_chart(points: Sequence[tuple[float, float]], label: str, axis: str, percent: bool = False) -> str:
    """Return a line through points, with axes.

    Args:
        points: At least one pair of x and y, all finite, in the order of x.
        label: What the chart shows, for those who cannot see it, as HTML without tags.
        axis: Name of x, which is counted in whole numbers.
        percent: Whether y is a share, to be written as a percentage.
    """
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
        f'<text class="level" x="{left - 6:.1f}" y="{y(level) + 4:.1f}">{shown}</text>'
        for level, shown in zip(levels, labels, strict=True)
    )
    below = "".join(f'<text class="mark" x="{x(s):.1f}" y="{HIGH - BOTTOM + 16}">{s:g}</text>' for s in marks)
    name = f'<text class="mark" x="{(left + WIDE - RIGHT) / 2:.1f}" y="{HIGH - 3}">{axis}</text>'
    path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in points)
    dots = "".join(f'<circle cx="{x(s):.1f}" cy="{y(v):.1f}" r="2.6"></circle>' for s, v in points)
    return (
        f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{label}">'
        f'{grid}{below}{name}<polyline points="{path}"></polyline>{dots}</svg>'
    )


def ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Return round numbers, evenly spaced, from at or below `low` to at or above `high`."""
    size = max(abs(low), abs(high))
    span = high - low if high - low > 1e-4 * size else size  # the labels show six digits
    least = (max(span, 1e-12) if span else 1.0) / most
    power = float(f"1e{floor(log10(least))}")
    step = next(power * lead for lead in (1, 2, 5, 10, 20) if power * lead >= least)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [i * step for i in range(first, max(last, first + 1) + 1)]
