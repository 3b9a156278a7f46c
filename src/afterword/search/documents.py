"""Documents, and how they come out of files."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, time
from decimal import Decimal
from hashlib import blake2b
from itertools import chain
from math import isnan
from typing import Any

from afterword.corpus.formats import kind_of
from afterword.corpus.readers import open_rows
from afterword.corpus.records import text_id, utf8
from afterword.errors import CorruptError, InputError, SettingError
from afterword.search.settings import DocumentSettings

TEXTS = ("contents", "content", "body", "passage", "document")
IDS = ("_id", "id", "doc_id")
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Document:
    """What is indexed and found.

    Attributes:
        id: Its name in the index.
        text: What it says.
        title: What stands before the text, or nothing.
        fields: Anything else that is known about it; JSON values.
    """

    id: str
    text: str
    title: str = ""
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def content(self) -> str:
        """What is encoded: title and text, as retrieval benchmarks join them."""
        return f"{self.title} {self.text}".strip()

    def to_json(self) -> str:
        """Return the document as one line of JSON, without a line end."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str, source: str) -> Document:
        """Read a document back.

        Raises:
            CorruptError: The line does not hold one.
        """
        try:
            values = json.loads(line)
        except ValueError:
            values = None
        kinds = {"id": str, "text": str, "title": str, "fields": dict}
        if not isinstance(values, dict) or {name: type(value) for name, value in values.items()} != kinds:
            raise CorruptError(f"{source} holds a line that is no document: {line[:60]!r}")
        return cls(**values)


def digest(line: str) -> bytes:
    """Return 16 bytes that change when anything about a document does."""
    return blake2b(utf8(line), digest_size=DIGEST_BYTES).digest()


def read_documents(sources: Sequence[str], settings: DocumentSettings | None = None) -> Iterator[Document]:
    """Read documents as a stream; the first of them before this returns, so that a wrong file is known at once.

    Args:
        sources: Files (JSONL, CSV, TSV, Parquet, or plain text with one document a line; all but Parquet also as
            `.gz`; BEIR's `corpus.jsonl` as it is), `-` for lines on standard input, or data sets on the hub.
        settings: Which columns hold what.

    Raises:
        InputError: There are no rows, or a row is broken; the message says where.
        SettingError: There is no such column (the others are listed) or format.
        MissingPartError: There is no such file.
    """
    settings = settings or DocumentSettings()
    documents = chain.from_iterable(_read(source, settings) for source in sources)
    first = next(documents, None)
    if first is None:
        raise InputError(f"{', '.join(sources)} is empty: there are no rows in it")
    return chain([first], documents)


@dataclass(frozen=True)
class _Columns:
    """The columns of a source."""

    text: str
    id: str | None
    title: str | None
    others: tuple[str, ...] | None

    @classmethod
    def choose(cls, names: Collection[str], settings: DocumentSettings, source: str) -> _Columns:
        for column in (settings.column, settings.id_column, settings.title_column, *(settings.fields or ())):
            if column is not None and column not in names:
                raise SettingError(f"{source} has no column {column!r}; its columns are {', '.join(names)}")
        title = settings.title_column or ("title" if "title" in names else None)
        identity = settings.id_column or next((name for name in IDS if name in names), None)
        return cls(_text_column(names, settings.column, source), identity, title, settings.fields)

    def names(self, there: Collection[str]) -> set[str]:
        if self.others is None:
            return set(there)
        return {self.text, *self.others, *(name for name in (self.id, self.title) if name is not None)}


def _text_column(names: Collection[str], asked: str | None, source: str) -> str:
    if asked is not None:
        return asked
    if "text" in names:
        return "text"
    guesses = [name for name in TEXTS if name in names]
    if len(guesses) != 1:
        listed = ", ".join(names)
        raise SettingError(f"which column of {source} holds the texts? name it with --column; there are {listed}")
    return guesses[0]


def _read(source: str, settings: DocumentSettings) -> Iterator[Document]:
    def wanted(names: list[str]) -> set[str]:
        return _Columns.choose(names, settings, source).names(names)

    columns: _Columns | None = None
    for where, row in open_rows(source, wanted):
        if columns is None:
            columns = _Columns.choose([str(name) for name in row], settings, source)
        yield _document(row, columns, where)


def _document(row: Mapping[str, object], columns: _Columns, where: str) -> Document:
    """Turn a row into a document; what is wrong with it is named by place and column."""
    text = _string(row, columns.text, where)
    title = ""
    if columns.title is not None and row.get(columns.title) is not None:
        title = _string(row, columns.title, where)
    taken = {columns.text, columns.id, columns.title}
    others = [name for name in row if name not in taken] if columns.others is None else columns.others
    fields = {str(name): _plain(row.get(name), str(name), where) for name in others}
    identity = _identity(row, columns.id, where) if columns.id is not None else None
    document = Document(identity or "", text, title, fields)
    line = document.to_json()
    utf8(line, where)
    return document if identity is not None else Document(text_id(line), text, title, fields)


def _string(row: Mapping[str, object], column: str, where: str) -> str:
    value = _cell(row, column, where)
    if not isinstance(value, str):
        raise InputError(f"column {column!r} holds {kind_of(value)}, not a string", where)
    return value


def _identity(row: Mapping[str, object], column: str, where: str) -> str:
    value = _cell(row, column, where)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InputError(f"column {column!r} holds {kind_of(value)}, not an id", where)
    return str(value)


def _cell(row: Mapping[str, object], column: str, where: str) -> object:
    if column not in row:
        raise InputError(f"no column {column!r}; the columns here are {', '.join(map(str, row))}", where)
    return row[column]


def _plain(value: object, column: str, where: str) -> Any:
    """Return a value as JSON has it; times and exact decimals of Parquet become text."""
    if isinstance(value, date | time | Decimal):  # a datetime is a date
        return str(value)
    if isinstance(value, float) and isnan(value):  # how pandas writes that there is nothing
        return None
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"column {column!r} holds {kind_of(value)} that JSON cannot ({error}): name the columns to keep "
            "with --fields",
            where,
        ) from error
