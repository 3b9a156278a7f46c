"""Progress: bars on a terminal, a line now and then without one, always on stderr."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from afterword.cli import bars as module
from afterword.cli.bars import Bars
from afterword.flow.progress import Watcher


def work(bars: Bars) -> None:
    bars.stage("responses", 40)
    for _ in range(4):
        bars.advance(10, "loss 0.5")
    bars.done("40 written")


def test_without_a_terminal_each_stage_leaves_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    work(Bars())
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split() for line in err.splitlines()] == [["responses", "0.0", "s", "40", "written"]]


def test_what_explains_a_wait_is_a_line_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    bars = Bars()
    bars.stage("backbone")
    bars.say("unpacking")
    assert capsys.readouterr().err.split() == ["backbone", "unpacking"]


def test_long_work_says_now_and_then_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVERY", -1.0)
    work(Bars())
    lines = [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()]
    assert lines[:4] == [f"responses {count} of 40 loss 0.5" for count in (10, 20, 30, 40)]


def test_long_notes_stay_on_their_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    bars = Bars()
    bars.stage("queries")
    bars.done("kept 12 of 14 queries (1 empty, 1 duplicate), " + "x" * 100)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_on_a_terminal_there_is_a_bar_that_goes_away() -> None:
    screen = io.StringIO()
    bars = Bars()
    bars.console = Console(file=screen, force_terminal=True, width=100)
    work(bars)
    assert "40/40" in screen.getvalue()
    assert "loss 0.5" in screen.getvalue()
    assert screen.getvalue().rstrip().endswith("40 written")
    assert bars.bar is None


def test_time_runs_on_when_the_length_of_a_stage_becomes_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 5))
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(clock)))
    bars = Bars()
    for total in (None, 10):
        bars.stage("training", total)
    bars.done("3 steps")
    bars.stage("training", 10)  # the same again is another one
    bars.done("3 steps")
    lines = [line.split() for line in capsys.readouterr().err.splitlines()]
    assert float(lines[0][1]) > float(lines[1][1]) > 0


def test_bars_are_watchers() -> None:
    assert isinstance(Bars(), Watcher)
