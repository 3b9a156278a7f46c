"""Think blocks are not the answer (CASES C53)."""

from __future__ import annotations

import pytest

from afterword.corpus.thinking import without_thinking

CASES = {
    "no block": ("yes", "yes", False),
    "a block": ("<think>x</think>yes", "yes", False),
    "over several lines": ("<think>\nfirst\nsecond\n</think>\n\nyes, it is\n", "yes, it is", False),
    "an empty block": ("<think>\n\n</think>\n\nyes", "yes", False),
    "several blocks": ("<think>a</think>yes <think>b</think>and no", "yes and no", False),
    "block opened by the template": ("so x is 2\n</think>\nyes", "yes", False),
    "unfinished": ("<think>x is 2, so", "", True),
    "unfinished behind an answer": ("yes <think>but then", "yes", True),
    "second one unfinished": ("<think>a</think>yes<think>b", "yes", True),
    "nothing but a block": ("<think>x</think>", "", False),
    "nothing": ("", "", False),
}


@pytest.mark.parametrize(("text", "answer", "unfinished"), CASES.values(), ids=CASES)
def test_blocks_are_dropped(text: str, answer: str, unfinished: bool) -> None:
    assert without_thinking(text) == (answer, unfinished)


def test_angle_brackets_that_are_no_block_stay() -> None:
    text = "if a < b: <thinking> is <b>fine</b>"
    assert without_thinking(text) == (text, False)
