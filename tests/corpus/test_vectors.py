"""Vectors come back to the bit, and a kill at any byte costs one record."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time
import zlib
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

import afterword
from afterword.corpus.shards import JsonlShards
from afterword.corpus.vectors import VectorShards
from afterword.errors import CorruptError, InputError, MismatchError, MissingPartError, SettingError, WorkError

SOURCE = str(Path(afterword.__path__[0]).parent)
DIMENSION = 3
RECORD = 16 + 4 * DIMENSION + 4
NAMES = [f"question {i} — née ☃" for i in range(40)]
VECTORS = np.random.default_rng(0).standard_normal((40, DIMENSION)).astype(np.float32)


def record(name: str, vector: np.ndarray) -> bytes:
    """The format, said a second time with nothing but the standard library."""
    body = blake2b(name.encode(), digest_size=16).digest() + struct.pack(f"<{len(vector)}f", *vector)
    return body + struct.pack("<I", zlib.crc32(body))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def write(folder: Path, count: int, size: int = 4, batch: int = 3) -> None:
    with VectorShards(folder, DIMENSION, size) as shards:
        for start in range(0, count, batch):
            stop = min(start + batch, count)
            shards.append(NAMES[start:stop], VECTORS[start:stop])


def test_files_hold_the_documented_bytes(tmp_path: Path) -> None:
    write(tmp_path, 6)
    records = [record(name, vector) for name, vector in zip(NAMES[:6], VECTORS, strict=False)]
    assert contents(tmp_path) == {
        "part-00000.vec": b"".join(records[:4]),
        "part-00001.vec": b"".join(records[4:]),
    }


def test_lookup_is_in_the_order_asked(tmp_path: Path) -> None:
    write(tmp_path, 11)
    order = [7, 0, 10, 3, 7, 4]
    found = VectorShards(tmp_path, DIMENSION).lookup([NAMES[i] for i in order])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, VECTORS[order])


def test_lookup_of_nothing_has_the_dimension(tmp_path: Path) -> None:
    assert VectorShards(tmp_path, DIMENSION).lookup([]).shape == (0, DIMENSION)
    write(tmp_path, 5)
    assert VectorShards(tmp_path, DIMENSION).lookup([]).shape == (0, DIMENSION)


def test_lookup_names_the_first_missing_and_counts(tmp_path: Path) -> None:
    write(tmp_path, 5)
    wanted = [NAMES[2], "first stranger", NAMES[0], "second stranger"]
    with pytest.raises(MissingPartError, match="no vector for 2 of 4 keys, first 'first stranger'"):
        VectorShards(tmp_path, DIMENSION).lookup(wanted)
    with pytest.raises(MissingPartError, match="1 of 1"):
        VectorShards(tmp_path / "none", DIMENSION).lookup(["a"])


def test_lookup_sees_what_was_added_since(tmp_path: Path) -> None:
    with VectorShards(tmp_path, DIMENSION, 4) as shards:
        for i in range(10):
            shards.append([NAMES[i]], VECTORS[i : i + 1])
            np.testing.assert_array_equal(shards.lookup(NAMES[: i + 1]), VECTORS[: i + 1])


def test_keys_that_end_in_zeros_are_found(tmp_path: Path) -> None:
    names = [name for name in map(str, range(3000)) if VectorShards.key(name).endswith(b"\0")]
    assert len(names) > 5
    vectors = np.arange(len(names) * DIMENSION, dtype=np.float32).reshape(-1, DIMENSION)
    with VectorShards(tmp_path, DIMENSION) as shards:
        shards.append(names, vectors)
        np.testing.assert_array_equal(shards.lookup(names), vectors)
        assert shards.keys() == {blake2b(name.encode(), digest_size=16).digest() for name in names}


def test_of_a_key_added_twice_the_first_counts(tmp_path: Path) -> None:
    with VectorShards(tmp_path, DIMENSION, 500) as shards:
        for _ in range(20):
            shards.append(["b", "a", *["c", "a"] * 19], VECTORS)
        np.testing.assert_array_equal(shards.lookup(["a", "b", "c"]), VECTORS[[1, 0, 2]])


def test_lookup_agrees_with_a_dictionary(tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    vectors = chance.standard_normal((2000, 8)).astype(np.float32)
    names = [f"n{i}" for i in range(2000)]
    with VectorShards(tmp_path, 8, 130) as shards:
        for start in range(0, 2000, 77):
            shards.append(names[start : start + 77], vectors[start : start + 77])
    reference = dict(zip(names, vectors, strict=True))
    wanted = [names[i] for i in chance.integers(0, 2000, 500)]
    found = VectorShards(tmp_path, 8).lookup(wanted)
    np.testing.assert_array_equal(found, np.stack([reference[name] for name in wanted]))


@pytest.mark.parametrize("total", [3, 8, 9], ids=["one shard", "last shard full", "last shard begun"])
def test_cut_at_every_byte_of_the_last_shard(tmp_path: Path, total: int) -> None:
    write(tmp_path / "whole", total)
    whole = contents(tmp_path / "whole")
    *earlier, last = whole
    for size in range(len(whole[last]) + 1):
        folder = tmp_path / f"cut{size}"
        write(folder, 0)
        folder.mkdir(exist_ok=True)
        for name in earlier:
            (folder / name).write_bytes(whole[name])
        (folder / last).write_bytes(whole[last][:size])
        survivors = 4 * len(earlier) + size // RECORD
        expected = {VectorShards.key(name) for name in NAMES[:survivors]}
        assert VectorShards(folder, DIMENSION, 4).keys() == expected
        with VectorShards(folder, DIMENSION, 4) as shards:
            assert shards.recover() == size % RECORD
            assert shards.keys() == expected
            shards.append(NAMES[survivors:total], VECTORS[survivors:total])
        assert contents(folder) == whole


@pytest.mark.parametrize("byte", range(RECORD))
def test_last_record_with_any_byte_flipped_is_dropped(tmp_path: Path, byte: int) -> None:
    write(tmp_path, 7)
    whole = contents(tmp_path)
    path = tmp_path / "part-00001.vec"
    data = bytearray(path.read_bytes())
    data[2 * RECORD + byte] ^= 0x10
    path.write_bytes(data)
    with VectorShards(tmp_path, DIMENSION, 4) as shards:
        assert shards.recover() == RECORD
        assert shards.keys() == {VectorShards.key(name) for name in NAMES[:6]}
        shards.append(NAMES[6:7], VECTORS[6:7])
    assert contents(tmp_path) == whole


@pytest.mark.parametrize(("shard", "number"), [(0, 1), (0, 4), (1, 1), (1, 2)])
def test_damage_elsewhere_is_named_and_left_alone(tmp_path: Path, shard: int, number: int) -> None:
    write(tmp_path, 7)
    path = tmp_path / f"part-0000{shard}.vec"
    data = bytearray(path.read_bytes())
    data[(number - 1) * RECORD + 20] ^= 1
    path.write_bytes(data)
    before = contents(tmp_path)
    with VectorShards(tmp_path, DIMENSION, 4) as shards:
        with pytest.raises(CorruptError, match=f"part-0000{shard}.vec, record {number} is damaged"):
            shards.recover()
        with pytest.raises(CorruptError, match=f"part-0000{shard}.vec, record {number} is damaged"):
            shards.lookup(NAMES[:7])
        np.testing.assert_array_equal(shards.lookup(NAMES[6:7]), VECTORS[6:7])
    assert contents(tmp_path) == before


def test_damage_before_a_torn_record_is_not_a_torn_record(tmp_path: Path) -> None:
    write(tmp_path, 7)
    path = tmp_path / "part-00001.vec"
    data = bytearray(path.read_bytes())
    data[RECORD + 20] ^= 1
    path.write_bytes(data[:-5])
    with VectorShards(tmp_path, DIMENSION, 4) as shards, pytest.raises(CorruptError, match="record 2 is damaged"):
        shards.recover()


def test_damage_behind_the_first_megabytes_is_found(tmp_path: Path) -> None:
    dimension, count = 2048, 4500
    with VectorShards(tmp_path, dimension) as shards:
        shards.append([str(i) for i in range(count)], np.ones((count, dimension), dtype=np.float32))
    path = tmp_path / "part-00000.vec"
    with path.open("rb+") as file:
        file.seek(4321 * (16 + 4 * dimension + 4) + 99)
        file.write(b"\xff")
    with VectorShards(tmp_path, dimension) as shards, pytest.raises(CorruptError, match="record 4322 is damaged"):
        shards.recover()


def test_torn_shard_before_the_last_is_corrupt(tmp_path: Path) -> None:
    write(tmp_path, 7)
    path = tmp_path / "part-00000.vec"
    path.write_bytes(path.read_bytes()[:-1])
    with VectorShards(tmp_path, DIMENSION, 4) as shards, pytest.raises(CorruptError, match=r"00000\.vec, record 4"):
        shards.recover()


def test_other_dimension_is_refused_before_it_can_harm(tmp_path: Path) -> None:
    write(tmp_path, 2)
    before = contents(tmp_path)
    with pytest.raises(MismatchError, match="dimension 3, not 5"):
        VectorShards(tmp_path, 5)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("text", ["", "{}", "[3]", "no json"])
def test_stamp_without_a_dimension_is_corrupt(tmp_path: Path, text: str) -> None:
    (tmp_path / "vectors.json").write_text(text, encoding="utf-8")
    with pytest.raises(CorruptError, match="does not say a dimension"):
        VectorShards(tmp_path, 3)


def test_append_rejects_what_does_not_fit(tmp_path: Path) -> None:
    with VectorShards(tmp_path, DIMENSION) as shards:
        with pytest.raises(InputError, match=r"shape \(2, 3\) for 1 keys of dimension 3"):
            shards.append(["a"], VECTORS[:2])
        with pytest.raises(InputError, match=r"shape \(2, 2\)"):
            shards.append(["a", "b"], VECTORS[:2, :2])
        bad = VECTORS[:3].copy()
        bad[1, 2] = np.nan
        with pytest.raises(InputError, match="'b' holds NaN or infinity"):
            shards.append(["a", "b", "c"], bad)
        with pytest.raises(InputError, match="lone surrogate"):
            shards.append(["ok \ud800 bad"], VECTORS[:1])
        assert shards.keys() == set()
    with pytest.raises(SettingError, match="dimension of the vectors is 0"):
        VectorShards(tmp_path / "other", 0)


def test_views_and_other_float_types_are_stored_as_their_values(tmp_path: Path) -> None:
    with VectorShards(tmp_path, DIMENSION) as shards:
        shards.append(NAMES[:5], VECTORS.astype(np.float64)[:10:2])
        np.testing.assert_array_equal(shards.lookup(NAMES[:5]), VECTORS[:10:2])


def test_second_writer_is_refused_readers_are_not(tmp_path: Path) -> None:
    with VectorShards(tmp_path, DIMENSION) as first:
        first.append(NAMES[:2], VECTORS[:2])
        with VectorShards(tmp_path, DIMENSION) as second:
            with pytest.raises(WorkError, match=f"process {os.getpid()} .*{tmp_path}"):
                second.append(NAMES[2:3], VECTORS[2:3])
            np.testing.assert_array_equal(second.lookup(NAMES[:2]), VECTORS[:2])
        with JsonlShards(tmp_path) as lines, pytest.raises(WorkError):
            lines.recover()


WORKER = """
import sys
import numpy as np
from afterword.corpus.vectors import VectorShards
folder, total = sys.argv[1], int(sys.argv[2])
with VectorShards(folder, 64, 3000) as shards:
    shards.recover()
    done = len(shards.keys())
    print(done, flush=True)
    while done < total:
        batch = range(done, min(done + 1 + done % 23, total))
        vectors = np.stack([np.full(64, i, dtype=np.float32) for i in batch])
        shards.append([str(i) for i in batch], vectors)
        done = batch.stop
"""


def test_killed_at_random_moments_ends_as_if_never_killed(tmp_path: Path) -> None:
    total, kills, chance = 14000, 0, random.Random(3)

    def start(name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WORKER, str(tmp_path / name), str(total)]
        environment = {**os.environ, "PYTHONPATH": SOURCE}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    starts = []
    while True:
        worker = start("killed")
        assert worker.stdout is not None
        starts.append(int(worker.stdout.readline()))
        if kills < 15:
            time.sleep(chance.uniform(0, 0.012))
            worker.send_signal(signal.SIGKILL)
            kills += 1
        worker.communicate()
        if worker.returncode == 0:
            break
    assert kills >= 5, "the worker was done too soon"
    assert starts == sorted(starts)
    assert any(0 < done < total for done in starts), "the kills came too early or too late to test anything"
    assert start("straight").communicate()[1] == ""
    assert contents(tmp_path / "killed") == contents(tmp_path / "straight")
    found = VectorShards(tmp_path / "killed", 64).lookup([str(i) for i in range(total)])
    np.testing.assert_array_equal(found[:, 0], np.arange(total))


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_blocks_go_over_all_vectors_in_order(size: int, tmp_path: Path) -> None:
    write(tmp_path, 11)
    shards = VectorShards(tmp_path, DIMENSION)
    found = list(shards.blocks(size))
    assert all(0 < len(keys) == len(vectors) <= size for keys, vectors in found)
    np.testing.assert_array_equal(np.concatenate([vectors for _, vectors in found]), VECTORS[:11])
    assert b"".join(keys.tobytes() for keys, _ in found) == b"".join(map(VectorShards.key, NAMES[:11]))
    assert shards.count() == 11
    assert VectorShards(tmp_path / "none", DIMENSION).count() == 0


def test_blocks_are_not_copies(tmp_path: Path) -> None:
    write(tmp_path, 11)
    for _, vectors in VectorShards(tmp_path, DIMENSION).blocks(2):
        assert not vectors.flags.owndata
        root = vectors
        while isinstance(root.base, np.ndarray):
            root = root.base
        assert isinstance(root, np.memmap)


def test_records_are_read_by_place_and_checked(tmp_path: Path) -> None:
    write(tmp_path, 11)
    shards = VectorShards(tmp_path, DIMENSION)
    places = [10, 0, 4, 4, 3]
    keys, vectors = shards.read(places)
    assert keys == [VectorShards.key(NAMES[place]) for place in places]
    np.testing.assert_array_equal(vectors, VECTORS[places])
    assert shards.read([])[1].shape == (0, DIMENSION)
    for place in (11, -1):
        with pytest.raises(CorruptError, match="holds 11 vectors"):
            shards.read([0, place])
    path = tmp_path / "part-00001.vec"
    data = bytearray(path.read_bytes())
    data[RECORD + 20] ^= 1
    path.write_bytes(data)
    assert shards.read([4])[0]
    with pytest.raises(CorruptError, match=r"part-00001.vec, record 2 is damaged"):
        shards.read([0, 5])


@pytest.mark.parametrize("kept", range(12))
def test_cut_to_leaves_the_first_and_appending_goes_on_there(kept: int, tmp_path: Path) -> None:
    """The files are then those of a folder that never had more."""
    write(tmp_path / "cut", 11)
    write(tmp_path / "never", kept, batch=1)
    with VectorShards(tmp_path / "cut", DIMENSION, 4) as shards:
        shards.cut_to(kept)
        assert contents(tmp_path / "cut") == contents(tmp_path / "never")
        shards.append(NAMES[kept:11], VECTORS[kept:11])
    write(tmp_path / "whole", 11)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_more_cannot_be_kept_than_there_is(tmp_path: Path) -> None:
    write(tmp_path, 5)
    with (
        VectorShards(tmp_path, DIMENSION, 4) as shards,
        pytest.raises(MissingPartError, match="holds 5 records, not 6"),
    ):
        shards.cut_to(6)
