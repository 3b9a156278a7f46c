"""What one line of a corpus holds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from typing import Any

from afterword.errors import InputError


@dataclass(frozen=True, slots=True)
class Query:
    """A text that somebody asked."""

    id: str
    text: str

    def to_json(self) -> str:
        """Return the record as one line of JSON, without a line end."""
        return _to_json(self)

    @classmethod
    def from_json(cls, line: str) -> Query:
        """Read a record back.

        Raises:
            InputError: The line is not a JSON object with exactly these fields and types; the fields are named.
        """
        return cls(**_values(cls, line))


@dataclass(frozen=True, slots=True)
class Response:
    """What the language model answered to the query of the same id.

    Attributes:
        id: Id of the query.
        query: Text of the query.
        text: Text of the answer.
        n_tokens: Length of the answer in tokens of the model that wrote it, its end token not counted.
        cut: Whether the length limit ended the answer, so that no end token belongs after it.
    """

    id: str
    query: str
    text: str
    n_tokens: int
    cut: bool

    def to_json(self) -> str:
        """Return the record as one line of JSON, without a line end."""
        return _to_json(self)

    @classmethod
    def from_json(cls, line: str) -> Response:
        """Read a record back.

        Raises:
            InputError: The line is not a JSON object with exactly these fields and types; the fields are named.
        """
        return cls(**_values(cls, line))


def text_id(text: str) -> str:
    """Return an id for a text that has none: 16 hexadecimal digits of its BLAKE2b hash.

    Raises:
        InputError: The text holds a lone surrogate.
    """
    return blake2b(utf8(text), digest_size=8).hexdigest()


def utf8(text: str, item: int | str | None = None) -> bytes:
    r"""Encode a text, and say what is wrong with one that cannot be.

    A Python string can hold half of a surrogate pair (JSON allows to write `"\ud800"`), which is no character and has
    no UTF-8 form. It would otherwise surface far from its source, as a riddle about codecs.

    Args:
        text: Any text.
        item: Where the text stands, for the message.

    Raises:
        InputError: The text holds a lone surrogate; its place is named.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise InputError(f"character {error.start + 1} is a lone surrogate ({half}), not text", item) from error


def _to_json(record: Query | Response) -> str:
    return json.dumps(asdict(record), ensure_ascii=False)


def _values(kind: type[Query] | type[Response], line: str) -> dict[str, Any]:
    """Parse a line and hold it against the fields of a record."""
    name = kind.__name__.lower()
    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"this {name} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"a {name} is a JSON object, found {type(values).__name__}")
    expected = {field.name: str(field.type) for field in fields(kind)}
    if faults := _faults(values, expected):
        raise InputError(f"this {name} has {'; '.join(faults)}; its fields are {', '.join(expected)}", values.get("id"))
    return values


def _faults(values: dict[str, Any], expected: dict[str, str]) -> list[str]:
    """Name what is missing, unknown or of another type; types are compared exactly, since `True` is an `int` too."""
    missing = [f"no field {key!r}" for key in expected if key not in values]
    unknown = [f"an unknown field {key!r}" for key in values if key not in expected]
    wrong = [
        f"a field {key!r} of type {type(values[key]).__name__} instead of {kind}"
        for key, kind in expected.items()
        if key in values and type(values[key]).__name__ != kind
    ]
    return missing + unknown + wrong
