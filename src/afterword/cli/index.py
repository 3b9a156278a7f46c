"""`afterword index`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from afterword.backbone.settings import Device, DType
from afterword.cli.bars import Bars
from afterword.cli.flags import parse_flags, quiet_libraries
from afterword.search.settings import DocumentSettings, IndexSettings


@dataclass(frozen=True)
class Index:
    """Make documents searchable. Run again, it goes on where it was stopped, or adds what is new.

    DOCS are files (JSONL, CSV, TSV, Parquet or plain text with one document a line, also .gz; BEIR's corpus.jsonl as it
    is), read as a stream. ENCODER is a saved Afterword model (a folder or a hub name), hf:NAME (mean of a causal LM's
    last states), teacher:NAME (teacher:demo is the packaged one), or any SentenceTransformer.

    Example: afterword index docs.jsonl --model runs/first/model --out docs.index
    """

    docs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Files of documents, or - for lines from stdin."""
    model: Annotated[str, tyro.conf.arg(aliases=("-m",), metavar="ENCODER")]
    """The encoder."""
    out: Path
    """Folder of the index."""
    documents: DocumentSettings = field(default_factory=DocumentSettings)
    settings: IndexSettings = field(default_factory=IndexSettings)
    device: Device = "auto"
    """Where the encoder runs."""
    dtype: DType = "auto"
    """Type of an LLM's weights."""
    json: bool = False
    """Print what was done as JSON."""

    def run(self) -> None:
        """Index and report."""
        quiet_libraries()
        from afterword.errors import SettingError
        from afterword.flow.open_encoder import lasting_name, open_encoder
        from afterword.search.build import build_index
        from afterword.search.documents import read_documents
        from afterword.search.store import require_store

        if not self.docs:
            raise SettingError("name the files to index, or - for lines from stdin")
        require_store(self.settings.store)
        documents = read_documents(self.docs, self.documents)
        bars = Bars()
        bars.stage("encoder")
        encoder = open_encoder(self.model, self.device, self.dtype)
        bars.stage("index")
        name = lasting_name(self.model)
        tally = build_index(encoder, documents, self.out, self.settings, bars.advance, name=name)
        bars.done(str(tally))
        print(json.dumps({**asdict(tally), "out": str(self.out)}) if self.json else self.out)


def parse(arguments: Sequence[str]) -> Index:
    """Read the flags."""
    return parse_flags(Index, "index", arguments)
