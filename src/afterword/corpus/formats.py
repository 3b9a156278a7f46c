"""Rows out of files: one function a format, from a path to rows.

Each row comes with a name for where it stands, so that a fault in the data is reported by file and line. Nothing is
held in memory but the row at hand.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from afterword.errors import CorruptError, InputError, SettingError

Row = tuple[str, Mapping[str, object]]
"""Where a row stands, and its values by column."""

_LARGEST_CELL = 2**31 - 1


def plain_rows(source: str) -> Iterator[Row]:
    """Read one text a line; the column is called `text`."""
    for where, line in _lines(source):
        yield where, {"text": line.rstrip("\r\n")}


def json_rows(source: str) -> Iterator[Row]:
    """Read one JSON object a line; empty lines are passed over."""
    for where, line in _lines(source):
        if not line.strip():
            continue
        try:
            row = json.loads(line.rstrip())
        except (ValueError, RecursionError) as error:
            raise InputError(f"not JSON: {str(error).replace('line 1 column', 'column')}", where) from error
        if not isinstance(row, dict):
            raise InputError(f"a line holds a JSON object, found {kind_of(row)}", where)
        yield where, row


def table_rows(source: str, delimiter: str) -> Iterator[Row]:
    """Read a table whose first row names the columns; a cell in quotes may hold line ends."""
    # The limit of the csv module is for the whole process; a long document in some other column should not end us.
    csv.field_size_limit(_LARGEST_CELL)
    table = csv.reader((line for _, line in _lines(source)), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    while True:
        where = f"{source}:{table.line_num + 1}"
        try:
            cells = next(table, None)
        except csv.Error as error:
            raise InputError(f"the row that starts here is broken: {error}", where) from error
        if cells is None:
            return
        if header is None:
            header = cells
        elif cells:
            if len(cells) != len(header):
                raise InputError(f"{len(cells)} cells, but the first line names {len(header)} columns", where)
            yield where, dict(zip(header, cells, strict=True))


def parquet_rows(source: str, wanted: Callable[[list[str]], set[str]]) -> Iterator[Row]:
    """Read some columns of a Parquet file: of those that it has, the ones that `wanted` picks."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(source) as file:
            for batch in file.iter_batches(columns=sorted(wanted(file.schema_arrow.names))):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{source}, row {number}", row
    except UnicodeDecodeError as error:
        raise InputError("a string is not UTF-8", f"{source}, row {number + 1} or later") from error
    except (ArrowException, OSError) as error:
        raise CorruptError(f"{source} cannot be read as Parquet: {error}") from error


def _lines(source: str) -> Iterator[tuple[str, str]]:
    """Yield where each line stands, and the line with its end: UTF-8 whatever the locale says, no byte order mark."""
    shown = "<stdin>" if source == "-" else source
    for number, raw in enumerate(_raw_lines(source), 1):
        where = f"{shown}:{number}"
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            found = f"byte {error.start + 1} of the line is 0x{raw[error.start]:02x}"
            raise InputError(f"not UTF-8 ({found}): save the file as UTF-8", where) from error
        if number == 1:
            line = line.removeprefix("\ufeff")
        if line:
            yield where, line


def _raw_lines(source: str) -> Iterator[bytes]:
    if source == "-":
        yield from sys.stdin.buffer
        return
    try:
        with gzip.open(source) if source.lower().endswith(".gz") else Path(source).open("rb") as file:
            yield from file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorruptError(f"{source} is damaged, or was not copied to its end: {error}") from error
    except OSError as error:
        raise SettingError(f"{source} cannot be read: {error.strerror or error}") from error


def kind_of(value: object) -> str:
    """Name what a value is, in words of JSON."""
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), "an empty string" if value == "" else type(value).__name__)


LINE_FORMATS: dict[str, Callable[[str], Iterator[Row]]] = {
    "": plain_rows,
    ".txt": plain_rows,
    ".jsonl": json_rows,
    ".ndjson": json_rows,
    ".csv": partial(table_rows, delimiter=","),
    ".tsv": partial(table_rows, delimiter="\t"),
}
"""Reader by suffix; each also reads the file compressed, with `.gz` behind that suffix."""


def file_rows(source: str, wanted: Callable[[list[str]], set[str]] = set) -> Iterator[Row]:
    """Read a file of any format known here, told by its ending.

    Args:
        source: The file.
        wanted: Picks the columns to read from those of a Parquet file; all others are always read whole.

    Raises:
        SettingError: The ending is of no format known here.
    """
    suffix = format_of(source)
    if suffix == ".parquet":
        return parquet_rows(source, wanted)
    if suffix not in LINE_FORMATS:
        known = ", ".join(sorted(LINE_FORMATS.keys() - {""}))
        raise SettingError(f"{source} is of no format known here: .parquet, or {known}, the latter also as .gz")
    return LINE_FORMATS[suffix](source)


def format_of(source: str) -> str:
    """Return the ending that names the format, in lower case, with `.gz` looked through."""
    name = Path(source.lower())
    return name.suffix if name.suffix != ".gz" else Path(name.stem).suffix
