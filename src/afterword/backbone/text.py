"""From text to token ids, such that nothing a user types becomes a control token."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from transformers import PreTrainedTokenizerBase

from afterword.errors import InputError


class TextTokenizer:
    """A tokenizer with two entrances: `plain` for what users type, `trusted` for what we write ourselves.

    Fast tokenizers keep truncation and special-token settings in shared state, so two threads that use one with
    different settings fail ("Already borrowed"). A lock guards every call, and truncation is left to the caller.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._lock = threading.Lock()
        self.control_tokens = _control_tokens(tokenizer)
        self._control = _any_of(self.control_tokens)
        self.start_ids = self._start_ids()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A lock cannot go to another process; there, nobody else uses this tokenizer.
        vars(self).update(state, _lock=threading.Lock())

    def plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenise texts as characters only, without BOS or EOS.

        Raises:
            InputError: An item is not a string or holds a lone surrogate; its index is named.
        """
        check_texts(texts)
        pieces = [self._pieces(text) for text in texts]
        flat = [piece for text in pieces for piece in text]
        if not flat:
            return []
        with self._lock:
            encoded = self.tokenizer(flat, add_special_tokens=False, split_special_tokens=True, verbose=False).input_ids
        ids = iter(encoded)
        return [[token for _ in text for token in next(ids)] for text in pieces]

    def trusted(self, text: str) -> list[int]:
        """Tokenise our own text, in which control tokens count as such, without adding BOS or EOS."""
        if not text:
            return []
        with self._lock:
            return list(self.tokenizer(text, add_special_tokens=False, split_special_tokens=False).input_ids)

    def decode(self, ids: Sequence[int], keep_control: bool = False) -> str:
        """Turn ids into text, leaving out control tokens unless they are asked for."""
        with self._lock:
            return str(self.tokenizer.decode(list(ids), skip_special_tokens=not keep_control))

    def without_control(self, text: str) -> str:
        """Remove control tokens that were decoded as text."""
        return self._control.sub("", text)

    def _pieces(self, text: str) -> list[str]:
        # A control token typed as text is cut after its first character: no tokenizer can put the halves together.
        cuts = [0, *(match.start() + 1 for match in self._control.finditer(text)), len(text)]
        return [text[a:b] for a, b in pairwise(cuts) if a < b] or [""]

    def _start_ids(self) -> list[int]:
        # What the tokenizer puts in front of any text: BOS, or nothing. Some also add EOS behind, which is not ours.
        ids = list(self.tokenizer("", add_special_tokens=True).input_ids)
        eos = self.tokenizer.eos_token_id
        while ids and ids[-1] == eos and ids[-1] != self.tokenizer.bos_token_id:
            ids.pop()
        return ids


def check_texts(texts: Sequence[str]) -> None:
    """Raise `InputError` for the first item that is not a string or cannot be written as UTF-8."""
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"expected a string, found {type(text).__name__}", index)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            code = f"U+{ord(text[error.start]):04X}"
            raise InputError(
                f"a lone surrogate ({code}) at character {error.start}: decode the source with errors='replace'", index
            ) from None


def _control_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """List all control tokens, longest first: the special ones, and added ones of their look or in the template."""
    template = tokenizer.chat_template or ""
    template = template if isinstance(template, str) else " ".join(template.values())
    added = tokenizer.added_tokens_decoder.values()
    control = {str(t) for t in added if t.special or re.fullmatch(r"<\|.*\|>", str(t)) or str(t) in template}
    return tuple(sorted((token for token in control if token.strip() and len(token) > 1), key=lambda t: (-len(t), t)))


def _any_of(tokens: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, tokens)) if tokens else r"(?!)")
