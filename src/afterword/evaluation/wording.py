"""Numbers and prompts as the reports write them."""

from __future__ import annotations

from afterword.evaluation.compare import Difference

NOTHING = "–"


def shown(score: float | None) -> str:
    """Return a score × 100 with one decimal, a dash where there is none."""
    return NOTHING if score is None else f"{round(100 * score, 1) + 0.0:.1f}"


def difference_shown(difference: Difference | None) -> str:
    """Return a difference in points with its interval, such as `+1.2 [-0.3, 2.7]`."""
    if difference is None:
        return NOTHING
    if difference.low is None or difference.high is None:
        return _signed(difference.value)
    return f"{_signed(difference.value)} [{shown(difference.low)}, {shown(difference.high)}]"


def _signed(value: float) -> str:
    return f"{round(100 * value, 1) + 0.0:+.1f}"  # + 0.0: no minus before a zero


def rate(value: float | None) -> str:
    """Return a number a second, with about three digits; a dash where nothing was timed."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def visible(prompt: str) -> str:
    """Return a prompt on one line: line ends, and spaces where it begins or ends, as signs."""
    line = prompt.replace("\r\n", "\n").replace("\n", "⏎")
    inner = line.strip(" ")
    before, after = line.split(inner, 1) if inner else (line, "")
    return "␣" * len(before) + inner + "␣" * len(after)
