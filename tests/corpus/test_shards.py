"""Shards of lines survive a kill at any byte."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import afterword
from afterword.corpus.shards import JsonlShards
from afterword.errors import CorruptError, InputError, MismatchError, MissingPartError, SettingError, WorkError

SOURCE = str(Path(afterword.__path__[0]).parent)
TEXTS = [
    "plain",
    "café ☃ 👩‍👩‍👧",
    "line\u2028separator \x85 and \x0b",
    "two\nlines",
    "",
    "日本語" * 7,
    '"quoted" \\ back',
]


def lines_for(count: int) -> list[str]:
    return [json.dumps({"id": i, "text": TEXTS[i % len(TEXTS)]}, ensure_ascii=False) for i in range(count)]


def contents(folder: Path, suffix: str = ".jsonl") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob(f"part-*{suffix}"))}


def write(folder: Path, lines: list[str], size: int, batch: int = 3) -> None:
    with JsonlShards(folder, size) as shards:
        for start in range(0, len(lines), batch):
            shards.append(lines[start : start + batch])


def test_files_are_plain_json_lines_split_by_count(tmp_path: Path) -> None:
    lines = lines_for(10)
    write(tmp_path, lines, size=4)
    assert contents(tmp_path) == {
        "part-00000.jsonl": "".join(line + "\n" for line in lines[:4]).encode(),
        "part-00001.jsonl": "".join(line + "\n" for line in lines[4:8]).encode(),
        "part-00002.jsonl": "".join(line + "\n" for line in lines[8:]).encode(),
    }
    assert list(JsonlShards(tmp_path, 4).lines()) == lines


@pytest.mark.parametrize("batch", [1, 2, 5, 100])
def test_files_do_not_depend_on_batches(tmp_path: Path, batch: int) -> None:
    write(tmp_path / "a", lines_for(23), size=5, batch=3)
    write(tmp_path / "b", lines_for(23), size=5, batch=batch)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_full_shard_starts_no_empty_one(tmp_path: Path) -> None:
    write(tmp_path, lines_for(8), size=4)
    assert list(contents(tmp_path)) == ["part-00000.jsonl", "part-00001.jsonl"]


def test_nothing_is_there_before_the_first_write(tmp_path: Path) -> None:
    with JsonlShards(tmp_path / "none") as shards:
        assert list(shards.lines()) == []
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("total", [3, 8, 10], ids=["one shard", "last shard full", "last shard begun"])
def test_cut_at_every_byte_of_the_last_shard(tmp_path: Path, total: int) -> None:
    lines = lines_for(total)
    write(tmp_path / "whole", lines, size=4)
    whole = contents(tmp_path / "whole")
    *earlier, last = whole
    for size in range(len(whole[last]) + 1):
        folder = tmp_path / f"cut{size}"
        folder.mkdir()
        for name in earlier:
            (folder / name).write_bytes(whole[name])
        torn = whole[last][:size]
        (folder / last).write_bytes(torn)
        survivors = 4 * len(earlier) + torn.count(b"\n")
        # A reader that comes before the recovery passes over the torn record.
        assert list(JsonlShards(folder, 4).lines()) == lines[:survivors]
        with JsonlShards(folder, 4) as shards:
            assert shards.recover() == size - (torn.rfind(b"\n") + 1)
            assert list(shards.lines()) == lines[:survivors]
            shards.append(lines[survivors:])
        assert contents(folder) == whole


def test_append_recovers_by_itself(tmp_path: Path) -> None:
    write(tmp_path, lines_for(3), size=4)
    with (tmp_path / "part-00000.jsonl").open("ab") as file:
        file.write('{"id": 3, "text": "caf\u00e9'.encode()[:-1])
    with JsonlShards(tmp_path, 4) as shards:
        shards.append(lines_for(5)[3:])
    assert list(JsonlShards(tmp_path, 4).lines()) == lines_for(5)


def test_last_line_that_is_whole_but_unreadable_is_dropped(tmp_path: Path) -> None:
    write(tmp_path, lines_for(3), size=4)
    with (tmp_path / "part-00000.jsonl").open("ab") as file:
        file.write(b'{"id": 3, \0\0\0\n')
    with JsonlShards(tmp_path, 4) as shards:
        assert shards.recover() == 14
        assert list(shards.lines()) == lines_for(3)


@pytest.mark.parametrize("damage", [b"{oops}", b'{"a": "\xff\xfe"}', b""])
@pytest.mark.parametrize(("shard", "line"), [(0, 2), (1, 1), (1, 2)])
def test_damage_elsewhere_is_named_and_left_alone(tmp_path: Path, damage: bytes, shard: int, line: int) -> None:
    write(tmp_path, lines_for(7), size=4)
    path = tmp_path / f"part-0000{shard}.jsonl"
    rows = path.read_bytes().split(b"\n")
    rows[line - 1] = damage
    path.write_bytes(b"\n".join(rows))
    before = contents(tmp_path)
    with JsonlShards(tmp_path, 4) as shards, pytest.raises(CorruptError, match=f"part-0000{shard}.jsonl, line {line} "):
        shards.recover()
    assert contents(tmp_path) == before


def test_torn_shard_before_the_last_is_corrupt(tmp_path: Path) -> None:
    write(tmp_path, lines_for(7), size=4)
    path = tmp_path / "part-00000.jsonl"
    path.write_bytes(path.read_bytes()[:-3])
    with JsonlShards(tmp_path, 4) as shards:
        with pytest.raises(CorruptError, match=r"part-00000\.jsonl, line 4"):
            shards.recover()
        with pytest.raises(CorruptError, match=r"part-00000\.jsonl, line 4"):
            list(shards.lines())


def test_missing_shard_is_named(tmp_path: Path) -> None:
    write(tmp_path, lines_for(12), size=4)
    (tmp_path / "part-00001.jsonl").unlink()
    with pytest.raises(MissingPartError, match=r"part-00001\.jsonl is missing"):
        list(JsonlShards(tmp_path, 4).lines())


@pytest.mark.parametrize("size", [3, 5])
def test_other_shard_length_is_refused(tmp_path: Path, size: int) -> None:
    write(tmp_path, lines_for(7), size=4)
    with JsonlShards(tmp_path, size) as shards, pytest.raises(MismatchError, match=f"holds 4 records.* {size}"):
        shards.recover()


def test_zero_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="records_per_shard is 0"):
        JsonlShards(tmp_path, 0)


@pytest.mark.parametrize("bad", ["", "no json", '{"a":\n1}', '{"a": 1}\n', '"ok \ud800 bad"'])
def test_append_takes_only_what_recover_keeps(tmp_path: Path, bad: str) -> None:
    with JsonlShards(tmp_path) as shards:
        with pytest.raises(InputError, match="item 1: ") as caught:
            shards.append(['{"good": 1}', bad])
        assert caught.value.item == 1
        assert list(shards.lines()) == []


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=12), st.integers(1, 5))
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int) -> None:
    folder = tmp_path_factory.mktemp("any")
    lines = [json.dumps(text, ensure_ascii=False) for text in texts]
    write(folder, lines, size)
    shards = JsonlShards(folder, size)
    assert shards.recover() == 0
    shards.close()
    assert [json.loads(line) for line in shards.lines()] == texts


def test_second_writer_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    with JsonlShards(tmp_path) as first:
        first.append(['{"a": 1}'])
        with JsonlShards(tmp_path) as second, pytest.raises(WorkError, match=f"process {os.getpid()} .*{tmp_path}"):
            second.append(['{"b": 2}'])
        assert list(JsonlShards(tmp_path).lines()) == ['{"a": 1}']
    with JsonlShards(tmp_path) as second:
        second.append(['{"b": 2}'])
    assert list(JsonlShards(tmp_path).lines()) == ['{"a": 1}', '{"b": 2}']


def test_failed_recovery_lets_go_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "part-00000.jsonl").write_bytes(b"{oops\n{}\n")
    shards = JsonlShards(tmp_path)
    with pytest.raises(CorruptError):
        shards.recover()
    (tmp_path / "part-00000.jsonl").unlink()
    with JsonlShards(tmp_path) as other:
        other.append(["{}"])


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux which file a descriptor is")
def test_shard_is_on_the_disk_before_the_next_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    real_open, real_sync = Path.open, os.fsync

    def spy_open(path: Path, mode: str = "r", *more: int, **named: int) -> object:
        if mode == "ab":
            events.append(f"open {path.name}")
        return real_open(path, mode, *more, **named)

    def spy_sync(descriptor: int) -> None:
        events.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        real_sync(descriptor)

    monkeypatch.setattr(Path, "open", spy_open)
    monkeypatch.setattr(os, "fsync", spy_sync)
    with JsonlShards(tmp_path, 2) as shards:
        shards.append(["1", "2", "3"])
        assert events == ["open part-00000.jsonl", "sync part-00000.jsonl", "open part-00001.jsonl"]
    assert events[3:] == ["sync part-00001.jsonl"]
    # The writer may have been killed before it could do that, so the next one does it.
    with JsonlShards(tmp_path, 2) as shards:
        shards.recover()
    assert events[4:] == ["sync part-00001.jsonl"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_closing_frees_the_folder_though_a_forked_child_lives(tmp_path: Path) -> None:
    code = """
import os, sys, time
from afterword.corpus.shards import JsonlShards
first = JsonlShards(sys.argv[1])
first.append(["1"])
child = os.fork()
if not child:
    time.sleep(60)
first.close()
try:
    JsonlShards(sys.argv[1]).append(["2"])
finally:
    os.kill(child, 9)
"""
    worker = python(code, str(tmp_path))
    assert worker.communicate()[1] == ""
    assert list(JsonlShards(tmp_path).lines()) == ["1", "2"]


def python(code: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": SOURCE, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


HOLD = """
import sys, time
from afterword.corpus.shards import JsonlShards
shards = JsonlShards(sys.argv[1])
shards.append(['{"a": 1}'])
print("held", flush=True)
time.sleep(60)
"""


def test_other_process_is_refused_and_its_death_frees_the_folder(tmp_path: Path) -> None:
    holder = python(HOLD, str(tmp_path))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with JsonlShards(tmp_path) as shards, pytest.raises(WorkError, match=f"process {holder.pid} "):
        shards.recover()
    holder.kill()
    holder.communicate()
    with JsonlShards(tmp_path) as shards:
        shards.append(['{"b": 2}'])
    assert list(JsonlShards(tmp_path).lines()) == ['{"a": 1}', '{"b": 2}']


FULL_DISK = """
import resource, sys
from afterword.corpus.shards import JsonlShards
from afterword.errors import WorkError
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
lines = ['{"id": %d, "text": "some words"}' % i for i in range(20)]
shards = JsonlShards(sys.argv[1], 100)
try:
    shards.append(lines)
    sys.exit("the write should have failed")
except WorkError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
shards.append(lines[len(list(shards.lines())):])
shards.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of Unix")
@pytest.mark.parametrize("limit", [100, 333, 500])
def test_full_disk_is_told_and_the_same_object_goes_on(tmp_path: Path, limit: int) -> None:
    out, errors = python(FULL_DISK, str(tmp_path), str(limit)).communicate(timeout=60)
    assert errors == ""
    assert f"writing to {tmp_path} failed" in out
    expected = [f'{{"id": {i}, "text": "some words"}}' for i in range(20)]
    assert list(JsonlShards(tmp_path).lines()) == expected


WORKER = """
import sys
from afterword.corpus.shards import JsonlShards
folder, total, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with JsonlShards(folder, size) as shards:
    shards.recover()
    done = sum(1 for _ in shards.lines())
    print(done, flush=True)
    while done < total:
        batch = range(done, min(done + 1 + done % 23, total))
        shards.append(['{"id": %d, "text": "%s"}' % (i, "日本 caf\u00e9 " * (i % 97)) for i in batch])
        done = batch.stop
"""


def test_killed_at_random_moments_ends_as_if_never_killed(tmp_path: Path) -> None:
    total, size, kills, starts = 20000, 4000, 0, []
    chance = random.Random(7)
    while True:
        worker = python(WORKER, str(tmp_path / "killed"), str(total), str(size))
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
    assert any(0 < start < total for start in starts), "the kills came too early or too late to test anything"
    straight = python(WORKER, str(tmp_path / "straight"), str(total), str(size))
    assert straight.communicate()[1] == ""
    assert contents(tmp_path / "killed") == contents(tmp_path / "straight")
    assert len(contents(tmp_path / "killed")) == total // size


def test_works_where_the_locale_is_c(tmp_path: Path) -> None:
    code = r"""
import locale, sys
from afterword.corpus.shards import JsonlShards
assert "utf" not in locale.getpreferredencoding(False).lower()
with JsonlShards(sys.argv[1]) as shards:
    shards.append(['"caf\u00e9 \u2603 \U0001f469"'])
    assert list(shards.lines()) == ['"caf\u00e9 \u2603 \U0001f469"']
"""
    worker = python(code, str(tmp_path), LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert worker.communicate()[1] == ""
    assert list(JsonlShards(tmp_path).lines()) == ['"café ☃ 👩"']


def test_lines_are_read_by_number(tmp_path: Path) -> None:
    lines = lines_for(11)
    with JsonlShards(tmp_path, 4) as shards:
        shards.append(lines[:6])
        reader = JsonlShards(tmp_path, 4)
        assert reader.read([5, 0, 3, 4, 3]) == [lines[number] for number in (5, 0, 3, 4, 3)]
        shards.append(lines[6:])
    assert reader.read(range(11)) == lines, "lines that were added since are seen"
    assert reader.read([]) == []
    with pytest.raises(CorruptError, match=r"part-00002.jsonl has 3 lines, not 4"):
        reader.read([11])
    with pytest.raises(MissingPartError, match=r"part-00003.jsonl is missing"):
        reader.read([12])


def test_a_line_read_by_number_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "part-00000.jsonl").write_bytes(b'"a"\n"\xff"\n')
    assert JsonlShards(tmp_path).read([0]) == ['"a"']
    with pytest.raises(CorruptError, match=r"part-00000.jsonl, line 2 is not UTF-8"):
        JsonlShards(tmp_path).read([1])


@pytest.mark.parametrize("kept", range(12))
def test_cut_to_leaves_the_first_lines_and_appending_goes_on_there(kept: int, tmp_path: Path) -> None:
    lines = lines_for(11)
    for name, count in (("cut", 11), ("never", kept), ("whole", 11)):
        with JsonlShards(tmp_path / name, 4) as shards:
            shards.append(lines[:count])
    with JsonlShards(tmp_path / "cut", 4) as shards:
        shards.cut_to(kept)
        assert contents(tmp_path / "cut") == contents(tmp_path / "never")
        shards.append(lines[kept:])
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
