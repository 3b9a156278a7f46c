"""How an encoder reads a text: how many tokens it has, how many fit, and which text token ids stand for."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from afterword.encoder import Encoder
from afterword.errors import InputError

BROKEN = "\ufffd"


@dataclass(frozen=True)
class Reader:
    """Counts and translates for one encoder.

    Attributes:
        count: Tokens of prompt and text, for each text, before anything is cut. What the model adds is not counted.
        most: The most of them that the encoder reads; None where it does not say.
        tokenizer: Where ids come from; None where the encoder shows none.
        plain: From one text to its ids.
        decode: From ids to text, without control tokens.
    """

    count: Callable[[Sequence[str], str], list[int]]
    most: int | None = None
    tokenizer: Any | None = None
    plain: Callable[[str], list[int]] = lambda text: []
    decode: Callable[[list[int]], str] = lambda ids: ""

    @cached_property
    def ids(self) -> frozenset[int]:
        """All ids there are."""
        return frozenset(self.tokenizer.get_vocab().values()) if self.tokenizer is not None else frozenset()

    def texts(self, rows: Sequence[list[int]]) -> list[str]:
        """Turn rows of ids into texts, which are then read like any others.

        Raises:
            InputError: The encoder has no tokenizer, there is no such id, or a row begins or ends within a character;
                the item is named.
        """
        if self.tokenizer is None:
            raise InputError("this model takes no token ids: send text")
        return [self._text(row, index) for index, row in enumerate(rows)]

    def _text(self, row: list[int], item: int) -> str:
        wrong = next((i for i in row if i not in self.ids), None)
        if wrong is not None:
            raise InputError(f"there is no token id {wrong}: this model's ids go from 0 to {max(self.ids)}", item)
        text = self.decode(row)
        if BROKEN in text and self.plain(text) != row:  # a real U+FFFD comes back as it was, half a character does not
            raise InputError("these ids begin or end within a character: send whole characters, or text", item)
        return text


def reader_of(encoder: Encoder) -> Reader:
    """Find out how an encoder reads: an Afterword model, a bare LLM, one with a tokenizer, or any other.

    An encoder without a tokenizer counts no tokens, and nobody knows what it cuts.
    """
    inputs: Any = getattr(encoder, "inputs", None)
    text: Any = getattr(getattr(encoder, "backbone", None), "text", None)
    most = getattr(encoder, "max_seq_length", None)
    if text is not None:
        count = inputs.counts if inputs is not None else _counter(text.plain)
        room = inputs.room if inputs is not None else most
        return Reader(count, room, text.tokenizer, lambda one: text.plain([one])[0], text.decode)
    if getattr(encoder, "tokenizer", None) is None:
        return Reader(lambda texts, prompt: [0] * len(texts))
    return _tokenizer_reader(copy.deepcopy(encoder.tokenizer), most)  # type: ignore[attr-defined]


def _tokenizer_reader(tokenizer: Any, most: int | None) -> Reader:
    """Read with a copy: two threads that use one fast tokenizer with different settings fail ("Already borrowed")."""

    def rows(texts: Sequence[str]) -> list[list[int]]:
        return tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]  # type: ignore[no-any-return]

    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=True))

    room = None if most is None else most - tokenizer.num_special_tokens_to_add()
    return Reader(_counter(rows), room, tokenizer, lambda one: rows([one])[0], decode)


def _counter(rows: Callable[[Sequence[str]], list[list[int]]]) -> Callable[[Sequence[str], str], list[int]]:
    return lambda texts, prompt: [len(row) for row in rows([prompt + text for text in texts])]
