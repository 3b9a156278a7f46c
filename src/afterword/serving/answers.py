"""The bodies of answers, written item by item, away from the event loop where they are long."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
from fastapi import Response
from numpy.typing import NDArray

LONG = 20_000
"""Numbers from which on an answer is written in a thread."""


def numbers(vectors: NDArray[np.float32], form: Literal["float", "base64"]) -> Any:
    """Return vectors as lists of numbers, or as base64 of little-endian float32: the same bits in both forms."""
    if form == "base64":
        return base64.b64encode(np.ascontiguousarray(vectors, dtype="<f4").tobytes()).decode()
    return vectors.tolist()


async def list_answer(kind: str, items: Iterable[dict[str, Any]], cut: list[bool], size: int, **rest: Any) -> Response:
    """Return an answer with a list of items.

    Args:
        kind: What an item is called.
        items: The fields of each item but its index; taken one at a time, since each holds many numbers.
        cut: Whether the text of each item was cut, which is marked.
        size: How many numbers there are in all.
        rest: Fields beside the list.
    """

    def write() -> bytes:
        rows = (
            json.dumps({"object": kind, "index": index, **item, **({"truncated": True} if cut[index] else {})})
            for index, item in enumerate(items)
        )
        return b'{"object": "list", "data": [' + ", ".join(rows).encode() + b"], " + json.dumps(rest).encode()[1:]

    body = await _away(write) if size > LONG else write()
    return Response(body, media_type="application/json")


async def _away(write: Callable[[], bytes]) -> bytes:
    return await asyncio.to_thread(write)
