"""How far an index was finished: written last, so that what it says is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from afterword.corpus.manifest import write_whole
from afterword.errors import CorruptError, MissingPartError

FILE_NAME = "state.json"


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write the state, whole or not at all."""
    write_whole(folder / FILE_NAME, json.dumps(state) + "\n")


def find_state(folder: Path) -> dict[str, Any] | None:
    """Return the state of an index, None where it was never finished.

    Raises:
        CorruptError: It cannot be read.
    """
    path = folder / FILE_NAME
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CorruptError(f"{path} cannot be read: {error}") from error
    if not isinstance(state, dict) or not all(type(state.get(key)) is int for key in ("rows", "documents")):
        raise CorruptError(f"{path} does not say how many documents there are")
    return state


def read_state(folder: Path) -> dict[str, Any]:
    """Return the state of a finished index.

    Raises:
        MissingPartError: It was never finished.
        CorruptError: The state cannot be read.
    """
    state = find_state(folder)
    if state is None:
        raise MissingPartError(f"{folder} is not finished: run `afterword index` again, it goes on where it was")
    return state
