"""Shards of JSON lines."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path

from afterword.corpus.records import utf8
from afterword.corpus.shard_folder import REDO, ShardFolder
from afterword.errors import CorruptError, InputError, MissingPartError


class JsonlShards(ShardFolder):
    """Shards of JSON lines, `part-00000.jsonl` and on.

    Args:
        folder: Where the shards are; made at the first write.
        records_per_shard: How many lines fill a shard.
    """

    suffix = ".jsonl"

    def __init__(self, folder: str | Path, records_per_shard: int = 4096) -> None:
        super().__init__(folder, records_per_shard)
        self._ends: dict[int, Sequence[int]] = {}

    def append(self, lines: Sequence[str]) -> None:
        """Add lines behind those that are there; the system has them all when this returns.

        Args:
            lines: JSON values, each without a line end.

        Raises:
            InputError: One is not a single line of JSON; nothing is written.
            WorkError: Another process is writing, or the disk would not take them.
        """
        self._append([_encode(line, index) for index, line in enumerate(lines)])

    def lines(self) -> Iterator[str]:
        """Yield every whole line, without its end; a torn last one is passed over.

        Raises:
            CorruptError: A line is not UTF-8, or a shard other than the last ends within one.
        """
        paths = self.paths()
        for path in paths:
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if line.endswith(b"\n"):
                        yield _decode(line, path, number)
                    elif path != paths[-1]:
                        raise CorruptError(f"{path}, line {number} has no end: {REDO}")

    def read(self, numbers: Sequence[int]) -> list[str]:
        """Return lines by their numbers, from 0; of a shard, only where its lines end is kept in memory.

        Raises:
            CorruptError: There is no such line, or it is not UTF-8.
        """
        return [self._line(*divmod(number, self.records_per_shard)) for number in numbers]

    def _line(self, shard: int, row: int) -> str:
        path = self._path(shard)
        try:
            if row >= len(self._ends.get(shard, ())):
                self._ends[shard] = _line_ends(path)
            ends = self._ends[shard]
            if row >= len(ends):
                raise CorruptError(f"{path} has {len(ends)} lines, not {row + 1}: {REDO}")
            start = ends[row - 1] if row else 0
            with path.open("rb") as file:
                file.seek(start)
                return _decode(file.read(ends[row] - start), path, row + 1)
        except FileNotFoundError as error:
            raise MissingPartError(f"{path} is missing") from error

    def _size_of(self, path: Path, records: int) -> int:
        with path.open("rb") as file:
            return sum(map(len, islice(file, records)))

    def _scan(self, path: Path, is_last: bool) -> tuple[int, int]:
        records = size = broken = 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if broken:
                    break
                if _is_whole(line):
                    records, size = records + 1, size + len(line)
                else:
                    broken = number
            else:
                if not broken or is_last:
                    return records, size
        raise CorruptError(f"{path}, line {broken} is not a line of JSON: {REDO}")


def _encode(line: str, index: int) -> bytes:
    """Turn a line into bytes that `recover` will take for whole."""
    data = utf8(line, index) + b"\n"
    if data.count(b"\n") > 1 or not _is_whole(data):
        raise InputError(f"not a single line of JSON: {line[:60]!r}", index)
    return data


def _line_ends(path: Path) -> Sequence[int]:
    """Return the offset behind each line that has an end."""
    with path.open("rb") as file:
        return array("q", accumulate(len(line) for line in file if line.endswith(b"\n")))


def _decode(line: bytes, path: Path, number: int) -> str:
    try:
        return line[:-1].decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptError(f"{path}, line {number} is not UTF-8: {REDO}") from error


def _is_whole(line: bytes) -> bool:
    """Tell a whole record from a torn one: it has an end, and what stands before it can be read."""
    if not line.endswith(b"\n"):
        return False
    try:
        json.loads(line.decode("utf-8"))
    except ValueError:
        return False
    return True
