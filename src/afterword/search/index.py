"""A finished index, and the encoder that its vectors belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, overload

import numpy as np
from numpy.typing import NDArray

from afterword.corpus.manifest import Manifest
from afterword.encoder import Encoder
from afterword.errors import InputError, MismatchError, SettingError
from afterword.search.build import KIND
from afterword.search.settings import Similarity, StoreName
from afterword.search.sides import Sides
from afterword.search.state import read_state
from afterword.search.store import Hit, VectorStore, Where, open_store


@dataclass(frozen=True)
class Index:
    """Finds documents by what queries mean.

    Attributes:
        folder: Where it is.
        sides: The encoder, with the prompts that the index was made with.
        store: What keeps documents and vectors.
    """

    folder: Path
    sides: Sides
    store: VectorStore

    @classmethod
    def open(cls, folder: str | Path, encoder: Encoder, *, batch_size: int = 32, name: str | None = None) -> Index:
        """Open an index with the encoder that it was made with.

        Args:
            folder: What `build_index` made.
            encoder: The encoder; `encoder_name` tells which one.
            batch_size: Queries in one pass.
            name: Name of the encoder, for messages.

        Raises:
            MissingPartError: There is no index, or it was never finished.
            MismatchError: The encoder is another one, or its prompts are; both sides are named.
            CorruptError: A part of it cannot be read.
        """
        folder = Path(folder)
        manifest = Manifest.read(folder, KIND)
        read_state(folder)
        settings = manifest.settings
        sides = Sides(
            encoder,
            cast("Similarity", settings["similarity"]),
            settings["query_prompt"],
            settings["document_prompt"],
            batch_size,
        )
        _check(manifest, sides, folder, name or sides.name)
        store = open_store(cast("StoreName", settings["store"]), folder, sides.dimension)
        return cls(folder, sides, store)

    @overload
    def search(  # type: ignore[overload-overlap]  # a text is a sequence of texts
        self, queries: str, k: int = 10, where: Where | None = None
    ) -> list[Hit]: ...

    @overload
    def search(self, queries: Sequence[str], k: int = 10, where: Where | None = None) -> list[list[Hit]]: ...

    def search(
        self, queries: str | Sequence[str], k: int = 10, where: Where | None = None
    ) -> list[Hit] | list[list[Hit]]:
        """Find the documents nearest to queries.

        Args:
            queries: One query, or a list.
            k: Most documents for each.
            where: Only documents with these values by field, such as `{"source": "wiki"}`, or a condition in words,
                such as `"source = 'wiki'"`. With LanceDB these words are SQL: values that others typed belong into
                the first form.

        Returns:
            The hits of one query, best first; for a list of queries a list of such lists.

        Raises:
            InputError: A query is no string.
            SettingError: `k` is not positive, or the condition cannot be read.
            CorruptError: Something that was found is damaged.
        """
        texts = [queries] if isinstance(queries, str) else list(queries)
        found = self.search_vectors(self.sides.queries(texts), k, where)
        return found[0] if isinstance(queries, str) else found

    def search_vectors(self, vectors: NDArray[np.float32], k: int = 10, where: Where | None = None) -> list[list[Hit]]:
        """Find the documents nearest to vectors of queries. *Shape:* `(N, d)`; otherwise as `search`."""
        if k < 1:
            raise SettingError(f"k is {k}: at least 1 document is to be found")
        array = np.asarray(vectors, dtype=np.float32)
        if array.ndim != 2 or array.shape[1] != self.sides.dimension:
            raise InputError(f"vectors of queries have shape (N, {self.sides.dimension}), found {array.shape}")
        if not np.isfinite(array).all():
            raise InputError("a vector of a query holds NaN or infinity")
        return self.store.search(self.sides.compared(array), k, where) if len(array) else []


def encoder_name(folder: str | Path) -> str:
    """Return the name of the encoder that an index was made with.

    Raises:
        MissingPartError: There is no index.
        MismatchError: The folder holds something else.
    """
    return Manifest.read(folder, KIND).made_with.get("encoder", "")


def _check(manifest: Manifest, sides: Sides, folder: Path, name: str) -> None:
    has, given = manifest.sources, sides.identity()
    if has["encoder"] != given["encoder"] or manifest.settings["dimension"] != sides.dimension:
        raise MismatchError(
            f"{folder} was made with {manifest.made_with.get('encoder')} ({has['encoder']}), but the encoder given is "
            f"{name} ({given['encoder']}): its vectors mean nothing there. Give the other one, or index again"
        )
    differing = [
        f"  {key}: it has {has.get(key)!r}, {name} has {own!r}" for key, own in given.items() if has.get(key) != own
    ]
    if differing:
        lines = "\n".join(differing)
        raise MismatchError(f"{folder} was made when its encoder had other settings:\n{lines}\nindex again")
