"""Every format gives the same rows, and every fault is named with its place."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import afterword
from afterword.corpus.readers import read_rows
from afterword.errors import AfterwordError, CorruptError, InputError, MissingPartError, SettingError

SOURCE = str(Path(afterword.__path__[0]).parent)
TEXTS = ["What is snow?", 'She said "café", twice', "☃ 👩‍👩‍👧 日本", "a\u2028b"]
ROWS = [{"id": f"q{i}", "text": text, "more": i} for i, text in enumerate(TEXTS)]


def jsonl(path: Path) -> None:
    path.write_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode())


def escaped_jsonl(path: Path) -> None:
    path.write_bytes("\r\n".join(json.dumps(row) for row in ROWS).encode())


def separated(delimiter: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        cells = ['"' + text.replace('"', '""') + '"' for text in TEXTS]
        lines = [delimiter.join(["id", "text", "more"])]
        lines += [delimiter.join([f"q{i}", cell, str(i)]) for i, cell in enumerate(cells)]
        path.write_bytes("\r\n".join(lines).encode())

    return write


def parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(ROWS), path)


def plain(path: Path) -> None:
    path.write_bytes("\n".join(TEXTS).encode())


WRITERS = {
    "a.jsonl": jsonl,
    "b.jsonl": escaped_jsonl,
    "a.ndjson": jsonl,
    "a.csv": separated(","),
    "a.tsv": separated("\t"),
    "A.CSV": separated(","),
    "a.txt": plain,
    "no_suffix": plain,
}


def rows(*arguments: str | None, **named: str | None) -> list[tuple[str | None, str]]:
    return list(read_rows(*arguments, **named))  # type: ignore[arg-type]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", WRITERS)
def test_each_format_gives_the_same_texts(tmp_path: Path, name: str, bom: bytes, compressed: bool) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    data = bom + path.read_bytes()
    path.write_bytes(data)
    if compressed:
        path = tmp_path / f"{name}.gz"
        path.write_bytes(gzip.compress(data))
    assert rows(str(path)) == [(None, text) for text in TEXTS]
    if not name.endswith((".txt", "no_suffix")):
        assert rows(str(path), "text", "id") == [(f"q{i}", text) for i, text in enumerate(TEXTS)]


def test_parquet_gives_the_same_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet(path)
    assert rows(str(path)) == [(None, text) for text in TEXTS]
    assert rows(str(path), "text", "id") == [(f"q{i}", text) for i, text in enumerate(TEXTS)]
    assert rows(str(path), None, "more") == [(str(i), text) for i, text in enumerate(TEXTS)]


def test_standard_input_is_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    data = '{"not": "parsed"}\r\n\ncafé'.encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))
    assert rows("-") == [(None, '{"not": "parsed"}'), (None, ""), (None, "café")]


def test_broken_standard_input_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good\nb\xe9d\n")))
    with pytest.raises(InputError, match=r"<stdin>:2: .*byte 2 of the line is 0xe9"):
        rows("-")


def test_csv_cells_in_quotes_hold_line_ends_and_the_next_fault_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text,n\n"two\nlines, one cell",1\n\n"x",2\nshort\n', encoding="utf-8")
    found = read_rows(str(path))
    assert next(found) == (None, "two\nlines, one cell")
    assert next(found) == (None, "x")
    with pytest.raises(InputError, match=r"a\.csv:6: 1 cells, but the first line names 2 columns"):
        next(found)


def test_csv_quote_that_never_ends_is_named_where_it_starts(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text\nfine\n"never\nends\nat all\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"a\.csv:3: the row that starts here is broken"):
        rows(str(path))


def test_csv_cell_larger_than_the_limit_of_the_csv_module(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,document\nfine," + "x" * 200_000 + "\n", encoding="utf-8")
    assert rows(str(path)) == [(None, "fine")]


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        (["text"], "text"),
        (["query", "text", "prompt"], "text"),
        (["question", "answer"], "question"),
        (["answer", "prompt"], "prompt"),
        (["instruction"], "instruction"),
        (["query", "n"], "query"),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_column_is_guessed_where_it_is_obvious(tmp_path: Path, name: str, columns: list[str], chosen: str) -> None:
    path = write_columns(tmp_path / name, columns)
    assert rows(str(path)) == [(None, f"of {chosen}")]


@pytest.mark.parametrize("columns", [["query", "prompt"], ["title", "body"]])
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_column_is_asked_for_where_it_is_not(tmp_path: Path, name: str, columns: list[str]) -> None:
    path = write_columns(tmp_path / name, columns)
    with pytest.raises(SettingError, match=f"--column; there are {columns[0]}, {columns[1]}"):
        rows(str(path))
    assert rows(str(path), columns[1]) == [(None, f"of {columns[1]}")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_missing_column_lists_those_that_exist(tmp_path: Path, name: str) -> None:
    path = write_columns(tmp_path / name, ["text", "b", "c"])
    with pytest.raises(SettingError, match="no column 'txt'; its columns are text, b, c"):
        rows(str(path), "txt")
    with pytest.raises((SettingError, InputError), match=r"no column 'number'.* text, b, c"):
        rows(str(path), "text", "number")


def write_columns(path: Path, columns: list[str]) -> Path:
    row = {name: f"of {name}" for name in columns}
    if path.suffix == ".jsonl":
        path.write_text(json.dumps(row), encoding="utf-8")
    elif path.suffix == ".csv":
        path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n", encoding="utf-8")
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist([row]), path)
    return path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": null}', "column 'text' holds null, not a string"),
        (b'{"text": 3}', "column 'text' holds a number"),
        (b'{"text": ["a"]}', "column 'text' holds a list"),
        (b'{"text": {"a": 1}}', "column 'text' holds an object"),
        (b'{"other": "a"}', "no column 'text'; the columns here are other"),
        (b'{"text": "a"', "not JSON: .*column 13"),
        (b'{"text": ' + b"1" * 5000 + b"}", "not JSON|holds a number"),
        (b"[" * 100_000, "not JSON"),
        (b'["text"]', "JSON object, found a list"),
        (b'{"text": "ok \\ud800 bad"}', r"character 4 is a lone surrogate \(\\ud800\)"),
        (b'{"text": "caf\xe9"}', "not UTF-8 .byte 14 of the line is 0xe9"),
        (b'{"text": "a", "id": null}', "column 'id' holds null, not an id"),
        (b'{"text": "a", "id": ""}', "column 'id' holds an empty string, not an id"),
        (b'{"text": "a", "id": true}', "column 'id' holds true or false, not an id"),
    ],
)
def test_broken_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "fine \\ud83d\\ude00", "id": 7}\n\n' + line + b"\n")
    found = read_rows(str(path), id_column="id")
    assert next(found) == ("7", "fine 😀")
    with pytest.raises(InputError, match=message) as caught:
        list(found)
    assert caught.value.item == f"{path}:3"


def test_null_in_parquet_is_named_by_its_row(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b", None]}), path)
    with pytest.raises(InputError, match=r"a\.parquet, row 3: column 'text' holds null"):
        rows(str(path))


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.txt", "a.txt.gz", "a.jsonl.gz"])
@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf"])
def test_empty_file_is_named(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(InputError, match=f"{name} is empty"):
        rows(str(path))


def test_table_with_nothing_but_its_columns_is_empty(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "a.csv").write_text("text,b\n\n", encoding="utf-8")
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(InputError, match=f"{name} is empty"):
            rows(str(tmp_path / name))


@pytest.mark.parametrize("keep", [1, 9, 15, 30, -9, -1])
def test_cut_gz_is_corrupt(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("\n".join(map(str, range(1000))).encode())[:keep])
    with pytest.raises(CorruptError, match=r"a\.txt\.gz is damaged, or was not copied to its end"):
        rows(str(path))


def test_damaged_gz_and_what_is_no_gz_are_corrupt(tmp_path: Path) -> None:
    data = bytearray(gzip.compress("\n".join(map(str, range(1000))).encode()))
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "flipped.txt.gz").write_bytes(data)
    (tmp_path / "plain.txt.gz").write_bytes(b"not compressed at all")
    for name in ("flipped.txt.gz", "plain.txt.gz"):
        with pytest.raises(CorruptError, match=name):
            rows(str(tmp_path / name))


def test_damaged_parquet_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptError, match=r"a\.parquet cannot be read as Parquet"):
        rows(str(path))


@pytest.mark.parametrize("name", ["./none", "/no/such/file", "none.jsonl", "org/none.csv", "none.json", "x.txt.gz"])
def test_missing_file_is_no_hub_lookup(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: pytest.fail("the hub was asked"))
    with pytest.raises(MissingPartError, match=f"there is no file {name}"):
        rows(name)


def test_folder_and_unknown_format_are_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="is a folder"):
        rows(str(tmp_path))
    with pytest.raises(SettingError, match="is a folder"):
        rows("")
    for name in ("a.json", "a.xml", "a.xml.gz"):
        (tmp_path / name).write_text("[]", encoding="utf-8")
        with pytest.raises(SettingError, match=r"\.parquet, or \.csv, \.jsonl"):
            rows(str(tmp_path / name))


def test_hub_is_asked_for_what_looks_like_a_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def load_dataset(*arguments: object, **named: object) -> Iterator[dict[str, object]]:
        asked.append((arguments, named))
        return iter([{"prompt": "one", "n": 1}, {"prompt": "two", "n": 2}])

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert rows("org/set-v1.0", None, "n", "test", "abc") == [("1", "one"), ("2", "two")]
    assert asked == [(("org/set-v1.0",), {"split": "test", "revision": "abc", "streaming": True})]


def hub_errors() -> list[tuple[Exception, str]]:
    from datasets.exceptions import DatasetNotFoundError

    return [
        (ConnectionError("Couldn't reach it"), "org/name is no file, and the hub could not be reached"),
        (DatasetNotFoundError("it doesn't exist"), "org/name is no file, and the hub shows no such data set"),
        (ValueError("Bad split: dev"), "org/name could not be read from the hub: ValueError: Bad split: dev"),
    ]


@pytest.mark.parametrize(("error", "message"), hub_errors())
@pytest.mark.parametrize("late", [False, True])
def test_hub_errors_are_told_in_our_words(
    error: Exception, message: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Iterator[dict[str, str]]:
        yield {"text": "first"}
        raise error

    def load_dataset(*_: object, **__: object) -> Iterator[dict[str, str]]:
        if late:
            return broken()
        raise error

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    with pytest.raises(SettingError, match=message):
        rows("org/name")


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": SOURCE, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_real_hub_client_without_a_network() -> None:
    code = """
import sys
from afterword.corpus.readers import read_rows
from afterword.errors import SettingError
try:
    list(read_rows("nobody/no-such-thing"))
except SettingError as error:
    print(error)
"""
    assert "the hub could not be reached" in python(code, HF_HUB_OFFLINE="1").stdout


def test_locale_does_not_matter(tmp_path: Path) -> None:
    code = r"""
import locale, sys
from afterword.corpus.readers import read_rows
assert "utf" not in locale.getpreferredencoding(False).lower()
for path in sys.argv[1:]:
    print(ascii(list(read_rows(path))[2][1]))
"""
    paths = []
    for name in ("a.jsonl", "a.csv", "a.tsv", "a.txt"):
        WRITERS[name](tmp_path / name)
        paths.append(str(tmp_path / name))
    done = python(code, *paths, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.stderr == ""
    assert done.stdout.splitlines() == [ascii(TEXTS[2])] * 4


def test_import_is_light() -> None:
    code = """
import sys
from afterword.corpus import manifest, queries, readers, records, shards
heavy = {"numpy", "torch", "datasets", "pyarrow", "transformers", "pandas"} & set(sys.modules)
sys.exit(f"imported {heavy}" if heavy else 0)
"""
    assert python(code).stderr == ""


def test_all_errors_are_ours(tmp_path: Path) -> None:
    """Whatever bytes a file holds, reading it ends in rows or in an error of ours."""
    import random

    chance = random.Random(0)
    for round_ in range(300):
        path = tmp_path / chance.choice(["a.jsonl", "a.csv", "a.tsv", "a.txt", "a.parquet", "a.csv.gz"])
        data = bytes(chance.choice(b'{}[]",:text\t\n\r\\ \x00\xff\xe9\x1f\x8b') for _ in range(chance.randrange(60)))
        path.write_bytes((b"text,b\n" if round_ % 2 else b'{"text": "a"}\n') + data)
        try:
            rows(str(path))
        except AfterwordError as error:
            assert str(tmp_path) in str(error)
