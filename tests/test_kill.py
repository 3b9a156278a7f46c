"""Real processes, killed at random moments of responding, targeting and training, and run again (CASES C47, C51)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.lives import STEPS

ROOT = Path(__file__).parents[1]

LAST = (f"step-{STEPS:06d}", f"step-{STEPS + 1:06d}")  # the last step, and the head fitted once more behind it

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


def lives(*arguments: str) -> str:
    """Run the module of lives and return what it prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.lives", *arguments], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def events(run: Path) -> list[dict[str, Any]]:
    """The log without the time that steps took."""
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "s"} for line in lines]


@pytest.mark.parametrize("seed", [1])
def test_killed_again_and_again_everything_equals_an_undisturbed_run_bit_for_bit(seed: int, tmp_path: Path) -> None:
    places = json.loads(lives("kill", str(tmp_path), str(seed)))
    met = Counter(stage for stage, was_alive, _ in places if was_alive)
    assert all(met[stage] >= least for stage, least in {"respond": 4, "target": 2, "train": 5, "checkpoint": 2}.items())
    assert any(far["respond"] > 0 and not far["target"] for _, _, far in places)
    assert len({far["train"] for _, _, far in places}) > 4

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for part in (
        "responses/part-00000.jsonl",
        "targets/part-00000.vec",
        "targets/statistics.safetensors",
        "run/model/model.safetensors",
        "run/model/afterword.json",
        "run/checkpoints/step-000000/weights.safetensors",
        *(f"run/checkpoints/{name}/weights.safetensors" for name in LAST),
        *(f"run/checkpoints/{name}/optimizer.safetensors" for name in LAST),
    ):
        assert (killed / part).read_bytes() == (whole / part).read_bytes(), part
    assert events(killed / "run") == events(whole / "run")
    for run in (whole, killed):
        names = {path.name for path in (run / "run" / "checkpoints").iterdir()}
        assert names == {"step-000000", *LAST}


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    """Each takes half of every step; weights and log are those of one process, but for the order of summing."""
    lives("share", str(tmp_path))
    one, two = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("one", "two"))
    start = load_file(tmp_path / "one" / "checkpoints" / "step-000000" / "weights.safetensors")
    for name, tensor in one.items():
        moved = float((tensor - start[name]).abs().max())
        assert (moved > 0) != name.startswith("space."), name  # the statistics of the targets are not trained
        if not moved:
            assert torch.equal(two[name], tensor)
            continue
        rounding = 1e-5 * max(1.0, float(tensor.abs().max()))
        assert float((two[name] - tensor).abs().max()) < min(rounding, 1e-3 * moved), name
    alone, shared = events(tmp_path / "one"), events(tmp_path / "two")
    assert [(event["event"], event["step"]) for event in shared] == [(event["event"], event["step"]) for event in alone]
    for mine, other in zip(alone, shared, strict=True):
        assert {k: v for k, v in other.items() if k != "event"} == pytest.approx(
            {k: v for k, v in mine.items() if k != "event"}, rel=1e-3
        )
