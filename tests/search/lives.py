"""Indexing in real processes that are killed again and again.

python -m tests.search.lives FOLDER STORE SEED     the whole work in FOLDER/whole, the same with kills in FOLDER/killed
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from afterword.search.numpy_store import NumpyStore
from tests.lives import Life
from tests.search.world import WordEncoder, make, some_documents

COUNT, FIRST, CHUNK = 600, 300, 16
KILLS = {"numpy": 7, "faiss": 5, "lancedb": 4}  # each life imports what its store needs


class SlowEncoder(WordEncoder):
    """Takes some milliseconds for each chunk, as a real one takes seconds."""

    def encode(self, inputs: Sequence[str], prompt: str | None = None, **options: Any) -> Any:
        time.sleep(0.01)
        return super().encode(inputs, prompt, **options)


def work(folder: Path, store: str) -> None:
    """Index half of the documents, then all of them, two of them anew."""
    NumpyStore.chunk = CHUNK
    if store == "lancedb":
        from afterword.search.lancedb_store import LanceStore

        LanceStore.chunk = CHUNK
    if store == "faiss":
        from afterword.search.faiss_store import FaissStore

        FaissStore.chunk = CHUNK
    documents = some_documents(COUNT)
    if not (folder / "state.json").is_file():
        make(folder, documents[:FIRST], SlowEncoder(), store=store)
    changed = [*some_documents(2, seed=1), *documents[2:]]
    make(folder, changed, SlowEncoder(), store=store, replace=True)


def begin(folder: Path, store: str) -> Life:
    """Start, and wait until the imports are done and the index is being written."""
    life, lock = Life(work, folder, store), folder / ".lock"
    while not life.is_over() and not (lock.is_file() and f"process {life.process} " in lock.read_text()):
        time.sleep(0.001)
    return life


def main(folder: Path, store: str, seed: int) -> None:
    """Print for each kill whether it met a living process, and how many bytes the index had then."""
    life, began = begin(folder / "whole", store), time.monotonic()
    life.finish()
    whole, killed, places = time.monotonic() - began, folder / "killed", []
    draw = random.Random(seed)
    for _ in range(KILLS[store]):
        life = begin(killed, store)
        time.sleep(draw.uniform(0.0, 0.4) * whole)
        places.append([life.kill(), sum(path.stat().st_size for path in killed.rglob("*") if path.is_file())])
    Life(work, killed, store).finish()
    print(json.dumps(places))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
