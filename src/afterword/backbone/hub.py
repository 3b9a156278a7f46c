"""A folder here, or a repository on the hub: one way to look and to fetch for models and adapters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from afterword.backbone.offline import hub_is_silent
from afterword.errors import MissingPartError


def has_any(name: str, marks: Sequence[str]) -> bool:
    """Return whether a folder, or a repository on the hub where there is no such folder, holds one of some files."""
    folder = Path(name).expanduser()
    if folder.is_dir() or not _is_hub_name(name):
        return any((folder / mark).is_file() for mark in marks)
    from huggingface_hub import file_exists, try_to_load_from_cache

    if any(isinstance(try_to_load_from_cache(name, mark), str) for mark in marks):
        return True
    if hub_is_silent():
        return False
    try:
        return any(file_exists(name, mark) for mark in marks)
    except Exception:  # no network, no such model: whoever loads it says so in words
        return False


def fetch_folder(name: str, wanted: Sequence[str], what: str, revision: str | None = None, **hub: Any) -> Path:
    """Return a folder, fetched from the hub where there is none of that name.

    Args:
        name: A folder or a hub name.
        wanted: The files that are fetched, and no others.
        what: What it should be, for the message.
        revision: Revision on the hub.
        hub: Further arguments of `huggingface_hub.snapshot_download`.

    Raises:
        MissingPartError: There is no such folder, and the hub gave none.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if not _is_hub_name(name):
        raise MissingPartError(f"no folder {name}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    asked = {"local_files_only": hub_is_silent(), **hub}
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(wanted), **asked))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise MissingPartError(f"no folder {name}, and the hub did not give {what} of that name: {error}") from None


def _is_hub_name(name: str) -> bool:
    return not name.startswith((".", "/", "~")) and name.count("/") == 1
