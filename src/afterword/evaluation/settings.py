"""How encoders are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from afterword.errors import SettingError

Policy = Literal["auto", "generative", "own", "none"]


@dataclass(frozen=True)
class EvaluateSettings:
    """How encoders are measured."""

    batch_size: int = 32
    """Texts in one pass of the encoder."""
    sample: int | None = None
    """Most items (pairs, texts, queries) of each local set, drawn by seed; mteb's own tasks are never cut."""
    seed: int = 42
    """Seed of what is drawn, and of mteb's experiments on local sets; 42 is mteb's own."""
    instructions: Policy = "auto"
    """What stands before the texts: generative instructions, the encoder's own prompts, or none; auto is generative for
    Afterword models and own for all others."""
    instructions_file: str | None = None
    """JSON file with instructions by task or type, in front of those that come with Afterword."""
    only: tuple[str, ...] = ()
    """Parts of names: tasks whose name has none of them are left out."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be used."""
        if self.batch_size < 1:
            raise SettingError(f"batch_size is {self.batch_size}: it must be at least 1")
        if self.sample is not None and self.sample < 2:
            raise SettingError(f"sample is {self.sample}: a score needs at least 2 items")
