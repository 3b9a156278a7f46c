"""What every store can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from afterword.extras import require_extra
from afterword.search.documents import Document
from afterword.search.settings import StoreName

Where: TypeAlias = str | Mapping[str, Any]
"""Which documents may be found: values by field, or a condition in words."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that was found.

    Attributes:
        id: Its name in the index.
        score: Cosine or dot product with the query.
        text: What it says.
        title: What stands before the text, or nothing.
        fields: Anything else that is known about it.
    """

    id: str
    score: float
    text: str
    title: str = ""
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def content(self) -> str:
        """What was encoded: title and text."""
        return Document(self.id, self.text, self.title).content

    @classmethod
    def of(cls, document: Document, score: float) -> Hit:
        """Return a document as found."""
        return cls(document.id, score, document.text, document.title, document.fields)


@runtime_checkable
class VectorStore(Protocol):
    """Keeps documents with their vectors, and finds those with the largest products.

    `begin`, then `add` again and again, then `finish`, by one process at a time. Until it is finished, others find
    what was there before.
    """

    chunk: int
    """How many documents are to be added at once."""

    def begin(self) -> dict[bytes, bytes]:
        """Make ready to add; a chunk that a kill cut short is taken away.

        Returns:
            `digest` of each document that is there, by `VectorShards.key` of its id.
        """
        ...

    def add(self, documents: Sequence[Document], vectors: NDArray[np.float32], replaces: bool = False) -> None:
        """Add a chunk, no id twice in it; a document takes the place of an earlier one with its id.

        Args:
            documents: The documents.
            vectors: One for each. *Shape:* `(len(documents), d)`.
            replaces: Whether any of them has an earlier one.
        """
        ...

    def finish(self) -> dict[str, Any]:
        """Make what was added findable.

        Returns:
            `documents`, how many there are, and notes for a reader.
        """
        ...

    def close(self) -> None:
        """Stop adding, finished or not."""
        ...

    def search(self, queries: NDArray[np.float32], k: int, where: Where | None = None) -> list[list[Hit]]:
        """Find the `k` documents with the largest products for each query, best first; fewer where there are fewer.

        Args:
            queries: *Shape:* `(Q, d)`.
            k: How many.
            where: Only documents for which this holds.

        Raises:
            MissingPartError: The index was never finished.
            CorruptError: Something that was found is damaged.
        """
        ...


def require_store(name: StoreName) -> None:
    """Make sure that the package of a store is installed.

    Raises:
        MissingExtraError: It is not; the message holds the command that installs it.
    """
    if name != "numpy":
        require_extra(name, name)


def open_store(name: StoreName, folder: Path, dimension: int) -> VectorStore:
    """Open the store of an index.

    Raises:
        MissingExtraError: It needs a package that is not installed.
    """
    require_store(name)
    if name == "lancedb":
        from afterword.search.lancedb_store import LanceStore

        return LanceStore(folder, dimension)
    if name == "faiss":
        from afterword.search.faiss_store import FaissStore

        return FaissStore(folder, dimension)
    from afterword.search.numpy_store import NumpyStore

    return NumpyStore(folder, dimension)
