"""The alignment head, fitted once more when the steps are done."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import afterword.training.train as stage
from afterword.backbone.backbone import Backbone
from afterword.training.train import TrainResult
from tests.training.test_train import equal, log, run, saved
from tests.training.world import quick

SETTINGS = quick(warm_start=True, refit=True)


def test_it_comes_last_and_is_measured(tmp_path: Path, backbone: Backbone) -> None:
    result = run(tmp_path, backbone, SETTINGS)
    assert [(event["event"], event["step"]) for event in log(tmp_path)][-3:] == [
        ("validation", result.steps),
        ("refit", result.steps + 1),
        ("validation", result.steps + 1),
    ]


def test_no_other_alignment_head_fits_the_training_examples_better(tmp_path: Path, backbone: Backbone) -> None:
    """Of the heads that training passed through, the last has the least penalised error on what it was fitted to."""
    run(tmp_path, backbone, SETTINGS)
    before = saved(tmp_path, "checkpoints/step-000003/weights.safetensors")
    after = saved(tmp_path)
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert same == {"tokens", "recon.weight", "recon.bias"}
    events = {event["step"]: event for event in log(tmp_path) if event["event"] == "refit"}
    assert np.isfinite(events[4]["error"])


def test_killed_before_it_the_run_ends_the_same(
    tmp_path: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "whole", backbone, SETTINGS)
    fit, calls = stage.fit_alignment, []

    def dies(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return fit(*arguments)

    monkeypatch.setattr(stage, "fit_alignment", dies)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed", backbone, SETTINGS)
    result: TrainResult = run(tmp_path / "killed", backbone, SETTINGS)
    assert result.resumed_from == 3
    assert equal(saved(tmp_path / "killed"), saved(tmp_path / "whole"))
    assert log(tmp_path / "killed") == log(tmp_path / "whole")


def test_a_finished_run_is_not_fitted_again(
    tmp_path: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, backbone, SETTINGS)
    before = log(tmp_path)
    monkeypatch.setattr(stage, "fit_alignment", None)
    assert run(tmp_path, backbone, SETTINGS).resumed_from == 4
    assert log(tmp_path) == before
