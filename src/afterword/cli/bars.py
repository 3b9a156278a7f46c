"""Progress on a terminal: one line a stage. Everything goes to stderr, so that stdout stays for results."""

from __future__ import annotations

import time
from typing import cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

EVERY = 10.0


class Bars:
    """A bar for each stage; without a terminal, a plain line now and then."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.bar: Progress | None = None
        self.task: TaskID | None = None
        self.name, self.total = "", cast("int | None", None)
        self.count, self.began, self.said = 0, 0.0, 0.0

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage, or say how long the present one is."""
        if name != self.name:
            self.began = time.perf_counter()
        self._close()
        self.name, self.total, self.count, self.said = name, total, 0, time.perf_counter()
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn(f"{name:<10}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=self.console,
                transient=True,
            )
            self.bar.start()
            self.task = self.bar.add_task(name, total=total, note="")

    def advance(self, count: int, note: str = "") -> None:
        """Move the bar."""
        self.count += count
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, advance=count, note=note)
        elif time.perf_counter() - self.said > EVERY:
            self.said = time.perf_counter()
            of = f" of {self.total}" if self.total else ""
            self.console.print(f"{self.name:<10} {self.count}{of} {note}", highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a line, above the bar where there is one."""
        self.console.print(f"{self.name:<10} {text}", highlight=False, soft_wrap=True)

    def done(self, note: str) -> None:
        """Close the bar and leave one line."""
        self._close()
        spent = time.perf_counter() - self.began
        self.console.print(f"{self.name:<10} {spent:6.1f} s  {note}", highlight=False, soft_wrap=True)
        self.name = ""

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
        self.bar = self.task = None
