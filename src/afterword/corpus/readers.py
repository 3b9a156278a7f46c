"""Texts from whatever holds them: files, standard input, or a data set on the hub."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from afterword.corpus.formats import LINE_FORMATS, Row, file_rows, kind_of, plain_rows
from afterword.corpus.records import utf8
from afterword.errors import InputError, MissingPartError, SettingError

GUESSED_COLUMNS = ("query", "question", "prompt", "instruction")
_FILE_SUFFIXES = {*LINE_FORMATS, ".parquet", ".json", ".gz", ".zip", ".xlsx"} - {""}
"""Endings that no data set on the hub has: without such a file there is nothing to look for."""


def read_rows(
    source: str,
    column: str | None = None,
    id_column: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Iterator[tuple[str | None, str]]:
    """Read the texts of one column, row by row.

    Args:
        source: A file (JSONL, CSV, TSV, Parquet, or plain text with one text a line; all but Parquet also as `.gz`),
            `-` for plain text on standard input, or the name of a data set on the hub.
        column: Column to read; None takes `text`, or else the only one of `GUESSED_COLUMNS`.
        id_column: Column with an id for each text.
        split: Split of a data set on the hub.
        revision: Commit, branch or tag of a data set on the hub.

    Yields:
        Pairs of an id, None without `id_column`, and a text.

    Raises:
        InputError: A row is broken, or is not a string there; or there are no rows. The message says where.
        SettingError: There is no such column (the others are listed), format or data set.
        MissingPartError: There is no such file.
        CorruptError: A compressed or a Parquet file is damaged.
    """

    def wanted(names: list[str]) -> set[str]:
        ids = {choose_column(names, id_column, source)} if id_column is not None else set()
        return {choose_column(names, column, source), *ids}

    rows = open_rows(source, wanted, split, revision)
    first = next(rows, None)
    if first is None:
        raise InputError(f"{source} is empty: there are no rows in it")
    chosen = choose_column(first[1], column, source)
    for where, row in chain([first], rows):
        text = _text(row, chosen, where)
        yield None if id_column is None else _id(row, id_column, where), text


def choose_column(columns: Iterable[str], column: str | None, source: str) -> str:
    """Return the column to read texts from.

    Args:
        columns: Names of the columns that there are.
        column: The one that was asked for; None takes `text`, or else the only one of `GUESSED_COLUMNS`.
        source: Name of the source, for the message.

    Raises:
        SettingError: There is no such column, or no obvious one; those that exist are listed.
    """
    names = [str(name) for name in columns]
    listed = ", ".join(names)
    if column is not None:
        if column not in names:
            raise SettingError(f"{source} has no column {column!r}; its columns are {listed}")
        return column
    if "text" in names:
        return "text"
    guesses = [name for name in GUESSED_COLUMNS if name in names]
    if len(guesses) != 1:
        raise SettingError(f"which column of {source} holds the texts? name it with --column; there are {listed}")
    return guesses[0]


def open_rows(
    source: str, wanted: Callable[[list[str]], set[str]] = set, split: str = "train", revision: str | None = None
) -> Iterator[Row]:
    """Find out what a source is, and start reading whole rows from it.

    Args:
        source: As for `read_rows`.
        wanted: Picks the columns to read from those of a Parquet file; all others are always read whole.
        split: Split of a data set on the hub.
        revision: Commit, branch or tag of a data set on the hub.

    Returns:
        Where each row stands, and its values by column.

    Raises:
        SettingError: The source is a folder, or of no format known here.
        MissingPartError: There is no such file.
    """
    if source == "-":
        return plain_rows(source)
    path = Path(source).expanduser()
    if not path.exists():
        if _looks_like_file(source):
            raise MissingPartError(f"there is no file {source}")
        return _hub(source, split, revision)
    if path.is_dir():
        raise SettingError(f"{source!r} is a folder: name a file in it")
    return file_rows(str(path), wanted)


def _looks_like_file(source: str) -> bool:
    return source.startswith((".", "/", "~", "\\")) or Path(source.lower()).suffix in _FILE_SUFFIXES


def _hub(source: str, split: str, revision: str | None) -> Iterator[Row]:
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError

    try:
        rows = load_dataset(source, split=split, revision=revision, streaming=True)
        for number, row in enumerate(rows, 1):
            yield f"{source}, {split} row {number}", row
    except DatasetNotFoundError as error:
        raise SettingError(f"{source} is no file, and the hub shows no such data set: {error}") from error
    except ConnectionError as error:
        raise SettingError(f"{source} is no file, and the hub could not be reached to look for it: {error}") from error
    except Exception as error:
        # Behind this call stand a dozen libraries, each with its own errors (no such split, no network half-way, …).
        raise SettingError(f"{source} could not be read from the hub: {type(error).__name__}: {error}") from error


def _text(row: Mapping[str, object], column: str, where: str) -> str:
    value = _cell(row, column, where)
    if not isinstance(value, str):
        raise InputError(f"column {column!r} holds {kind_of(value)}, not a string", where)
    utf8(value, where)
    return value


def _id(row: Mapping[str, object], column: str, where: str) -> str:
    value = _cell(row, column, where)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InputError(f"column {column!r} holds {kind_of(value)}, not an id", where)
    utf8(str(value), where)
    return str(value)


def _cell(row: Mapping[str, object], column: str, where: str) -> object:
    if column not in row:
        raise InputError(f"no column {column!r}; the columns here are {', '.join(map(str, row))}", where)
    return row[column]
