"""Documents out of files of every kind."""

from __future__ import annotations

import csv
import gzip
import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterword.errors import CorruptError, InputError, MissingPartError, SettingError
from afterword.search.documents import Document, digest, read_documents
from afterword.search.settings import DocumentSettings

ROWS: list[dict[str, Any]] = [
    {"id": "a", "title": "Näme", "text": "first ☃", "source": "wiki"},
    {"id": "b", "title": "", "text": "second\nline", "source": "it's"},
]
EXPECTED = [
    Document("a", "first ☃", "Näme", {"source": "wiki"}),
    Document("b", "second\nline", "", {"source": "it's"}),
]


def read(*paths: object, **settings: Any) -> list[Document]:
    return list(read_documents([str(path) for path in paths], DocumentSettings(**settings)))


def jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write(path: Path) -> Path:
    """ROWS in the format that the name says."""
    if ".jsonl" in path.name:
        data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(ROWS[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            table.writeheader()
            table.writerows(ROWS)
    return path


@pytest.mark.parametrize("name", ["d.jsonl", "d.jsonl.gz", "d.csv", "d.tsv", "d.parquet"])
def test_every_format_gives_the_same_documents(name: str, tmp_path: Path) -> None:
    assert read(write(tmp_path / name)) == EXPECTED


def test_beirs_corpus_is_read_as_it_is(tmp_path: Path) -> None:
    rows = [{"_id": "4", "title": "T", "text": "x", "metadata": {"url": "u", "n": [1, 2]}}]
    assert read(jsonl(tmp_path / "corpus.jsonl", rows)) == [
        Document("4", "x", "T", {"metadata": {"url": "u", "n": [1, 2]}})
    ]


def test_several_files_come_one_after_the_other(tmp_path: Path) -> None:
    first, second = write(tmp_path / "1.csv"), jsonl(tmp_path / "2.jsonl", [{"_id": 7, "contents": "third"}])
    assert read(first, second) == [*EXPECTED, Document("7", "third")]


def test_lines_without_ids_have_those_of_their_contents(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("one\ntwo\none\n", encoding="utf-8")
    one, two, again = read(tmp_path / "d.txt")
    assert (one.text, two.text, again) == ("one", "two", one)
    assert one.id != two.id and len(one.id) == 16
    rows = [{"text": "x", "page": 1}, {"text": "x", "page": 2}]
    assert len({document.id for document in read(jsonl(tmp_path / "d.jsonl", rows))}) == 2


def test_columns_can_be_named(tmp_path: Path) -> None:
    rows = [{"k": "1", "id": "not me", "head": "H", "words": "w", "text": "not me", "more": 1}]
    path = jsonl(tmp_path / "d.jsonl", rows)
    (found,) = read(path, column="words", id_column="k", title_column="head", fields=("more",))
    assert found == Document("1", "w", "H", {"more": 1})


def test_of_a_parquet_file_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["1"], "text": ["x"], "blob": [b"\xff"], "n": [3]}), tmp_path / "d.parquet")
    with pytest.raises(InputError, match=r"d.parquet, row 1: column 'blob' holds bytes .*--fields"):
        read(tmp_path / "d.parquet")
    assert read(tmp_path / "d.parquet", fields=("n",)) == [Document("1", "x", "", {"n": 3})]


def test_times_and_decimals_of_parquet_become_text_and_nan_nothing(tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": ["x"],
            "day": [date(2026, 11, 30)],
            "at": [datetime(2026, 11, 30, 12, 1)],
            "price": [Decimal("1.50")],
            "score": [float("nan")],
        }
    )
    pq.write_table(table, tmp_path / "d.parquet")
    (found,) = read(tmp_path / "d.parquet")
    assert found.fields == {"day": "2026-11-30", "at": "2026-11-30 12:01:00", "price": "1.50", "score": None}


@pytest.mark.parametrize("title", [None, ""])
def test_no_title_is_no_title(title: str | None, tmp_path: Path) -> None:
    (found,) = read(jsonl(tmp_path / "d.jsonl", [{"id": "1", "title": title, "text": " x "}]))
    assert (found.title, found.content) == ("", "x")


def test_what_is_encoded_is_title_and_text() -> None:
    assert Document("1", "text", "Title").content == "Title text"
    assert Document("1", "", "Title").content == "Title"
    assert Document("1", " ", "").content == ""


@pytest.mark.parametrize(
    ("rows", "settings", "error", "words"),
    [
        ([{"a": "x", "b": "y"}], {}, SettingError, "which column of .* name it with --column; there are a, b"),
        ([{"body": "x", "content": "y"}], {}, SettingError, "name it with --column; there are body, content"),
        ([{"text": "x"}], {"column": "words"}, SettingError, "has no column 'words'; its columns are text"),
        ([{"text": "x"}], {"id_column": "key"}, SettingError, "has no column 'key'"),
        ([{"text": "x"}], {"title_column": "head"}, SettingError, "has no column 'head'"),
        ([{"text": "x"}], {"fields": ("a",)}, SettingError, "has no column 'a'"),
        ([{"text": 3}], {}, InputError, "d.jsonl:1: column 'text' holds a number, not a string"),
        ([{"text": None}], {}, InputError, "column 'text' holds null"),
        ([{"text": "x", "title": 3}], {}, InputError, "column 'title' holds a number"),
        ([{"id": "a", "text": "x"}, {"text": "y"}], {}, InputError, "d.jsonl:2: no column 'id'"),
        ([{"id": "", "text": "x"}], {}, InputError, "column 'id' holds an empty string, not an id"),
        ([{"id": True, "text": "x"}], {}, InputError, "holds true or false, not an id"),
        ([{"id": 1.5, "text": "x"}], {}, InputError, "holds a number, not an id"),
        ([{"text": "bad \ud800"}], {}, InputError, "d.jsonl:1: character .* lone surrogate"),
        ([{"text": "x", "n": {"k": "\udfff"}}], {}, InputError, "lone surrogate"),
        ([], {}, InputError, "is empty: there are no rows in it"),
    ],
)
def test_what_is_wrong_is_named(
    rows: list[Any], settings: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(error, match=words):
        read(path, **settings)


def test_a_file_that_is_not_there_is_known_before_the_first_document_is_asked_for() -> None:
    with pytest.raises(MissingPartError, match=r"there is no file \./nowhere.jsonl"):
        read_documents(["./nowhere.jsonl"])


def test_documents_come_as_a_stream(tmp_path: Path) -> None:
    """A fault far down the file is met when one comes there, not before."""
    path = tmp_path / "d.jsonl"
    path.write_text('{"text": "a"}\n' * 50 + "broken\n")
    documents = read_documents([str(path)])
    assert [next(documents).text for _ in range(50)] == ["a"] * 50
    with pytest.raises(InputError, match=r"d.jsonl:51: not JSON"):
        next(documents)


texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts, texts, texts, st.dictionaries(texts, st.none() | st.booleans() | st.integers() | texts | st.lists(texts)))
def test_a_document_survives_its_line(identity: str, text: str, title: str, fields: dict[str, Any]) -> None:
    document = Document(identity, text, title, fields)
    line = document.to_json()
    assert "\n" not in line
    assert Document.from_json(line, "here") == document
    assert digest(line) == digest(Document.from_json(line, "here").to_json())
    assert digest(line) != digest(Document(identity, text + "x", title, fields).to_json())


@pytest.mark.parametrize("line", ["", "[]", '{"id": "1"}', '{"id": 1, "text": "", "title": "", "fields": {}}', '"x"'])
def test_a_line_that_is_no_document_is_an_error(line: str) -> None:
    with pytest.raises(CorruptError, match="here holds a line that is no document"):
        Document.from_json(line, "here")
