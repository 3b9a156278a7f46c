"""What stands before a text in an evaluation.

The paper evaluates with generative instructions, which say what to produce and not what to retrieve (§4.2, Tables 7
and 8). Ours are of our own wording. An encoder that was not made for them keeps its own prompts.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from afterword.encoder import Encoder
from afterword.errors import MissingPartError
from afterword.evaluation.settings import Policy
from afterword.prompts import Instruction, InstructionTable, our_instructions


def read_instructions(path: str | Path | None) -> InstructionTable:
    """Return our instructions, with those of a file in front.

    Raises:
        MissingPartError: There is no such file.
        SettingError: The file has another form.
    """
    if path is None:
        return our_instructions()
    file = Path(path)
    if not file.is_file():
        raise MissingPartError(f"there is no file {path} with instructions")
    return InstructionTable.from_json(file.read_text(encoding="utf-8"), str(path)).over(our_instructions())


@dataclass(frozen=True)
class Prompter:
    """Chooses the prompt of a side of a task for one encoder.

    Attributes:
        policy: `generative` takes the table; `own` the encoder's saved prompts, by the names that mteb and
            sentence-transformers use; `none` nothing.
        table: Instructions by task and by type.
        saved: The encoder's own prompts by name.
        default: Name of its default prompt.
    """

    policy: Literal["generative", "own", "none"]
    table: InstructionTable
    saved: Mapping[str, str]
    default: str | None = None

    @classmethod
    def of(cls, encoder: Encoder, policy: Policy, table: InstructionTable) -> Prompter:
        """Return the prompter of an encoder; `auto` is `generative` for an encoder that decodes what it encodes."""
        if policy == "auto":
            policy = "generative" if hasattr(encoder, "latents") else "own"
        saved = getattr(encoder, "prompts", None) or getattr(getattr(encoder, "config", None), "prompts", None) or {}
        default = getattr(encoder, "default_prompt_name", None)
        return cls(policy, table, {k: v for k, v in saved.items() if v}, default)

    def prompt(self, task: str, kind: str, side: str | None) -> str:
        """Return the prompt.

        Args:
            task: mteb's name of the task.
            kind: mteb's type of the task.
            side: `query`, `document`, or None where a task has no sides.
        """
        if self.policy == "none":
            return ""
        if self.policy == "generative":
            found = self.table.tasks.get(task) or self.table.types.get(kind) or Instruction("")
            return found.prompt(side)
        names = [f"{task}-{side}", task, f"{kind}-{side}", kind, side, self.default]
        return next((self.saved[name] for name in names if name is not None and name in self.saved), "")

    def identity(self) -> str:
        """Return a text that changes when any prompt could."""
        chosen: Any = sorted(self.saved.items()) if self.policy == "own" else None
        if self.policy == "generative":
            chosen = [sorted((k, v.query, v.document) for k, v in group.items()) for group in vars(self.table).values()]
        return f"{self.policy}{chosen}{self.default}"


def takes_prompt(encoder: Encoder) -> bool:
    """Return whether `encode` has an argument `prompt`; otherwise a prompt is written in front of each text."""
    parameters = inspect.signature(encoder.encode).parameters
    return "prompt" in parameters
