"""A kill at any moment, and at any byte, costs nothing but the chunk that was at work."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from afterword.search.index import Index
from afterword.search.numpy_store import NumpyStore
from tests.search.lives import COUNT
from tests.search.world import STORES, WordEncoder, make, opened, some_documents

ROOT = Path(__file__).parents[2]
QUERIES = ["river bread", "salt", "poem song window"]


def parts(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("part-*"))}


def found(folder: Path) -> list[list[tuple[str, float, str]]]:
    index = Index.open(folder, WordEncoder())
    return [[(hit.id, hit.score, hit.text) for hit in hits] for hits in index.search(QUERIES, 50)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize("store", STORES)
def test_killed_again_and_again_an_index_equals_an_undisturbed_one(store: str, tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "tests.search.lives", str(tmp_path), store, "3"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    places = json.loads(done.stdout)
    assert sum(met for met, _ in places) >= 2, places
    assert len({size for _, size in places}) > 1, places
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert parts(killed) == parts(whole)
    assert json.loads((killed / "state.json").read_text())["documents"] == COUNT
    if store == "faiss":  # its graph depends on which thread comes first, and on one core not even on that
        assert [{name for name, _, _ in hits} for hits in found(killed)] == [
            {name for name, _, _ in hits} for hits in found(whole)
        ]
    else:
        assert found(killed) == found(whole)


@pytest.mark.parametrize("seed", range(12))
def test_cut_at_any_byte_the_rest_is_done_again_and_every_byte_is_the_same(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kill, or a full disk, may leave: each of the two files ends anywhere, and nothing says it is finished."""
    monkeypatch.setattr(NumpyStore, "chunk", 8)
    draw, documents = random.Random(seed), some_documents(45)
    make(tmp_path / "whole", documents)
    for cut in range(6):
        folder = tmp_path / f"cut{cut}"
        shutil.copytree(tmp_path / "whole", folder)
        (folder / "state.json").unlink()
        for path in folder.rglob("part-*"):
            os.truncate(path, draw.randint(0, path.stat().st_size))
        make(folder, documents)
        assert parts(folder) == parts(tmp_path / "whole")
        assert (folder / "state.json").read_bytes() == (tmp_path / "whole" / "state.json").read_bytes()


def test_an_addition_that_was_cut_leaves_the_finished_part_searchable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NumpyStore, "chunk", 8)
    documents = some_documents(45)
    make(tmp_path / "index", documents[:21])
    before = found(tmp_path / "index")
    make(tmp_path / "whole", documents[:21])
    make(tmp_path / "whole", documents)

    class Stops(WordEncoder):
        def encode(self, inputs: object, prompt: str | None = None, **options: object) -> object:
            if len(self.asked) == 2:
                raise KeyboardInterrupt
            return super().encode(inputs, prompt, **options)  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "index", documents, Stops())
    assert len(opened(tmp_path / "index").search("salt", 99)) == 21
    assert found(tmp_path / "index") == before
    tally = make(tmp_path / "index", documents)
    assert (tally.unchanged, tally.added) == (37, 8)
    assert parts(tmp_path / "index") == parts(tmp_path / "whole")
