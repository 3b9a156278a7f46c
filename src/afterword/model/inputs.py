"""From texts to token batches, such that the learned tokens always fit behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import TokenBatch, by_length, token_batch
from afterword.backbone.frames import make_frame
from afterword.backbone.text import check_texts
from afterword.errors import InputError, SettingError
from afterword.model.config import ModelConfig

TOKENS_PER_PASS = {"cpu": 2048}
"""Most tokens of a pass while encoding. On a CPU the activations of 2,048 tokens still fit the cache: 14 % faster on
texts of 100 tokens than 8,192 (Gemma 3 270M, float32, two cores). Elsewhere a larger pass fills the device better."""
LARGE_PASS = 8192


class Inputs:
    """Tokenises texts for one model: its frame, its length, its budget.

    Args:
        backbone: The frozen LLM.
        config: Says where the learned tokens stand and how long a text may be.
        share: What all rows of a batch share (frame, prompt) stands there once, so that it runs once. Without, it is
            written into each row: the same vectors, to be measured against.

    Raises:
        SettingError: Frame and learned tokens leave no room for text.
    """

    def __init__(self, backbone: Backbone, config: ModelConfig, share: bool = True) -> None:
        self.backbone, self.share = backbone, share
        self.n_tokens = config.n_tokens
        self.frame = make_frame(backbone.text, "auto" if config.placement == "answer" else "raw", config.system)
        self.room = config.max_length - config.n_tokens - len(self.frame)
        if self.room < 1:
            raise SettingError(
                f"max_length {config.max_length} leaves no room for text beside {config.n_tokens} learned tokens and "
                f"{len(self.frame)} of the frame: raise max_length"
            )

    def rows(self, texts: Sequence[str], prompt: str = "") -> list[list[int]]:
        """Return the ids of each text in its frame, without what all share, cut so that the learned tokens fit.

        White space at the end of a prompt belongs to the head of the text, so that words are tokenised as usual.

        Raises:
            InputError: An item is not a string or holds a lone surrogate; its index is named.
        """
        shared, rows = self.split(texts, prompt)
        before = shared[len(self.frame.before) :]
        return [[*before, *row] for row in rows]

    def batches(self, texts: Sequence[str], prompt: str, batch_size: int) -> Iterator[tuple[list[int], TokenBatch]]:
        """Group texts of similar length into token batches, each with the indices of its texts.

        The prompt is part of what the rows of a batch share, so it runs once, not once a text.
        """
        shared, rows = self.split(texts, prompt)
        yield from self.grouped(shared, rows, batch_size)

    def grouped(
        self, shared: tuple[int, ...], rows: list[list[int]], batch_size: int
    ) -> Iterator[tuple[list[int], TokenBatch]]:
        """Group rows of ids behind a shared prefix, as `split` gives them, into token batches with their indices."""
        if not self.share:
            rows, shared = [[*shared, *row] for row in rows], ()
        budget = TOKENS_PER_PASS.get(self.backbone.device.type, LARGE_PASS)
        lengths = [len(row) + self.n_tokens for row in rows]
        for group in by_length(lengths, max_rows=batch_size, max_tokens=budget, packed=self.backbone.packs):
            yield group, token_batch([rows[i] for i in group], self.backbone.device, shared)

    def split(self, texts: Sequence[str], prompt: str) -> tuple[tuple[int, ...], list[list[int]]]:
        """Return what all rows begin with, frame and prompt, and what follows in each; cut to the room there is."""
        before, bodies = self._ids(texts, prompt)
        before, after = before[: self.room], list(self.frame.after)
        return (*self.frame.before, *before), [body[: self.room - len(before)] + after for body in bodies]

    def counts(self, texts: Sequence[str], prompt: str = "") -> list[int]:
        """Return how many tokens prompt and text have, for each text; what is above `room` will be cut.

        Raises:
            InputError: An item is not a string or holds a lone surrogate; its index is named.
        """
        before, bodies = self._ids(texts, prompt)
        return [len(before) + len(body) for body in bodies]

    def _ids(self, texts: Sequence[str], prompt: str) -> tuple[list[int], list[list[int]]]:
        """Return the ids of the prompt and of each text, uncut."""
        check_texts(texts)
        head = prompt.rstrip()
        glue = prompt[len(head) :] if head else self.frame.glue
        before = self.backbone.text.plain([self.frame.glue + head])[0] if head else []
        return before, self.backbone.text.plain([glue + text for text in texts])

    def pad(self, rows: Sequence[Sequence[int]]) -> TokenBatch:
        """Make a token batch of rows, behind the frame's shared prefix."""
        return token_batch(rows, self.backbone.device, self.frame.before)


def as_texts(inputs: str | Sequence[str]) -> list[str]:
    """Return a list of texts for one text, a list, a tuple, an array of strings or a column of a data frame.

    Raises:
        InputError: It is none of these.
    """
    if isinstance(inputs, str):
        return [inputs]
    if isinstance(inputs, bytes | dict) or not (hasattr(inputs, "__len__") and hasattr(inputs, "__iter__")):
        raise InputError(f"expected a string or a list of strings, found {type(inputs).__name__}")
    return [str(text) if isinstance(text, np.str_) else text for text in inputs]
