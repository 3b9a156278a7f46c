"""A stream of texts into a file of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from afterword.errors import InputError, SettingError
from afterword.flow import encode_file as module
from afterword.flow.encode_file import encode_file
from tests.teachers import vowels

TEXTS = ["banana", "", "café ☃ 👩‍👩‍👧", "a bee", "ooo"]


def plain(texts: list[str]) -> Iterator[tuple[str | None, str]]:
    return ((None, text) for text in texts)


def named(texts: list[str]) -> Iterator[tuple[str | None, str]]:
    return ((f"id-{i} ☃", text) for i, text in enumerate(texts))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("chunk", [1, 2, 5, 1024])
def test_npy_holds_what_encoding_gives_in_order(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    done: list[int] = []
    assert encode_file(vowels, plain(TEXTS), tmp_path / "out.npy", 5, done.append) == 5
    found = np.load(tmp_path / "out.npy")
    assert found.dtype == np.float32
    assert np.array_equal(found, vowels(TEXTS))
    assert (sum(done), len(done)) == (5, -(-5 // chunk))
    assert names(tmp_path) == ["out.npy"]


def test_npy_can_be_mapped_into_memory(tmp_path: Path) -> None:
    """The room that the header leaves for the number of rows is right for many as for few."""
    texts = [f"text a{'e' * (i % 7)}" for i in range(3000)]
    encode_file(vowels, plain(texts), tmp_path / "out.npy", 5)
    assert np.array_equal(np.load(tmp_path / "out.npy", mmap_mode="r"), vowels(texts))


def test_ids_stand_beside_an_npy(tmp_path: Path) -> None:
    encode_file(vowels, named(TEXTS), tmp_path / "out.npy", 5)
    assert names(tmp_path) == ["out.ids.txt", "out.npy"]
    lines = (tmp_path / "out.ids.txt").read_bytes().decode("utf-8").splitlines()
    assert lines == [f"id-{i} ☃" for i in range(5)]


@pytest.mark.parametrize("identity", ["two\nlines", "end\n", "\r"])
def test_ids_with_a_line_break_are_refused_beside_an_npy_and_fine_in_parquet(identity: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has a line break"):
        encode_file(vowels, [(identity, "text")], tmp_path / "out.npy", 5)
    assert names(tmp_path) == []
    encode_file(vowels, [(identity, "text")], tmp_path / "out.parquet", 5)
    assert pq.read_table(tmp_path / "out.parquet")["id"].to_pylist() == [identity]


@pytest.mark.parametrize("chunk", [2, 1024])
def test_parquet_holds_ids_and_vectors(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    assert encode_file(vowels, named(TEXTS), tmp_path / "out.parquet", 5) == 5
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["id", "embedding"]
    assert table["id"].to_pylist() == [f"id-{i} ☃" for i in range(5)]
    assert table["embedding"].to_pylist() == vowels(TEXTS).tolist()
    assert names(tmp_path) == ["out.parquet"]


def test_rows_without_ids_are_numbered_in_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 2)
    encode_file(vowels, plain(TEXTS), tmp_path / "out.parquet", 5)
    assert pq.read_table(tmp_path / "out.parquet")["id"].to_pylist() == ["0", "1", "2", "3", "4"]


def test_the_input_is_read_as_it_is_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more than a chunk is held: when the nth chunk is encoded, only n chunks have been read."""
    monkeypatch.setattr(module, "CHUNK", 3)
    read, seen = [], []

    def rows() -> Iterator[tuple[str | None, str]]:
        for i in range(10):
            read.append(i)
            yield None, f"text {i}"

    def encode(texts: list[str]) -> NDArray[np.float32]:
        seen.append(len(read))
        return vowels(texts)

    encode_file(encode, rows(), tmp_path / "out.npy", 5)
    assert seen == [3, 6, 9, 10]


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_a_failure_leaves_no_file_and_an_old_one_as_it_was(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 2)
    out = tmp_path / f"out{suffix}"
    encode_file(vowels, named(TEXTS), out, 5)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def rows() -> Iterator[tuple[str | None, str]]:
        yield from plain(TEXTS[:3])
        raise InputError("broken", "line 4")

    with pytest.raises(InputError, match="item line 4: broken"):
        encode_file(vowels, rows(), out, 5)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(InputError):
        encode_file(vowels, rows(), tmp_path / f"new{suffix}", 5)
    assert names(tmp_path) == sorted(before)


def test_ids_of_an_earlier_file_do_not_stay_beside_vectors_without(tmp_path: Path) -> None:
    encode_file(vowels, named(TEXTS), tmp_path / "out.npy", 5)
    encode_file(vowels, plain(TEXTS[:2]), tmp_path / "out.npy", 5)
    assert names(tmp_path) == ["out.npy"]


@pytest.mark.parametrize("name", ["out.txt", "out", "out.npz"])
def test_another_ending_is_refused_before_anything_is_read(name: str, tmp_path: Path) -> None:
    def rows() -> Iterator[tuple[str | None, str]]:
        raise AssertionError
        yield

    with pytest.raises(SettingError, match=r"vectors are written to a \.npy or a \.parquet file"):
        encode_file(vowels, rows(), tmp_path / name, 5)


def test_folders_are_made(tmp_path: Path) -> None:
    encode_file(vowels, plain(TEXTS), tmp_path / "deep" / "er" / "out.npy", 5)
    assert np.load(tmp_path / "deep" / "er" / "out.npy").shape == (5, 5)


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_a_place_that_cannot_be_written_to_is_named(suffix: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SettingError, match=f"file/out{suffix} cannot be written"):
        encode_file(vowels, plain(TEXTS), tmp_path / "file" / f"out{suffix}", 5)
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(SettingError, match=f"folder{suffix} is a folder"):
        encode_file(vowels, plain(TEXTS), tmp_path / f"folder{suffix}", 5)
