"""`afterword search`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any
from unicodedata import bidirectional, category

import tyro

from afterword.backbone.settings import Device, DType
from afterword.cli.flags import parse_flags, quiet_libraries
from afterword.errors import SettingError

if TYPE_CHECKING:
    from afterword.search.store import Hit

AT_ONCE = 256
WIDTH = 100
_TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@dataclass(frozen=True)
class Search:
    """Find the documents of an index that are nearest to queries.

    Example: afterword search docs.index "Why is the sky blue?" --top-k 3 --explain
    """

    index: Annotated[str, tyro.conf.Positional]
    """Folder that `afterword index` made."""
    queries: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Queries; or give --input."""
    input: str | None = None
    """File of queries (JSONL, CSV, TSV, Parquet or plain text, also .gz), or - for lines from stdin."""
    column: str | None = None
    """Column with the query."""
    top_k: Annotated[int, tyro.conf.arg(aliases=("-k",))] = 10
    """Most documents for each query."""
    where: str | None = None
    """Only documents for which this holds: "field = 'x' AND other = 3"; SQL for an index in LanceDB."""
    explain: bool = False
    """Let the LLM say what the embeddings of the query and of each hit hold (Afterword models only)."""
    max_new_tokens: int = 32
    """Most tokens of each explanation."""
    repetition_penalty: float = 1.0
    """Above 1, words of an explanation already said become less likely."""
    model: Annotated[str | None, tyro.conf.arg(aliases=("-m",), metavar="ENCODER")] = None
    """The encoder of the index, where it is no longer found under its old name."""
    batch_size: int = 32
    """Queries in one pass."""
    device: Device = "auto"
    """Where the encoder runs."""
    dtype: DType = "auto"
    """Type of an LLM's weights."""
    json: bool = False
    """Print a JSON object a query, with its hits."""

    def run(self) -> None:
        """Search and print."""
        if bool(self.queries) == (self.input is not None):
            raise SettingError("give queries on the command line, or --input FILE, and not both")
        if self.top_k < 1:
            raise SettingError(f"top_k is {self.top_k}: at least 1 document is to be found")
        quiet_libraries()
        from afterword.corpus.readers import read_rows
        from afterword.flow.open_index import open_index
        from afterword.search.explain import Explainer

        queries = iter(self.queries) if self.queries else (q for _, q in read_rows(str(self.input), self.column))
        first = list(islice(queries, AT_ONCE))  # so that a wrong file is known before a model is loaded
        index = open_index(self.index, self.model, self.device, self.dtype, self.batch_size)
        explainer = Explainer(index, self.max_new_tokens, self.repetition_penalty) if self.explain else None
        chunk = first
        while chunk:
            found = index.search(chunk, self.top_k, self.where)
            said = explainer.queries(chunk) if explainer else None
            answers = explainer.hits(found) if explainer else None
            for number, (query, hits) in enumerate(zip(chunk, found, strict=True)):
                decoded = None if said is None or answers is None else (said[number], answers[number])
                print(_json(query, hits, decoded) if self.json else "\n".join(_lines(query, hits, decoded)), flush=True)
            chunk = list(islice(queries, AT_ONCE))


def parse(arguments: Sequence[str]) -> Search:
    """Read the flags."""
    return parse_flags(Search, "search", arguments)


Decoded = tuple[str, list[str]]


def _json(query: str, hits: Sequence[Hit], decoded: Decoded | None) -> str:
    rows: list[dict[str, Any]] = [{"rank": rank, **asdict(hit)} for rank, hit in enumerate(hits, 1)]
    result: dict[str, Any] = {"query": query, "hits": rows}
    if decoded is not None:
        result["decoded"] = decoded[0]
        for row, answer in zip(rows, decoded[1], strict=True):
            row["decoded"] = answer
    # A terminal with an old code page would put signs of its own for what it lacks, and they are not JSON's.
    return json.dumps(result, ensure_ascii="utf" not in (sys.stdout.encoding or "").lower())


def _lines(query: str, hits: Sequence[Hit], decoded: Decoded | None) -> Iterator[str]:
    yield _shown(query)
    if decoded is not None:
        yield f"  → {_shown(decoded[0])}"
    for rank, hit in enumerate(hits, 1):
        yield f"{rank:>3}  {hit.score:.4f}  {_shown(hit.id)}  {_shown(hit.content)}"
        if decoded is not None:
            yield f"               → {_shown(decoded[1][rank - 1])}"
    if not hits:
        yield "     nothing found"


def _shown(text: str) -> str:
    """Return the start of a text in one line, with a code for each sign that a terminal would take for an order."""
    line = " ".join(text[: 10 * WIDTH].split())
    line = "".join(sign if _is_harmless(sign) else sign.encode("unicode_escape").decode() for sign in line)
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _is_harmless(sign: str) -> bool:
    """Return whether a sign is neither a control character nor one that turns the direction of writing."""
    return category(sign) != "Cc" and bidirectional(sign) not in _TURNS
