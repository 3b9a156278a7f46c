"""The four forms of `input`: a text, a list of texts, token ids, a list of them."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticCustomError

_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_TEXT = {"type": "string", "minLength": 1}
INPUT_SCHEMA = {
    "title": "Input",
    "description": (
        "A text, a list of texts, the token ids of a text, or a list of them. Ids are those of this model's own "
        "tokenizer; they are turned into text first, without control tokens. A text that holds nothing but white "
        "space, ids without text, and a list without items are refused."
    ),
    "anyOf": [
        _TEXT,
        {"type": "array", "items": _TEXT, "minItems": 1},
        _IDS,
        {"type": "array", "items": _IDS, "minItems": 1},
    ],
}


def check_input(value: Any) -> list[str] | list[list[int]]:
    """Return a list of texts, or of lists of ids, for any of the four forms.

    Raises:
        PydanticCustomError: It is none of them; the first item that does not fit is named.
    """
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise _wrong(f"input is {_kind(value)}: it must be a text, a list of texts, token ids, or lists of token ids")
    if not value:
        raise _wrong("input is a list without items: there is nothing to embed")
    if all(isinstance(item, str) for item in value):
        return value
    if all(type(item) is int for item in value):
        return [value]
    first = value[0]
    if not isinstance(first, str | list) and type(first) is not int:
        raise _wrong(f"item 0 is {_kind(first)}: it must be a text or token ids")
    for index, item in enumerate(value):
        if type(item) is not type(first):
            raise _wrong(f"item {index} is {_kind(item)} and item 0 is {_kind(first)}: all items must be of one kind")
        odd = [part for part in item if type(part) is not int] if isinstance(item, list) else []
        if odd:
            raise _wrong(f"item {index} holds {_kind(odd[0])} among its token ids: an id is a whole number")
    return value


def _kind(value: Any) -> str:
    names = {
        str: "a text",
        int: "a number",
        float: "a fraction",
        bool: "true or false",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "null")


def _wrong(message: str) -> PydanticCustomError:
    return PydanticCustomError("input", "{words}", {"words": message})
