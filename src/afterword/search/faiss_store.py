"""FAISS as the store for very many documents: a graph over the vectors of the core store, searched approximately.

The graph (HNSW, Malkov and Yashunin 2016, arXiv 1603.09320) finds most of the nearest documents and not always all of
them. How many it finds is measured when it is built and kept in `state.json`; scores are exact, since what it found is
compared again. It is held in memory, vectors included, and grows with every addition; documents that replace others
make it be built anew. A search with a condition goes through the documents that fulfil it and is exact.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afterword.errors import CorruptError, MissingPartError
from afterword.search.documents import Document
from afterword.search.exact import exact_top, products
from afterword.search.numpy_store import NumpyStore
from afterword.search.state import find_state, write_state
from afterword.search.store import Hit, Where

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of its wrappers, about themselves
    import faiss

NEIGHBOURS = 32
BUILD_EFFORT = 200
SEARCH_EFFORT = 128
"""Links of a document in the graph, and how many candidates are held while building and while searching."""
SAMPLE = 100


class FaissStore:
    """The core store with a graph in `hnsw-ROWS.faiss`, named in the state.

    Args:
        folder: The index.
        dimension: Width of the vectors.
    """

    chunk = NumpyStore.chunk

    def __init__(self, folder: Path, dimension: int) -> None:
        self.exact = NumpyStore(folder, dimension)
        self.folder, self.dimension = folder, dimension

    def begin(self) -> dict[bytes, bytes]:
        """Make the core store ready."""
        return self.exact.begin()

    def add(self, documents: Sequence[Document], vectors: NDArray[np.float32], replaces: bool = False) -> None:
        """Add a chunk to the core store."""
        self.exact.add(documents, vectors, replaces)

    def finish(self) -> dict[str, Any]:
        """Build the graph, or go on with that of before, measure it, and only then say that it is there."""
        state, before = self.exact.settle(), find_state(self.folder)
        live = self.exact.live_of(state["rows"])
        name = f"hnsw-{state['rows']:012d}.faiss"
        if before is not None and before.get("graph") == name and (self.folder / name).is_file():
            return before
        graph = self._grown(live, before)
        part = self.folder / f".{name}.part"
        faiss.write_index(graph, str(part))
        part.replace(self.folder / name)
        state |= {"graph": name, "recall@10": self._recall(graph, live)}
        write_state(self.folder, state)
        for other in self.folder.glob("hnsw-*.faiss"):
            if other.name != name:
                other.unlink()
        return state

    def close(self) -> None:
        """Let others add."""
        self.exact.close()

    def search(self, queries: NDArray[np.float32], k: int, where: Where | None = None) -> list[list[Hit]]:
        """Ask the graph, and compare what it finds again; with a condition, search exactly."""
        if where is not None:
            return self.exact.search(queries, k, where)
        return [self._hits(query, rows) for query, rows in zip(queries, _ask(self.graph, queries, k), strict=True)]

    @cached_property
    def graph(self) -> Any:
        """The graph of the finished state.

        Raises:
            MissingPartError: It is not there.
            CorruptError: It cannot be read, or belongs to other vectors.
        """
        state = self.exact.state
        path = self.folder / str(state.get("graph"))
        if not path.is_file():
            raise MissingPartError(f"{path} is missing: run `afterword index` again, it builds the graph anew")
        graph = _read(path)
        if (graph.d, graph.ntotal) != (self.dimension, state["documents"]):
            raise CorruptError(
                f"{path} holds {graph.ntotal} vectors of dimension {graph.d}, the index {state['documents']} of "
                f"{self.dimension}: delete it and run `afterword index` again"
            )
        return graph

    def _grown(self, live: NDArray[np.bool_], before: dict[str, Any] | None) -> Any:
        """Return a graph of all rows that count: the one of before with the new rows, if none of its own is gone."""
        wanted, old = live, None if before is None else self.folder / str(before.get("graph"))
        if before is not None and old is not None and old.is_file():
            rows = before["rows"]
            if int(np.count_nonzero(live[:rows])) == before["documents"]:
                wanted = live.copy()
                wanted[:rows] = False
        if wanted is live or old is None:
            flat = faiss.IndexHNSWFlat(self.dimension, NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
            flat.hnsw.efConstruction = BUILD_EFFORT
            graph = faiss.IndexIDMap(flat)
        else:
            graph = _read(old)
        for rows, vectors in self.exact.blocks_of(wanted):
            if len(rows):
                graph.add_with_ids(np.ascontiguousarray(vectors), rows)
        return graph

    def _recall(self, graph: Any, live: NDArray[np.bool_]) -> float:
        """Return the share of the nearest 10 that the graph finds, for some documents taken as queries."""
        rows = np.flatnonzero(live)
        _, some = self.exact.vectors.read(rows[:: max(1, len(rows) // SAMPLE)][:SAMPLE])
        nearest = [found for found, _ in exact_top(self.exact.blocks_of(live, len(some)), some, 10)]
        shares = [len(np.intersect1d(a, b)) / len(a) for a, b in zip(nearest, _ask(graph, some, 10), strict=True)]
        return round(float(np.mean(shares)), 4)

    def _hits(self, query: NDArray[np.float32], rows: NDArray[np.int64]) -> list[Hit]:
        _, vectors = self.exact.vectors.read(rows)
        scores = products(np.broadcast_to(query, vectors.shape), vectors)
        order = np.lexsort((rows, -scores))
        return self.exact.hits(rows[order], scores[order])


def _ask(graph: Any, queries: NDArray[np.float32], k: int) -> list[NDArray[np.int64]]:
    """Return the rows that a graph finds for each query; there is no number for what it does not find."""
    inner: Any = faiss.downcast_index(graph.index)
    inner.hnsw.efSearch = max(SEARCH_EFFORT, 2 * k)
    _, labels = graph.search(np.ascontiguousarray(queries), min(k, graph.ntotal))
    return [row[row >= 0] for row in labels]


def _read(path: Path) -> Any:
    try:
        return faiss.read_index(str(path))
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise CorruptError(f"{path} cannot be read, delete it and run `afterword index` again: {reason}") from error
