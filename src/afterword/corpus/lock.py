"""One writer a folder: a lock that the operating system lets go of when its holder dies."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from pathlib import Path

from afterword.errors import WorkError

FILE_NAME = ".lock"


class FolderLock:
    """A lock on a folder, held from `acquire` to `release` or the end of the process.

    The lock is on an open file and not in the file's existence, so a killed process leaves nothing to clean up. The
    file itself stays: removing it would let two writers lock two files of one name.

    Args:
        folder: An existing folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock; holding it already is fine.

        Raises:
            WorkError: Another writer holds it; the folder and the holder are named.
        """
        if self._descriptor is not None:
            return
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(descriptor)
        except (BlockingIOError, PermissionError) as error:
            os.lseek(descriptor, 0, os.SEEK_SET)
            holder = os.read(descriptor, 200).decode("utf-8", "replace").strip()
            os.close(descriptor)
            who = f"another process ({holder or 'unknown'})"
            raise WorkError(f"{who} is writing to {self._path.parent}: wait for it, or stop it") from error
        except OSError:
            # A file system without locks (some network mounts): work on, the user knows about their own processes.
            pass
        self._descriptor = descriptor
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode())

    def release(self) -> None:
        """Let go of the lock; not holding it is fine."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            _unlock(descriptor)
            os.close(descriptor)


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        """Lock a byte far behind the text, which other processes could not read otherwise."""
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)

    def _unlock(descriptor: int) -> None:
        """Do nothing: closing unlocks."""

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        """Unlock in words: a forked child has the file open too, so that closing ours would not."""
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
