"""Encoding a stream of texts into a file, in memory that does not grow with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afterword.errors import InputError, SettingError

CHUNK = 1024
Encode = Callable[[list[str]], Any]


def encode_file(
    encode: Encode,
    rows: Iterable[tuple[str | None, str]],
    out: str | Path,
    dimension: int,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Encode rows as they come and write them to `.npy` (vectors in input order) or `.parquet` (id and embedding).

    The file appears under its name when it is whole. Beside a `.npy` the ids go into `NAME.ids.txt`, one a line, where
    the rows have any.

    Args:
        encode: Turns a list of texts into a matrix.
        rows: Pairs of an id, or None, and a text.
        out: The file.
        dimension: Width of the vectors.
        progress: Called with the number of texts done.

    Returns:
        How many texts were encoded.

    Raises:
        InputError: An id has a line break and cannot be written beside a `.npy`.
        SettingError: The name ends in neither, or no file can be written there.
    """
    path = Path(out)
    kinds: dict[str, type[NpyFile] | type[ParquetFile]] = {".npy": NpyFile, ".parquet": ParquetFile}
    if path.suffix not in kinds:
        raise SettingError(f"{out}: vectors are written to a .npy or a .parquet file")
    if path.is_dir():
        raise SettingError(f"{out} is a folder: name a file in it")
    writer, count = kinds[path.suffix](path, dimension), 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer.part.touch()
    except OSError as error:
        raise SettingError(f"{out} cannot be written: {error.strerror or error}") from error
    with writer as file:
        for chunk in _chunks(rows):
            ids = [str(count + i) if identity is None else identity for i, (identity, _) in enumerate(chunk)]
            file.append(ids, encode([text for _, text in chunk]))
            file.has_ids |= chunk[0][0] is not None
            count += len(chunk)
            if progress:
                progress(len(chunk))
    return count


class NpyFile:
    """A `.npy` file of unknown length: numpy leaves room in the header for the number of rows, filled in at the end."""

    def __init__(self, path: Path, dimension: int) -> None:
        self.path, self.dimension, self.rows, self.has_ids = path, dimension, 0, False
        self.part, self.id_part = path.with_name(f".{path.name}.part"), path.with_name(f".{path.name}.ids.part")

    def __enter__(self) -> NpyFile:
        self.file, self.ids = self.part.open("wb"), self.id_part.open("w", encoding="utf-8")
        self._header()
        return self

    def append(self, ids: list[str], vectors: NDArray[np.float32]) -> None:
        """Add rows. *Shape:* `(B, d)`."""
        broken = next((identity for identity in ids if "\n" in identity or "\r" in identity), None)
        if broken is not None:
            raise InputError(
                f"the id {broken!r} has a line break, and ids are written one a line: write a .parquet file"
            )
        self.file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
        self.ids.writelines(f"{identity}\n" for identity in ids)
        self.rows += len(ids)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.file.seek(0)
            self._header()
        self.file.close()
        self.ids.close()
        if kind is None:
            beside = self.path.with_suffix(".ids.txt")
            beside.unlink(missing_ok=True)  # those of an earlier file of this name
            self.part.replace(self.path)
            if self.has_ids:
                self.id_part.replace(beside)
        self.part.unlink(missing_ok=True)
        self.id_part.unlink(missing_ok=True)

    def _header(self) -> None:
        shape = (self.rows, self.dimension)
        np.lib.format.write_array_header_1_0(self.file, {"descr": "<f4", "fortran_order": False, "shape": shape})


class ParquetFile:
    """A Parquet file with the columns `id` and `embedding`."""

    def __init__(self, path: Path, dimension: int) -> None:
        self.path, self.dimension, self.has_ids = path, dimension, False
        self.part = path.with_name(f".{path.name}.part")

    def __enter__(self) -> ParquetFile:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.schema = pa.schema([("id", pa.string()), ("embedding", pa.list_(pa.float32(), self.dimension))])
        self.writer: Any = pq.ParquetWriter(self.part, self.schema)
        return self

    def append(self, ids: list[str], vectors: NDArray[np.float32]) -> None:
        """Add rows. *Shape:* `(B, d)`."""
        import pyarrow as pa

        flat = pa.array(np.ascontiguousarray(vectors).reshape(-1), type=pa.float32())
        embeddings = pa.FixedSizeListArray.from_arrays(flat, self.dimension)
        self.writer.write_table(pa.table([pa.array(ids, pa.string()), embeddings], schema=self.schema))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.writer.close()
        if kind is None:
            self.part.replace(self.path)
        self.part.unlink(missing_ok=True)


def _chunks(rows: Iterable[tuple[str | None, str]]) -> Iterator[list[tuple[str | None, str]]]:
    iterator = iter(rows)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk
