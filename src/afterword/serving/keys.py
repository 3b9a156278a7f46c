"""API keys: where they come from, and who is let in.

Only SHA-256 hashes are kept, and a key that is shown is compared with all of them in constant time. No key is logged.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Iterable
from pathlib import Path

from afterword.errors import MissingPartError, SettingError

VARIABLE = "AFTERWORD_API_KEYS"
_HASHED = "sha256:"


class Keys:
    """The keys that are let in.

    Args:
        entries: Keys, or `sha256:` and the hash of a key in hexadecimal digits.

    Raises:
        SettingError: An entry is no hash although it says so.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._hashes = tuple(_hash_of(entry) for entry in entries)

    def __len__(self) -> int:
        return len(self._hashes)

    def admit(self, authorization: bytes) -> bool:
        """Return whether a header `Authorization` holds one of the keys: `Bearer KEY`."""
        scheme, _, key = authorization.partition(b" ")
        shown = hashlib.sha256(key.strip()).digest()
        found = [hmac.compare_digest(shown, known) for known in self._hashes]  # all of them, whichever matches
        return scheme.lower() == b"bearer" and any(found)


def read_keys(file: str | Path | None = None) -> Keys | None:
    """Read keys from the variable `AFTERWORD_API_KEYS` (commas or spaces between) and from a file (one a line).

    Args:
        file: A text file; lines that begin with # are left out.

    Returns:
        The keys of both, or None where neither is given: then the server is open.

    Raises:
        MissingPartError: There is no such file.
        SettingError: What was given holds no key; a server that should be closed must not be open by mistake.
    """
    entries: list[str] = []
    named = os.environ.get(VARIABLE)
    if named is not None:
        entries += _some([entry for entry in re.split(r"[\s,]+", named) if entry], f"the variable {VARIABLE}")
    if file is not None:
        if not Path(file).is_file():
            raise MissingPartError(f"there is no file {file} with API keys")
        lines = [line.strip() for line in Path(file).read_text(encoding="utf-8").splitlines()]
        entries += _some([line for line in lines if line and not line.startswith("#")], f"the file {file}")
    return Keys(entries) if entries else None


def _some(entries: list[str], source: str) -> list[str]:
    if not entries:
        raise SettingError(f"{source} holds no API key: put one there, or take it away to serve without keys")
    return entries


def _hash_of(entry: str) -> bytes:
    if not entry.startswith(_HASHED):
        return hashlib.sha256(entry.encode()).digest()
    digits = entry.removeprefix(_HASHED)
    if not re.fullmatch(r"[0-9a-fA-F]{64}", digits):
        raise SettingError(f"an API key begins with {_HASHED} and is not 64 hexadecimal digits behind it")
    return bytes.fromhex(digits)
