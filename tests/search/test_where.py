"""Conditions in words and as values, and what they hold for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterword.errors import SettingError
from afterword.search.documents import Document
from afterword.search.where import equalities, holds

DOCUMENT = Document("d1", "some text", "a title", {"lang": "it's", "year": 1999, "ok": True, "none": None, "a b": "x"})


@pytest.mark.parametrize(
    ("where", "values"),
    [
        ("lang = 'it''s'", {"lang": "it's"}),
        ("lang='de'", {"lang": "de"}),
        ("year = 1999", {"year": 1999}),
        ("year = -1.5e3", {"year": -1500.0}),
        ("ok = true AND none = NULL", {"ok": True, "none": None}),
        ("lang = 'a AND b' and year = 3", {"lang": "a AND b", "year": 3}),
        ("  `a b` = 'x'  ", {"a b": "x"}),
        ("größe-2 = '☃'", {"größe-2": "☃"}),
        ("lang = ''", {"lang": ""}),
        ("year = 3 AND year = 3", {"year": 3}),
        ({"lang": "x' OR 1 = 1", "year": 2}, {"lang": "x' OR 1 = 1", "year": 2}),
    ],
)
def test_words_are_read_as_values(where: Any, values: dict[str, Any]) -> None:
    assert equalities(where) == values


@pytest.mark.parametrize(
    "where",
    [
        "",
        "lang",
        "lang = ",
        "lang = 'x",
        "lang = 'x' OR year = 3",
        "lang > 3",
        "lang = x",
        'lang = "x"',
        "lang = 'x'; DROP TABLE documents",
        "lang = 'x' AND",
        "lang = [1]",
        "lang = 'x'year = 3",
    ],
)
def test_anything_else_is_refused_with_what_is_understood(where: str) -> None:
    with pytest.raises(SettingError, match="cannot read the condition"):
        equalities(where)


def test_two_values_of_a_field_are_a_mistake() -> None:
    with pytest.raises(SettingError, match="two values of year"):
        equalities("year = 3 AND year = 4")


@pytest.mark.parametrize("value", [["x"], {"x": 1}, b"x", 1j])
def test_a_value_that_cannot_be_compared_is_named(value: object) -> None:
    with pytest.raises(SettingError, match="the value wanted for 'lang' is a "):
        equalities({"lang": value})


@pytest.mark.parametrize(
    ("wanted", "is_held"),
    [
        ({"lang": "it's"}, True),
        ({"lang": "its"}, False),
        ({"year": 1999.0}, True),
        ({"year": "1999"}, False),
        ({"ok": True}, True),
        ({"ok": 1}, False),
        ({"none": None}, True),
        ({"absent": None}, True),
        ({"absent": "x"}, False),
        ({"id": "d1", "title": "a title", "text": "some text"}, True),
        ({"id": "d1", "year": 2000}, False),
        ({}, True),
    ],
)
def test_what_holds(wanted: dict[str, Any], is_held: bool) -> None:
    assert holds(DOCUMENT, wanted) is is_held


@given(st.text())
def test_every_text_can_be_asked_for_in_words(text: str) -> None:
    assert equalities("lang = '" + text.replace("'", "''") + "'") == {"lang": text}
