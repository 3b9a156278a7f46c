"""What stands around a user's text: nothing, a chat template, or a few answered examples.

The paper appends its tokens to the raw query. They may also stand where the answer would start; which is better is an
empirical question, so it is a setting of the model.
"""

from __future__ import annotations

from dataclasses import dataclass

from afterword.backbone.settings import Style
from afterword.backbone.text import TextTokenizer
from afterword.errors import SettingError
from afterword.prompts import ANSWER_EXAMPLES

_SLOT = "\u2402user-text\u2403"  # stands for the user's text while a template is rendered; no template contains it


@dataclass(frozen=True)
class Frame:
    """Tokens before and after the user's text.

    Attributes:
        before: Ids in front, with exactly one BOS where the tokenizer has one.
        glue: White space that belongs to the head of the user's text, so that its first word is tokenised as usual.
        after: Ids behind.
        one_line: The answer ends at its first line break (a base model would go on with the next question).
    """

    before: tuple[int, ...] = ()
    glue: str = ""
    after: tuple[int, ...] = ()
    one_line: bool = False

    def __len__(self) -> int:
        return len(self.before) + len(self.after)


def make_frame(text: TextTokenizer, style: Style, system: str | None = None) -> Frame:
    """Build the frame of a style; `auto` is the chat template where there is one, else the examples.

    Raises:
        SettingError: A chat frame is asked of a tokenizer without a template, or its template drops the text.
    """
    if style == "auto":
        style = "chat" if text.tokenizer.chat_template else "examples"
    if style == "raw":
        return Frame(before=tuple(text.start_ids))
    if style == "examples":
        return _examples_frame(text, system)
    return _chat_frame(text, system)


def _examples_frame(text: TextTokenizer, system: str | None) -> Frame:
    head = f"{system}\n\n" if system else ""
    before = text.start_ids + text.trusted(head + ANSWER_EXAMPLES.before())
    return Frame(tuple(before), " ", tuple(text.trusted(ANSWER_EXAMPLES.reply)), one_line=True)


def _chat_frame(text: TextTokenizer, system: str | None) -> Frame:
    before, after = render_chat(text, system)
    return Frame(_begun(text, before), "", tuple(text.trusted(after)))


def user_turn(text: TextTokenizer) -> Frame:
    """Return the user's turn of the chat template alone: nothing of the assistant stands behind it.

    Raises:
        SettingError: The tokenizer has no template, or its template drops the text.
    """
    before, after = render_chat(text, None, open_answer=False)
    return Frame(_begun(text, before), "", tuple(text.trusted(after.rstrip())))


def _begun(text: TextTokenizer, before: str) -> tuple[int, ...]:
    """Return the ids of a template's head: most templates write BOS themselves, the others need it added."""
    ids, start = text.trusted(before), text.start_ids
    return tuple(ids if ids[: len(start)] == start else start + ids)


def render_chat(
    text: TextTokenizer, system: str | None, answer: str | None = None, *, open_answer: bool = True
) -> tuple[str, str]:
    """Render the chat template around an unknown user text, with thinking switched off.

    Args:
        text: The tokenizer whose template is used.
        system: System prompt, if any.
        answer: Text of an assistant turn; without it the template ends where the assistant starts to speak.
        open_answer: Let the assistant start to speak; otherwise the template ends with the user's turn.

    Returns:
        What the template writes before and after the user's text.
    """
    if not text.tokenizer.chat_template:
        raise SettingError("this tokenizer has no chat template: take the style 'examples' or 'raw'")
    turns = [{"role": "system", "content": system}] if system else []
    turns.append({"role": "user", "content": _SLOT})
    if answer is not None:
        turns.append({"role": "assistant", "content": answer})
    rendered = text.tokenizer.apply_chat_template(
        turns, tokenize=False, add_generation_prompt=answer is None and open_answer, enable_thinking=False
    )
    before, slot, after = str(rendered).partition(_SLOT)
    if not slot:
        raise SettingError("the chat template of this tokenizer drops the user's text: take another style")
    return before, after
