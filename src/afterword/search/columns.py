"""Fields of documents as columns of a table, and conditions on them in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from afterword.errors import InputError, SettingError
from afterword.search.documents import Document
from afterword.search.store import Where
from afterword.search.where import equalities

OWN = ("id", "title", "text")
KINDS = {str: "string", bool: "boolean", int: "double", float: "double"}
"""SQL's type of a value. All numbers are of one type, so an integer beyond 2⁵³ is found with its neighbours."""
ARROW = {"string": pa.string(), "boolean": pa.bool_(), "double": pa.float64()}
WORDS = {"string": "texts", "boolean": "true or false", "double": "numbers"}


def columns_for(documents: Sequence[Document], schema: pa.Schema) -> dict[str, str]:
    """Return the fields that are not columns yet, each with its type in SQL.

    Raises:
        InputError: A field holds one kind of value here and held another in an earlier document.
    """
    kinds = {name: kind for name in schema.names if (kind := _kind_of_column(schema, name)) and is_column(name)}
    new: dict[str, str] = {}
    for document in documents:
        for name, value in document.fields.items():
            kind = KINDS.get(type(value))
            if kind is None or not is_column(name):
                continue
            known = kinds.setdefault(name, kind)
            if name not in schema.names:
                new[name] = known
            if known != kind:
                raise InputError(
                    f"the field {name!r} holds {WORDS[kind]} here and {WORDS[known]} in an earlier document, and a "
                    "column holds one kind: mend the data, or name the fields to keep with --fields",
                    document.id,
                )
    return new


def values_of(documents: Sequence[Document], field: pa.Field) -> pa.Array:
    """Return a column of the table for documents."""
    if field.name in OWN:
        return pa.array([getattr(document, field.name) for document in documents], pa.string())
    values = [document.fields.get(field.name) for document in documents]
    if field.type == pa.float64():
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, field.type)


def condition(where: Where | None, schema: pa.Schema) -> str:
    """Return a condition in SQL, or nothing; words are SQL already, and values become quoted literals.

    Raises:
        SettingError: A field is none of those that can be asked for.
    """
    if where is None or isinstance(where, str):
        return where or ""
    return " AND ".join(_equality(name, value, schema) for name, value in equalities(where).items())


def is_column(name: str) -> bool:
    """Return whether a field can be a column: names with `.` or a backtick cannot, and `_…` are our own."""
    return bool(name) and not name.startswith("_") and not {".", "`", "\0"} & set(name) and name not in OWN


def _equality(name: str, value: Any, schema: pa.Schema) -> str:
    if name not in OWN and not is_column(name):
        raise SettingError(f"the field {name!r} cannot be asked for in LanceDB, because of its name")
    if name not in schema.names:
        return "true" if value is None else "false"
    if value is None:
        return f"`{name}` IS NULL"
    if KINDS[type(value)] != _kind_of_column(schema, name):
        return "false"
    if isinstance(value, str):
        return f"`{name}` = '" + value.replace("'", "''") + "'"
    return f"`{name}` = {str(value).lower() if isinstance(value, bool) else repr(value)}"


def _kind_of_column(schema: pa.Schema, name: str) -> str | None:
    found = schema.field(name).type
    return next((kind for kind, arrow in ARROW.items() if arrow == found), None)
