"""Conditions on documents: values by field, or `field = 'x' AND other = 3` in words.

Stores that read documents one by one take nothing but equality. LanceDB takes its own SQL, and values by field are
written for it with every quote doubled, so that what a value holds can never become a part of the condition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from afterword.errors import SettingError
from afterword.search.documents import Document
from afterword.search.store import Where

_ONE = re.compile(r"\s*(?:`(?P<quoted>[^`]+)`|(?P<bare>\w[\w-]*))\s*=\s*(?P<value>'(?:[^']|'')*'|[^\s']+)\s*")
_AND = re.compile(r"AND\b", re.IGNORECASE)
_OWN = ("id", "title", "text")


def equalities(where: Where) -> dict[str, Any]:
    """Return a condition as values by field.

    Raises:
        SettingError: It is more than equality, or asks for a value that is no text, number, true, false or null.
    """
    if isinstance(where, Mapping):
        return {str(name): _scalar(name, value) for name, value in where.items()}
    found: dict[str, Any] = {}
    at = 0
    while True:
        part = _ONE.match(where, at)
        if part is None:
            raise SettingError(_help(where))
        name = part["quoted"] or part["bare"]
        value = _literal(part["value"], where)
        if name in found and found[name] != value:
            raise SettingError(f"the condition {where!r} asks for two values of {name}: nothing can have both")
        found[name] = value
        if part.end() == len(where):
            return found
        joint = _AND.match(where, part.end())
        if joint is None:
            raise SettingError(_help(where))
        at = joint.end()


def holds(document: Document, wanted: Mapping[str, Any]) -> bool:
    """Return whether a document has all values; 1 equals 1.0, and neither equals true or "1"."""
    return all(_same(_value(document, name), value) for name, value in wanted.items())


def _value(document: Document, name: str) -> Any:
    return getattr(document, name) if name in _OWN else document.fields.get(name)


def _same(found: Any, wanted: Any) -> bool:
    return isinstance(found, bool) is isinstance(wanted, bool) and bool(found == wanted)


def _scalar(name: object, value: object) -> Any:
    if value is not None and not isinstance(value, str | int | float | bool):
        raise SettingError(
            f"the value wanted for {name!r} is a {type(value).__name__}: give a text, a number or a bool"
        )
    return value


def _literal(text: str, where: str) -> Any:
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    try:
        value = json.loads(text.lower())
    except ValueError:
        value = ()
    if value is not None and not isinstance(value, int | float):
        raise SettingError(_help(where))
    return value


def _help(where: str) -> str:
    return (
        f"cannot read the condition {where!r}: write field = 'x' AND other = 3, with '' for a quote inside; "
        "an index made with --store lancedb takes SQL"
    )
