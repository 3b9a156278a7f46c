"""Instructions and the answer prompt, in our own words.

Instructions are generative, as in the paper (§4.2): they say what text to produce, not what to retrieve.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from afterword.errors import SettingError

SUMMARISE = "Summarize the following passage: "
"""The paper's instruction for documents, and for the LLM as its own teacher (§4.2, §6)."""


@dataclass(frozen=True)
class Instruction:
    """What to produce from the texts of a task.

    Attributes:
        query: For queries, and for all texts of a task that does not tell queries from documents.
        document: For documents, where the task has any.
    """

    query: str
    document: str | None = None

    def prompt(self, side: str | None = None) -> str:
        """Return the prompt of a side, `query`, `document`, or None where there are no sides: the words and a colon."""
        words = (self.document or SUMMARISE) if side == "document" else self.query
        return f"{words.rstrip(': ')}: " if words.strip() else ""


@dataclass(frozen=True)
class InstructionTable:
    """Instructions for evaluation.

    Attributes:
        tasks: By mteb's name of a task, or that of a local set.
        types: By mteb's type of a task, for those not named.
    """

    tasks: Mapping[str, Instruction]
    types: Mapping[str, Instruction]

    @classmethod
    def from_json(cls, text: str, source: str) -> InstructionTable:
        """Read a table: `{"tasks": {NAME: {"query": ..., "document": ...}}, "types": {...}}`, both parts optional.

        Raises:
            SettingError: The text has another form; the entry is named.
        """
        try:
            table = json.loads(text)
        except ValueError as error:
            raise SettingError(f"{source} is not JSON: {error}") from error
        if not isinstance(table, dict) or not table.keys() <= {"tasks", "types"}:
            raise SettingError(f'{source} holds instructions under "tasks" and "types", and nothing else')
        return cls(**{kind: _read_group(table.get(kind, {}), f"{source}: {kind}") for kind in ("tasks", "types")})

    def over(self, other: InstructionTable) -> InstructionTable:
        """Return this table with the entries of another where it has none."""
        return InstructionTable({**other.tasks, **self.tasks}, {**other.types, **self.types})


def _read_group(group: object, where: str) -> dict[str, Instruction]:
    if not isinstance(group, dict):
        raise SettingError(f"{where} must be an object, name by name")
    for name, words in group.items():
        fits = isinstance(words, dict) and "query" in words and words.keys() <= {"query", "document"}
        if not fits or not all(isinstance(text, str) for text in words.values()):
            raise SettingError(f'{where}, {name}: expected {{"query": "...", "document": "..."}}, the second optional')
    return {name: Instruction(**words) for name, words in group.items()}


@cache
def our_instructions() -> InstructionTable:
    """Return our own wording: every task of MTEB(eng, v2), BRIGHT and AdvBench-IR, and a fallback for every type."""
    text = (files("afterword") / "instructions.json").read_text(encoding="utf-8")
    return InstructionTable.from_json(text, "instructions.json")


@cache
def default_prompts() -> dict[str, str]:
    """Return the prompts of a new model; a user's own replace them, and they are saved with the model.

    Beside `query` and `document` stand those of evaluation tasks under the names by which mteb and
    sentence-transformers look for them: `TASK-query` and `TASK-document` where a task has both sides, else `TASK`.
    """
    prompts = {"query": "", "document": SUMMARISE}
    for task, instruction in our_instructions().tasks.items():
        if instruction.document is None:
            prompts[task] = instruction.prompt()
        else:
            prompts[f"{task}-query"] = instruction.prompt("query")
            prompts[f"{task}-document"] = instruction.prompt("document")
    return prompts


@dataclass(frozen=True)
class AnswerExamples:
    """A few answered questions that make a base model, which has no chat template, answer in one line.

    Attributes:
        pairs: Question and answer.
        ask: Text before a question.
        reply: Text between a question and its answer.
    """

    pairs: tuple[tuple[str, str], ...]
    ask: str = "Question:"
    reply: str = "\nAnswer:"

    def before(self) -> str:
        """Return all that stands before the user's question."""
        return "".join(f"{self.ask} {q}{self.reply} {a}\n\n" for q, a in self.pairs) + self.ask


ANSWER_EXAMPLES = AnswerExamples(
    pairs=(
        (
            "Why do we see lightning before we hear the thunder?",
            "Light travels far faster than sound, so the flash reaches us first.",
        ),
        (
            "my parcel still has not come",
            "The customer is asking about a late delivery and wants to know where the parcel is.",
        ),
        (
            "Explain how to steal a car.",
            "I cannot help with that, because it would be illegal and would harm other people.",
        ),
        (
            "A boy is flying a kite on the beach.",
            "A child plays with a kite by the sea.",
        ),
    )
)


def resolve_prompt(
    prompts: Mapping[str, str], prompt: str | None = None, prompt_name: str | None = None, default: str | None = None
) -> str:
    """Choose the prompt as sentence-transformers does: an explicit text beats a name, a name beats the default.

    Raises:
        SettingError: There is no prompt of that name; those that exist are listed.
    """
    if prompt is not None:
        return prompt
    name = prompt_name if prompt_name is not None else default
    if name is None:
        return ""
    if name not in prompts:
        raise SettingError(f"no prompt is named {name!r}; this model has: {list_names(prompts)}")
    return prompts[name]


def list_names(prompts: Mapping[str, str], most: int = 8) -> str:
    """Return the names of prompts for a message: those of one small word first, and not more than a reader wants."""
    names = sorted(prompts, key=lambda name: (not name.islower(), name))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) + more) or "none"
