"""What a long piece of work tells whoever watches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class Watcher(Protocol):
    """Told of stages and their progress. The command line draws bars; a test keeps a list."""

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage of `total` units, or of unknown length."""
        ...

    def advance(self, count: int, note: str = "") -> None:
        """Note that `count` units more are done."""
        ...

    def say(self, text: str) -> None:
        """Note something that explains a wait."""
        ...

    def done(self, note: str) -> None:
        """End the stage, with what came of it."""
        ...


class Silent:
    """Watches and says nothing."""

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage."""

    def advance(self, count: int, note: str = "") -> None:
        """Note progress."""

    def say(self, text: str) -> None:
        """Note something."""

    def done(self, note: str) -> None:
        """End a stage."""


class Steps:
    """Passes the steps of a training on to a watcher, whose stage begins with the first of them.

    Args:
        watcher: Who is told.
    """

    def __init__(self, watcher: Watcher) -> None:
        self.watcher, self.at = watcher, dict[str, int]()

    def __call__(self, stage: str, step: int, steps: int, losses: Mapping[str, float]) -> None:
        """Note that `step` of `steps` is done, with its losses."""
        if stage not in self.at:
            self.watcher.stage(stage, steps)
        said = ", ".join(f"{name} {value:.3f}" for name, value in losses.items() if name != "gradient")
        self.watcher.advance(step - self.at.get(stage, 0), said)
        self.at[stage] = step
