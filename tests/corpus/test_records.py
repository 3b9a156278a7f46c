"""Records are one line of JSON, and a line that is none says why."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterword.corpus.records import Query, Response, text_id
from afterword.errors import InputError

RESPONSE = {"id": "a", "query": "why?", "text": "because", "n_tokens": 3, "cut": False}


def test_lines_are_what_json_makes_of_the_fields() -> None:
    assert Query("q1", "café ☃\nnew").to_json() == '{"id": "q1", "text": "café ☃\\nnew"}'
    assert json.loads(Response("a", "why?", "because", 3, False).to_json()) == RESPONSE


@given(st.text(), st.text(), st.text(), st.integers(0), st.booleans())
def test_records_come_back(identity: str, query: str, text: str, n_tokens: int, cut: bool) -> None:
    response = Response(identity, query, text, n_tokens, cut)
    line = response.to_json()
    assert "\n" not in line
    assert Response.from_json(line) == response
    assert Query.from_json(Query(identity, text).to_json()) == Query(identity, text)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"text": None}, "'text' of type NoneType instead of str"),
        ({"n_tokens": 3.0}, "'n_tokens' of type float instead of int"),
        ({"n_tokens": True}, "'n_tokens' of type bool instead of int"),
        ({"cut": 0}, "'cut' of type int instead of bool"),
        ({"extra": 1}, "an unknown field 'extra'"),
    ],
)
def test_wrong_fields_are_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named) as caught:
        Response.from_json(json.dumps({**RESPONSE, **change}))
    assert caught.value.item == "a"


@pytest.mark.parametrize("field", list(RESPONSE))
def test_missing_field_is_named(field: str) -> None:
    line = json.dumps({key: value for key, value in RESPONSE.items() if key != field})
    with pytest.raises(InputError, match=f"no field '{field}'"):
        Response.from_json(line)


@pytest.mark.parametrize("line", ["", "[]", "null", '{"id": "a"', "3"])
def test_what_is_no_object_is_refused(line: str) -> None:
    with pytest.raises(InputError, match="query is"):
        Query.from_json(line)


def test_text_id_is_the_hash_that_other_tools_compute() -> None:
    # printf 'café' | b2sum -l 64
    assert text_id("café") == "5777a2bd3192d7e3"
    with pytest.raises(InputError, match=r"character 4 is a lone surrogate \(\\ud800\)"):
        text_id("ok \ud800 bad")
