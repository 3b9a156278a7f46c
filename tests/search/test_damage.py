"""Damaged folders: an error that names the part, and never a wrong answer."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from afterword.errors import ArtefactError, CorruptError, MissingPartError
from tests.search.world import WordEncoder, make, opened, some_documents

DOCUMENTS = some_documents(30)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make(tmp_path / "index", DOCUMENTS)
    return tmp_path / "index"


def search(folder: Path) -> object:
    return opened(folder).search(["salt", "river"], 30)


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def cut(name: str, size: int) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, size)


def flip(name: str, byte: int) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[byte] ^= 0x40
        (folder / name).write_bytes(data)

    return do


VECTORS, LINES = "vectors/part-00000.vec", "documents/part-00000.jsonl"


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (remove("manifest.json"), MissingPartError, "manifest.json is missing"),
        (write("manifest.json", b"{"), CorruptError, "manifest.json cannot be read"),
        (remove("state.json"), MissingPartError, "is not finished: run `afterword index` again"),
        (write("state.json", b"[]"), CorruptError, "state.json does not say how many documents there are"),
        (write("state.json", b"\xff"), CorruptError, "state.json cannot be read"),
        (remove(VECTORS), CorruptError, "holds 0 vectors, but 30 were finished"),
        (cut(VECTORS, 1000), CorruptError, "holds 11 vectors, but 30 were finished"),
        (flip(VECTORS, 84 * 4 + 3), CorruptError, r"part-00000.vec, record 5 is damaged"),
        (flip(VECTORS, 84 * 4 + 30), CorruptError, r"part-00000.vec, record 5 is damaged"),
        (write("vectors/vectors.json", b'{"dimension": 3}'), ArtefactError, "dimension 3, not 16"),
        (remove(LINES), MissingPartError, "part-00000.jsonl is missing"),
        (cut(LINES, 500), CorruptError, r"part-00000.jsonl has \d+ lines, not \d+"),
        (write(LINES, b'{"id": 1}\n' * 30), CorruptError, "documents holds a line that is no document"),
        (write(LINES, b"\xff\n" * 30), CorruptError, "line 3|is not UTF-8"),
    ],
)
def test_damage_is_named(damage: Callable[[Path], None], error: type[Exception], words: str, folder: Path) -> None:
    assert search(folder)
    damage(folder)
    with pytest.raises(error, match=words):
        search(folder)


def test_the_documents_of_another_index_are_noticed(folder: Path, tmp_path: Path) -> None:
    make(tmp_path / "other", some_documents(30, seed=5)[::-1])
    shutil.copyfile(tmp_path / "other" / LINES, folder / LINES)
    with pytest.raises(CorruptError, match="belongs to another document"):
        search(folder)


def test_a_folder_that_is_none_of_ours(tmp_path: Path) -> None:
    with pytest.raises(MissingPartError, match=r"manifest.json is missing"):
        opened(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtefactError):
        opened(tmp_path / "none")


def test_finished_documents_that_are_gone_are_not_indexed_over(folder: Path) -> None:
    os.truncate(folder / VECTORS, 84 * 10)
    with pytest.raises(CorruptError, match="holds 10 documents, but 30 were finished: index them anew"):
        make(folder, DOCUMENTS)


@pytest.mark.skipif(not find_spec("faiss"), reason="the extra faiss")
@pytest.mark.parametrize("damage", ["remove", "cut", "other"])
def test_a_graph_that_is_damaged_is_named_and_built_again(damage: str, tmp_path: Path) -> None:
    make(tmp_path / "index", DOCUMENTS, store="faiss")
    expected = search(tmp_path / "index")
    (graph,) = (tmp_path / "index").glob("hnsw-*.faiss")
    if damage == "remove":
        graph.unlink()
    elif damage == "cut":
        os.truncate(graph, graph.stat().st_size // 2)
    else:
        make(tmp_path / "other", DOCUMENTS[:20], store="faiss")
        (other,) = (tmp_path / "other").glob("hnsw-*.faiss")
        shutil.copyfile(other, graph)
    with pytest.raises(ArtefactError, match="run `afterword index` again"):
        search(tmp_path / "index")
    graph.unlink(missing_ok=True)
    assert make(tmp_path / "index", DOCUMENTS, store="faiss").unchanged == 30
    assert search(tmp_path / "index") == expected


@pytest.mark.skipif(not find_spec("lancedb"), reason="the extra lancedb")
def test_a_table_that_is_damaged_is_named(tmp_path: Path) -> None:
    make(tmp_path / "index", DOCUMENTS, store="lancedb")
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "index", whole)
    for path in (tmp_path / "index").rglob("*.lance"):
        if path.is_file():
            os.truncate(path, 100)
    with pytest.raises(CorruptError, match="lancedb"):
        search(tmp_path / "index")
    shutil.rmtree(whole / "lancedb")
    with pytest.raises(MissingPartError, match="lancedb"):
        search(whole)


def test_what_is_written_is_plain_and_holds_no_pickle(folder: Path) -> None:
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert [name for name in names if ".lock" not in name] == [
        LINES,
        "manifest.json",
        "state.json",
        VECTORS,
        "vectors/vectors.json",
    ]
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["kind"] == "index"
    assert manifest["sources"] == {
        "encoder": WordEncoder().fingerprint,
        "query prompt": "",
        "document prompt": "",
        "longest text": "99",
    }
