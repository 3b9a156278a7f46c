"""LanceDB as a persistent store: one table with documents and vectors, and conditions in SQL.

Every addition is a commit of LanceDB's own, so a kill leaves whole chunks. A field that holds texts, numbers or
booleans is a column, added when it first comes; all fields are kept as JSON too, whatever they hold. Vectors are
compared one by one, without an index of LanceDB's: what is found is exact.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from afterword.corpus.vectors import VectorShards
from afterword.errors import AfterwordError, CorruptError, MissingPartError, SettingError, WorkError
from afterword.search.columns import columns_for, condition, values_of
from afterword.search.documents import Document, digest
from afterword.search.exact import products
from afterword.search.state import find_state, read_state, write_state
from afterword.search.store import Hit, Where

DATABASE, TABLE = "lancedb", "documents"
KEEP_VERSIONS = timedelta(days=1)
"""How long what was replaced is kept for those who have the index open."""

SHORTLY = timedelta(milliseconds=1)
"""Before the first state nobody has it open."""


class LanceStore:
    """A table in `lancedb/`; `_row` counts what was added and tells equal scores apart.

    Args:
        folder: The index.
        dimension: Width of the vectors.
    """

    chunk = 1024  # every addition is a version of the table, and versions by the thousand are slow

    def __init__(self, folder: Path, dimension: int) -> None:
        self.folder, self.dimension = folder, dimension
        self._next_row = 0

    def begin(self) -> dict[bytes, bytes]:
        """Open the table, or make it, and say which documents there are."""
        with self._reading():
            if not (self.folder / DATABASE / f"{TABLE}.lance").is_dir():
                if find_state(self.folder) is not None:
                    raise MissingPartError(f"{self.folder / DATABASE} is missing: index the documents anew")
                lancedb.connect(self.folder / DATABASE).create_table(TABLE, schema=self._schema())
            there = self.table.search().select(["id", "_digest", "_row"]).limit(self.table.count_rows()).to_arrow()
        self._next_row = max(there["_row"].to_pylist(), default=-1) + 1
        pairs = zip(there["id"].to_pylist(), there["_digest"].to_pylist(), strict=True)
        return {VectorShards.key(identity): own for identity, own in pairs}

    def add(self, documents: Sequence[Document], vectors: NDArray[np.float32], replaces: bool = False) -> None:
        """Add a chunk in one commit, behind one for the columns that are new in it."""
        new = columns_for(documents, self.table.schema)
        try:
            if new:
                self.table.add_columns({name: f"CAST(NULL AS {kind})" for name, kind in new.items()})
            rows = self._rows(documents, vectors)
            if replaces:
                merge = self.table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
                merge.execute(rows)
            else:
                self.table.add(rows)
        except (RuntimeError, OSError) as error:
            raise WorkError(f"LanceDB could not add to {self.folder}: {error}") from error
        self._next_row += len(documents)

    def finish(self) -> dict[str, Any]:
        """Put the small pieces of the additions together, and say what there is."""
        state = {"rows": self._next_row, "documents": self.table.count_rows()}
        before = find_state(self.folder)
        if before is None or {key: before[key] for key in state} != state:
            with self._reading():
                self.table.optimize(cleanup_older_than=KEEP_VERSIONS if before else SHORTLY)
            write_state(self.folder, state)
        return state

    def close(self) -> None:
        """Do nothing: every addition is whole by itself."""

    def search(self, queries: NDArray[np.float32], k: int, where: Where | None = None) -> list[list[Hit]]:
        """Compare with every document for which the condition holds, and compare what was found again in float64."""
        state = self.state
        with self._reading():
            words = condition(where, self.table.schema)
            if self.table.count_rows() != state["documents"]:  # somebody is adding, or was stopped
                words = f"_row < {state['rows']}" + (f" AND ({words})" if words else "")
        return [self._find(query, k, words, where) for query in queries]

    @cached_property
    def state(self) -> dict[str, Any]:
        """What was finished when it was first asked for.

        Raises:
            MissingPartError: Nothing was.
        """
        return read_state(self.folder)

    @cached_property
    def table(self) -> Any:
        """The table as it is when it is first asked for.

        Raises:
            MissingPartError: It is not there.
            CorruptError: It cannot be opened.
        """
        if not (self.folder / DATABASE / f"{TABLE}.lance").is_dir():
            raise MissingPartError(f"{self.folder / DATABASE} is missing: index the documents anew")
        with self._reading():
            return lancedb.connect(self.folder / DATABASE).open_table(TABLE)

    def _find(self, query: NDArray[np.float32], k: int, words: str, where: Where | None) -> list[Hit]:
        asked = self.table.search(query, vector_column_name="_vector").distance_type("dot").limit(k)
        asked = asked.select(["id", "title", "text", "_fields", "_row", "_vector", "_distance"])
        try:
            found = (asked.where(words) if words else asked).to_arrow()
        except ValueError as error:
            raise SettingError(f"LanceDB cannot read the condition {where!r}: {error}") from error
        except (RuntimeError, OSError) as error:
            raise CorruptError(f"{self.folder / DATABASE} cannot be read: {error}") from error
        flat = found["_vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        vectors = flat.reshape(-1, self.dimension)
        scores = products(np.broadcast_to(query, vectors.shape), vectors)
        order = np.lexsort((found["_row"].to_numpy(), -scores))
        rows = found.select(["id", "title", "text", "_fields"]).to_pylist()
        return [
            Hit(row["id"], score, row["text"], row["title"], json.loads(row["_fields"]))
            for row, score in ((rows[place], float(scores[place])) for place in order.tolist())
        ]

    def _rows(self, documents: Sequence[Document], vectors: NDArray[np.float32]) -> pa.Table:
        """Return documents and vectors in the columns of the table."""
        flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1))
        known: dict[str, Any] = {
            "_row": pa.array(range(self._next_row, self._next_row + len(documents)), pa.int64()),
            "_digest": pa.array([digest(document.to_json()) for document in documents], pa.binary()),
            "_fields": pa.array([json.dumps(document.fields, ensure_ascii=False) for document in documents]),
            "_vector": pa.FixedSizeListArray.from_arrays(flat, self.dimension),
        }
        schema = self.table.schema
        return pa.table([known.get(field.name, values_of(documents, field)) for field in schema], schema=schema)

    def _schema(self) -> pa.Schema:
        texts = [pa.field(name, pa.string()) for name in ("id", "title", "text")]
        own = {"_row": pa.int64(), "_digest": pa.binary(), "_fields": pa.string()}
        vector = pa.field("_vector", pa.list_(pa.float32(), self.dimension))
        return pa.schema([*texts, *(pa.field(name, kind) for name, kind in own.items()), vector])

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except AfterwordError:
            raise
        except (RuntimeError, OSError, ValueError) as error:
            raise CorruptError(f"{self.folder / DATABASE} cannot be read: {error}") from error
