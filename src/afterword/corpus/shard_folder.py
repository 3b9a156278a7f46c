"""Append-only files that survive a kill at any byte.

Records are only ever added at the end of the last shard, a batch in one write, so that a kill leaves whole records and
at most one torn one behind them. `recover` cuts the torn record off, and the stage that writes does it again. Where a
shard ends depends on nothing but the number of records: work that is resumed leaves the very bytes of work that is not.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar

from afterword.corpus.lock import FolderLock
from afterword.errors import MismatchError, MissingPartError, SettingError, WorkError

if TYPE_CHECKING:
    from typing_extensions import Self

REDO = "delete it and every later shard, and run again: what they held is redone"


class ShardFolder(ABC):
    """A folder of shards `part-00000`, `part-00001`, …, all but the last full.

    One process at a time may write; it holds a lock from its first write to `close`. Any number may read meanwhile.

    Args:
        folder: Where the shards are; made at the first write.
        records_per_shard: How many records fill a shard. The same for the life of the folder.

    Raises:
        SettingError: `records_per_shard` is not positive.
    """

    suffix: ClassVar[str]

    def __init__(self, folder: str | Path, records_per_shard: int) -> None:
        if records_per_shard < 1:
            raise SettingError(f"records_per_shard is {records_per_shard}, it must be at least 1")
        self.folder = Path(folder)
        self.records_per_shard = records_per_shard
        self._lock = FolderLock(self.folder)
        self._file: FileIO | None = None
        self._shard = 0
        self._filled = 0
        self._recovered = False

    def paths(self) -> list[Path]:
        """Return the shards in order.

        Raises:
            MissingPartError: A shard between two others is not there.
        """
        found = {path.name: path for path in self.folder.glob(f"part-*{self.suffix}")}
        paths = [self._path(number) for number in range(len(found))]
        for path in paths:
            if path.name not in found:
                raise MissingPartError(f"{path} is missing, but {max(found)} is there")
        return paths

    def recover(self) -> int:
        """Check every record, cut off one that a kill tore, and make ready to append.

        Returns:
            How many bytes were cut off; 0 when the last writer finished.

        Raises:
            WorkError: Another process is writing.
            CorruptError: A record other than the last is damaged; its shard and number are named.
            MismatchError: The folder was filled by shards of another length, or another dimension.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock.acquire()
        try:
            self._close_file()
            self._prepare()
            dropped = self._check_all()
        except BaseException:
            self.close()
            raise
        self._recovered = True
        return dropped

    def cut_to(self, records: int) -> None:
        """Take away everything behind the first records; recovers first where that was not done.

        Shards go from the last to the first, so that a kill in between leaves no gap.

        Raises:
            MissingPartError: There are fewer records.
        """
        if not self._recovered:
            self.recover()
        self._close_file()
        if records > (there := self._shard * self.records_per_shard + self._filled):
            raise MissingPartError(f"{self.folder} holds {there} records, not {records}")
        shards = -(-records // self.records_per_shard)
        for path in reversed(self.paths()[shards:]):
            path.unlink()
        self._shard = max(0, shards - 1)
        self._filled = records - self._shard * self.records_per_shard
        if records:
            path = self._path(self._shard)
            _cut(path, self._size_of(path, self._filled))

    def close(self) -> None:
        """Bring everything to the disk and let others write."""
        try:
            self._close_file()
        finally:
            self._recovered = False
            self._lock.release()

    def __enter__(self) -> Self:
        """Return the shards; nothing is touched before the first write."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close."""
        self.close()

    def _prepare(self) -> None:  # noqa: B027 (empty because most folders need nothing)
        """Do what has to be done under the lock before anything is read."""

    @abstractmethod
    def _scan(self, path: Path, is_last: bool) -> tuple[int, int]:
        """Return how many sound records a shard starts with, and their bytes; only the last of all may be torn."""

    @abstractmethod
    def _size_of(self, path: Path, records: int) -> int:
        """Return how many bytes the first records of a shard take."""

    def _append(self, records: Sequence[bytes]) -> None:
        """Write records behind those that are there, recovering first where that was not done."""
        if not self._recovered:
            self.recover()
        try:
            start = 0
            while start < len(records):
                room = self.records_per_shard - self._filled
                if not room:
                    self._close_file()
                    self._shard, self._filled = self._shard + 1, 0
                    continue
                piece = records[start : start + room]
                self._write(b"".join(piece))
                self._filled += len(piece)
                start += len(piece)
        except BaseException as error:
            # Nobody knows how far the write came: look at the disk before the next one.
            with suppress(OSError):
                self.close()
            if isinstance(error, OSError):
                raise WorkError(f"writing to {self.folder} failed ({error}); what is whole is kept") from error
            raise

    def _write(self, data: bytes) -> None:
        """Hand all bytes to the system; one call does it but for a full disk or more than 2 GB."""
        if self._file is None:
            self._file = self._path(self._shard).open("ab", buffering=0)
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]

    def _close_file(self) -> None:
        """Close the shard being written, its bytes on the disk: no later shard may be safer than an earlier one."""
        if self._file is not None:
            file, self._file = self._file, None
            with file:
                os.fsync(file.fileno())

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:05d}{self.suffix}"

    def _check_all(self) -> int:
        """Look at every shard, cut the last to its sound records, and return how many bytes that took."""
        paths = self.paths()
        dropped = self._shard = self._filled = 0
        for number, path in enumerate(paths):
            is_last = number == len(paths) - 1
            records, size = self._scan(path, is_last)
            self._check_filling(path, records, is_last)
            if is_last:
                dropped = _cut(path, size)
                self._shard, self._filled = number, records
        return dropped

    def _check_filling(self, path: Path, records: int, is_last: bool) -> None:
        if records > self.records_per_shard or (records < self.records_per_shard and not is_last):
            raise MismatchError(f"{path} holds {records} records, a full shard was to hold {self.records_per_shard}")


def _cut(path: Path, size: int) -> int:
    """Shorten a shard to its sound records, remove it if there is none, and return how many bytes went.

    The shard goes to the disk even if nothing is cut: its writer may have been killed before it could do that.
    """
    dropped = path.stat().st_size - size
    if not size:
        path.unlink()
        return dropped
    with path.open("rb+") as file:
        file.truncate(size)
        os.fsync(file.fileno())
    return dropped
