"""What a reasoning model thinks before it answers is not its answer."""

from __future__ import annotations

import re

_BLOCK = re.compile(r"<think>.*?</think>", re.DOTALL)


def without_thinking(text: str) -> tuple[str, bool]:
    """Drop think blocks from an answer.

    Some templates open the block themselves, so that the answer holds its end only: all before that is thinking too.

    Returns:
        The answer, and whether a block was left unfinished (then nothing after its start is kept).
    """
    text = _BLOCK.sub("", text)
    text = text.rpartition("</think>")[2]
    answer, opened, _ = text.partition("<think>")
    return answer.strip(), bool(opened)
