"""What stands around a user's text."""

from __future__ import annotations

import pytest

from afterword.backbone.frames import Frame, make_frame, render_chat
from afterword.backbone.text import TextTokenizer
from afterword.errors import SettingError
from afterword.prompts import ANSWER_EXAMPLES
from tests.world import ADDED, BOS, EOS, GEMMA_TEMPLATE, QWEN_TEMPLATE, SPECIAL, byte_ids, make_tokenizer

START, END = SPECIAL.index("<|im_start|>"), SPECIAL.index("<|im_end|>")
TURN, TURN_END = SPECIAL.index("<start_of_turn>"), SPECIAL.index("<end_of_turn>")
THINK, THOUGHT = len(SPECIAL) + ADDED.index("<think>"), len(SPECIAL) + ADDED.index("</think>")


def text(bos: bool = True, template: str | None = None) -> TextTokenizer:
    return TextTokenizer(make_tokenizer(bos, template))


def test_raw_is_the_start_tokens_only() -> None:
    assert make_frame(text(bos=True), "raw") == Frame(before=(BOS,))
    assert make_frame(text(bos=False), "raw") == Frame()


def test_raw_ignores_a_chat_template() -> None:
    assert make_frame(text(bos=True, template=GEMMA_TEMPLATE), "raw") == Frame(before=(BOS,))


@pytest.mark.parametrize("bos", [True, False])
def test_a_chat_frame_of_the_qwen_kind_with_thinking_off(bos: bool) -> None:
    """The template writes no BOS: it is added where the tokenizer has one."""
    frame = make_frame(text(bos, QWEN_TEMPLATE), "chat")
    assert frame.before == (*([BOS] if bos else []), START, *byte_ids("user\n"))
    assert frame.after == (
        *(END, *byte_ids("\n"), START, *byte_ids("assistant\n")),
        *(THINK, *byte_ids("\n\n"), THOUGHT, *byte_ids("\n\n")),
    )
    assert (frame.glue, frame.one_line) == ("", False)


@pytest.mark.parametrize("bos", [True, False])
def test_a_template_that_holds_bos_gives_exactly_one(bos: bool) -> None:
    """C22."""
    frame = make_frame(text(bos, GEMMA_TEMPLATE), "chat")
    assert frame.before == (BOS, TURN, *byte_ids("user\n"))
    assert frame.after == (TURN_END, *byte_ids("\n"), TURN, *byte_ids("model\n"))


def test_a_system_prompt_stands_before_the_user() -> None:
    frame = make_frame(text(False, QWEN_TEMPLATE), "chat", system="Be brief.")
    assert frame.before == (START, *byte_ids("system\nBe brief."), END, *byte_ids("\n"), START, *byte_ids("user\n"))


def test_auto_takes_the_template_where_there_is_one() -> None:
    assert make_frame(text(template=QWEN_TEMPLATE), "auto") == make_frame(text(template=QWEN_TEMPLATE), "chat")
    assert make_frame(text(), "auto") == make_frame(text(), "examples")


@pytest.mark.parametrize("bos", [True, False])
def test_examples_end_where_the_question_starts(bos: bool) -> None:
    frame = make_frame(text(bos), "examples")
    questions = byte_ids(ANSWER_EXAMPLES.before())
    assert frame.before == (*([BOS] if bos else []), *questions)
    assert ANSWER_EXAMPLES.before().endswith("\n\nQuestion:")
    assert frame.glue == " "
    assert frame.after == tuple(byte_ids("\nAnswer:"))
    assert frame.one_line


def test_a_system_prompt_stands_before_the_examples() -> None:
    plain, led = make_frame(text(), "examples"), make_frame(text(), "examples", system="Be brief.")
    assert led.before == (BOS, *byte_ids("Be brief.\n\n"), *plain.before[1:])


def test_length_counts_both_sides() -> None:
    assert len(Frame((1, 2), " ", (3,))) == 3


def test_chat_without_a_template_is_an_error() -> None:
    with pytest.raises(SettingError, match="no chat template"):
        make_frame(text(), "chat")


def test_a_template_that_drops_the_text_is_an_error() -> None:
    with pytest.raises(SettingError, match="drops the user's text"):
        make_frame(text(template="{% for m in messages %}{{ m.role }}{% endfor %}"), "chat")


def test_a_rendered_answer_shows_what_ends_a_turn() -> None:
    assert render_chat(text(template=QWEN_TEMPLATE), None, "Yes.") == (
        "<|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n",
    )
    assert EOS not in text(template=QWEN_TEMPLATE).trusted(render_chat(text(template=QWEN_TEMPLATE), None, "a")[1])
