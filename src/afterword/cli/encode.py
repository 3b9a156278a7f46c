"""`afterword encode`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from afterword.backbone.settings import Device, DType
from afterword.cli.bars import Bars
from afterword.cli.flags import parse_flags, quiet_libraries


@dataclass(frozen=True)
class Encode:
    """Turn texts into vectors. The input is read as a stream, so it may be of any length.

    Example: afterword encode runs/first/model docs.jsonl --column text --id-column id --out docs.parquet
    """

    model: Annotated[str, tyro.conf.Positional]
    """A saved model: a folder or a hub name."""
    input: Annotated[str, tyro.conf.Positional]
    """File of texts (JSONL, CSV, TSV, Parquet or plain text, also .gz), or - for lines from stdin."""
    out: Path
    """A .npy file (vectors in input order) or a .parquet file (id and embedding)."""
    column: str | None = None
    """Column with the text."""
    id_column: str | None = None
    """Column with an id."""
    prompt_name: str | None = None
    """Saved prompt to put before each text, such as query or document."""
    prompt: str | None = None
    """Prompt to put before each text."""
    batch_size: int = 32
    """Texts in one pass."""
    normalize: bool = False
    """Scale each vector to length 1."""
    device: Device = "auto"
    """Where the LLM runs."""
    dtype: DType = "auto"
    """Type of its weights."""
    compile: bool = False
    """Compile the LLM's layers first (torch.compile): takes a while, so for very many texts."""
    json: bool = False
    """Print what was done as JSON."""

    def run(self) -> None:
        """Encode and report."""
        quiet_libraries()
        from afterword.corpus.readers import read_rows
        from afterword.flow.encode_file import encode_file
        from afterword.model.model import Afterword

        bars = Bars()
        model = Afterword.from_pretrained(self.model, device=self.device, dtype=self.dtype)
        if self.compile:
            model.compile()
        encode = partial(
            model.encode,
            prompt_name=self.prompt_name,
            prompt=self.prompt,
            batch_size=self.batch_size,
            normalize_embeddings=self.normalize,
        )
        bars.stage("encode")
        rows = read_rows(self.input, self.column, self.id_column)
        count = encode_file(encode, rows, self.out, model.get_embedding_dimension(), bars.advance)
        bars.done(f"{count} texts")
        summary = {"texts": count, "dimension": model.get_embedding_dimension(), "out": str(self.out)}
        print(json.dumps(summary) if self.json else self.out)


def parse(arguments: Sequence[str]) -> Encode:
    """Read the flags."""
    return parse_flags(Encode, "encode", arguments)
