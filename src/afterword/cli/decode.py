"""`afterword decode`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from afterword.backbone.settings import Device, DType
from afterword.cli.flags import parse_flags, quiet_libraries
from afterword.errors import SettingError


@dataclass(frozen=True)
class Decode:
    """Let the LLM say what the embedding of each text holds.

    Example: afterword decode runs/first/model "Why is the sky blue?"
    """

    model: Annotated[str, tyro.conf.Positional]
    """A saved model: a folder or a hub name."""
    texts: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Texts; or give --input."""
    input: str | None = None
    """File of texts, or - for lines from stdin."""
    column: str | None = None
    """Column with the text."""
    max_new_tokens: int = 64
    """Most tokens of each answer."""
    repetition_penalty: float = 1.0
    """Above 1, words already said become less likely; small models repeat themselves."""
    batch_size: int = 32
    """Texts in one pass."""
    device: Device = "auto"
    """Where the LLM runs."""
    dtype: DType = "auto"
    """Type of its weights."""
    json: bool = False
    """Print a JSON object a line, with text and decoded."""

    def run(self) -> None:
        """Decode and print."""
        if bool(self.texts) == (self.input is not None):
            raise SettingError("give texts on the command line, or --input FILE, and not both")
        quiet_libraries()
        from afterword.corpus.readers import read_rows
        from afterword.model.model import Afterword

        texts = list(self.texts) or [text for _, text in read_rows(str(self.input), self.column)]
        model = Afterword.from_pretrained(self.model, device=self.device, dtype=self.dtype)
        said = model.decode(texts, self.max_new_tokens, self.batch_size, self.repetition_penalty)
        for text, decoded in zip(texts, said, strict=True):
            row = {"text": text, "decoded": decoded}
            print(json.dumps(row, ensure_ascii=False) if self.json else f"{text}\n  → {decoded}", flush=True)


def parse(arguments: Sequence[str]) -> Decode:
    """Read the flags."""
    return parse_flags(Decode, "decode", arguments)
