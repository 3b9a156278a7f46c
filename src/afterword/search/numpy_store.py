"""The core store: documents and vectors in append-only shards, searched exactly where they lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afterword.corpus.shards import JsonlShards
from afterword.corpus.vectors import VectorShards
from afterword.errors import CorruptError
from afterword.search.documents import Document, digest
from afterword.search.exact import Block, exact_top, length_of
from afterword.search.state import find_state, read_state, write_state
from afterword.search.store import Hit, Where
from afterword.search.where import equalities, holds

BLOCK_BYTES = 1 << 25
SCORES_BYTES = 1 << 24
"""Most bytes of vectors, and of their scores, in one product. A few large ones wait less for each other's threads."""


class NumpyStore:
    """Documents in `documents/` and vectors in `vectors/`, row by row the same; of rows with one id the last counts.

    Vectors are mapped, never loaded: a search reads them once, some megabytes at a time.

    Args:
        folder: The index.
        dimension: Width of the vectors.
    """

    chunk = 256

    def __init__(self, folder: Path, dimension: int) -> None:
        self.folder = folder
        self.documents = JsonlShards(folder / "documents")
        self.vectors = VectorShards(folder / "vectors", dimension)

    def begin(self) -> dict[bytes, bytes]:
        """Cut documents and vectors to whole chunks behind what was finished, and say which documents there are."""
        self.documents.recover()
        self.vectors.recover()
        finished = (find_state(self.folder) or {"rows": 0})["rows"]
        there = sum(1 for _ in self.documents.lines())
        rows = min(there, self.vectors.count())
        if rows < finished:
            raise CorruptError(f"{self.folder} holds {rows} documents, but {finished} were finished: index them anew")
        # A chunk that was cut is encoded again as a whole: so its vectors are those of a run without a break.
        rows = finished + (rows - finished) // self.chunk * self.chunk
        self.documents.cut_to(rows)
        self.vectors.cut_to(rows)
        return self._digests()

    def add(self, documents: Sequence[Document], vectors: NDArray[np.float32], replaces: bool = False) -> None:
        """Add a chunk; a kill in between leaves more documents than vectors, which `begin` cuts."""
        self.documents.append([document.to_json() for document in documents])
        self.vectors.append([document.id for document in documents], vectors)

    def finish(self) -> dict[str, Any]:
        """Bring all to the disk and say so in `state.json`."""
        state = self.settle()
        write_state(self.folder, state)
        return state

    def settle(self) -> dict[str, Any]:
        """Bring all to the disk, and return the state to be written."""
        self.close()
        rows = self.vectors.count()
        lengths = [length_of(vectors) for _, vectors in self.vectors.blocks(self._block_size(1))]
        longest = max(lengths, default=0.0)
        return {"rows": rows, "documents": int(np.count_nonzero(self.live_of(rows))), "longest": longest}

    def close(self) -> None:
        """Let others add."""
        self.documents.close()
        self.vectors.close()

    def search(self, queries: NDArray[np.float32], k: int, where: Where | None = None) -> list[list[Hit]]:
        """Compare with every document that counts, as `exact_top` does."""
        allowed = self.live if where is None else self.live & self._holding(where)
        found = exact_top(self.blocks_of(allowed, len(queries)), queries, k, self.state.get("longest"))
        return [self.hits(rows, scores) for rows, scores in found]

    def hits(self, rows: NDArray[np.int64], scores: NDArray[np.float32]) -> list[Hit]:
        """Return the documents of rows as found. *Shapes:* `(n,)`, `(n,)`.

        Raises:
            CorruptError: One of them or its vector is damaged.
        """
        keys, _ = self.vectors.read(rows)
        source = str(self.documents.folder)
        documents = [Document.from_json(line, source) for line in self.documents.read(rows.tolist())]
        for row, key, document in zip(rows.tolist(), keys, documents, strict=True):
            if self.vectors.key(document.id) != key:
                raise CorruptError(f"{source}, document {row + 1}: its vector belongs to another document")
        return [Hit.of(document, score) for document, score in zip(documents, scores.tolist(), strict=True)]

    @cached_property
    def state(self) -> dict[str, Any]:
        """What was finished when it was first asked for; what others add meanwhile is not seen.

        Raises:
            MissingPartError: Nothing was finished, or a shard is gone.
            CorruptError: Fewer vectors are there than were finished.
        """
        state = read_state(self.folder)
        if (there := self.vectors.count()) < state["rows"]:
            raise CorruptError(
                f"{self.folder} holds {there} vectors, but {state['rows']} were finished: index them anew"
            )
        return state

    @cached_property
    def live(self) -> NDArray[np.bool_]:
        """Which rows count: all but those that were replaced. *Shape:* `(rows,)`."""
        rows = self.state["rows"]
        return np.ones(rows, bool) if rows == self.state["documents"] else self.live_of(rows)

    def live_of(self, rows: int) -> NDArray[np.bool_]:
        """Return which of the first rows count. *Shape:* `(rows,)`."""
        keys = np.concatenate([np.empty(0, "S16"), *(keys for keys, _ in self.vectors.blocks(1 << 16))])[:rows]
        last = rows - 1 - np.unique(keys[::-1], return_index=True)[1]
        live = np.zeros(rows, bool)
        live[last] = True
        return live

    def _holding(self, where: Where) -> NDArray[np.bool_]:
        """Read all documents, and say for which of them a condition holds. *Shape:* `(rows,)`."""
        wanted, found = equalities(where), np.zeros(self.state["rows"], bool)
        for row, document in zip(range(len(found)), self.read_all(), strict=False):
            found[row] = holds(document, wanted)
        return found

    def read_all(self) -> Iterator[Document]:
        """Yield every document, replaced ones included, row by row."""
        source = str(self.documents.folder)
        return (Document.from_json(line, source) for line in self.documents.lines())

    def blocks_of(self, allowed: NDArray[np.bool_], queries: int = 1) -> Iterator[Block]:
        """Yield the rows that are allowed with their vectors, in blocks for so many queries. *Shape:* `(rows,)`."""
        start = 0
        for _, vectors in self.vectors.blocks(self._block_size(queries)):
            here = allowed[start : start + len(vectors)]
            rows = start + np.flatnonzero(here)
            start += len(vectors)
            yield rows, vectors[: len(here)] if here.all() else vectors[: len(here)][here]
            if start >= len(allowed):
                return

    def _block_size(self, queries: int) -> int:
        return max(1, min(BLOCK_BYTES // (4 * self.vectors.dimension), SCORES_BYTES // (4 * queries)))

    def _digests(self) -> dict[bytes, bytes]:
        """Read all documents, and return the digest of each by the key of its id; a later one replaces an earlier."""
        source = str(self.documents.folder)
        return {self.vectors.key(Document.from_json(line, source).id): digest(line) for line in self.documents.lines()}
