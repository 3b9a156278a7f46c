"""Instructions and the answer prompt, in our own words.

Instructions are generative, as in the paper (§4.2): they say what text to produce, not what to retrieve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from afterword.errors import SettingError

SUMMARISE = "Summarize the following passage: "
"""The paper's instruction for documents, and for the LLM as its own teacher (§4.2, §6)."""

DEFAULT_PROMPTS: dict[str, str] = {"query": "", "document": SUMMARISE}
"""Prompts of a new model. A user's own replace them; they are saved with the model."""


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
        raise SettingError(f"no prompt is named {name!r}; this model has: {', '.join(sorted(prompts)) or 'none'}")
    return prompts[name]
