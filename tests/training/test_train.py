"""The whole training stage: what it changes, what it leaves, and that it goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from afterword.backbone.backbone import Backbone
from afterword.corpus.lock import FolderLock
from afterword.corpus.records import Response
from afterword.errors import ArtefactError, CorruptError, InputError, MismatchError, WorkError
from afterword.model.model import Afterword
from afterword.model.settings import ModelSettings
from afterword.training.settings import TrainSettings
from afterword.training.train import TrainResult, train
from tests.training.world import SHAPE, corpus, counted_targets, quick
from tests.world import make_backbone, weights_of

PARTS = {"tokens", "recon.weight", "recon.bias", "align.weight", "align.bias"}


def run(folder: Path, backbone: Backbone, settings: TrainSettings | None = None, **options: Any) -> TrainResult:
    responses = corpus()
    targets = counted_targets(responses, folder / "targets")
    return train(backbone, responses, targets, folder / "run", SHAPE, settings or quick(), **options)


def log(folder: Path) -> list[dict[str, Any]]:
    """Events without the time that they took."""
    lines = (folder / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "s"} for line in lines]


def saved(folder: Path, part: str = "model/model.safetensors") -> dict[str, Tensor]:
    return load_file(folder / "run" / part)


def equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text"])
def test_only_tokens_and_heads_change(kind: str, tmp_path: Path) -> None:
    """Qwen and Gemma tie their vocabulary head to the embeddings, Llama does not."""
    backbone = make_backbone(kind)
    before = weights_of(backbone.model)
    result = run(tmp_path, backbone)
    assert equal(weights_of(backbone.model), before)
    assert all(not p.requires_grad and p.grad is None for p in backbone.model.parameters())
    assert not backbone.model.training
    start, end = saved(tmp_path, "checkpoints/step-000000/weights.safetensors"), saved(tmp_path)
    assert start.keys() == end.keys() == PARTS
    assert all(not torch.equal(start[name], end[name]) for name in PARTS)
    assert {name for name, _ in result.model.parts.named_parameters()} == PARTS


def test_what_is_saved_is_the_model_that_is_returned(tmp_path: Path, backbone: Backbone) -> None:
    result = run(tmp_path, backbone)
    loaded = Afterword.from_pretrained(str(tmp_path / "run" / "model"), backbone=backbone)
    texts = ["why?", "café ☃"]
    assert np.array_equal(loaded.encode(texts), result.model.encode(texts))
    assert loaded.config.teacher == {"name": "vowels", "fingerprint": "vowels-1", "prompt": ""}
    assert loaded.config.settings == SHAPE


def test_the_model_keeps_its_recipe_and_its_measures_for_the_card(tmp_path: Path, backbone: Backbone) -> None:
    result = run(tmp_path, backbone)
    kept = json.loads((tmp_path / "run" / "model" / "afterword.json").read_text(encoding="utf-8"))["training"]
    assert kept == result.model.config.training
    assert kept["recipe"]["lr"] == quick().lr and "track" not in kept["recipe"]
    assert kept["data"]["held_out"] == quick().validation
    measured = [event for event in log(tmp_path) if event["event"] == "validation"]
    assert kept["measures"] == [
        {k: v for k, v in event.items() if k != "event"} for event in measured[:: len(measured) - 1]
    ]
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert f"lr = {quick().lr}" in card
    assert f"| step {measured[0]['step']} | step {measured[-1]['step']} |" in card


@pytest.mark.parametrize("warm", [True, False])
def test_losses_fall(warm: bool, tmp_path: Path, backbone: Backbone) -> None:
    settings = quick(epochs=15.0, eval_every=15, warm_start=warm, align_reduction="relative", document_share=0.5)
    result = run(tmp_path, backbone, settings)
    steps = [event for event in log(tmp_path) if event["event"] == "step"]
    first, last = steps[:5], steps[-5:]
    for name in ("loss", "recon", "align"):
        assert sum(event[name] for event in last) < 0.9 * sum(event[name] for event in first)
    assert result.validation[-1]["recon"] < result.validation[0]["recon"]


def test_the_warm_start_begins_nearer_to_the_targets(tmp_path: Path, backbone: Backbone) -> None:
    aligned = {}
    for warm in (True, False):
        run(tmp_path / str(warm), backbone, quick(warm_start=warm))
        aligned[warm] = next(event["align"] for event in log(tmp_path / str(warm)) if event["event"] == "step")
    assert aligned[True] < 0.6 * aligned[False]
    assert log(tmp_path / "True")[0]["event"] == "warm_start"


def test_a_run_logs_measures_at_the_start_now_and_then_and_at_the_end(tmp_path: Path, backbone: Backbone) -> None:
    result = run(tmp_path, backbone, quick(epochs=5 / 3, eval_every=2, warm_start=True))
    assert [(event["event"], event["step"]) for event in log(tmp_path)] == [
        ("warm_start", 0),
        ("validation", 0),
        ("step", 1),
        ("step", 2),
        ("validation", 2),
        ("step", 3),
        ("step", 4),
        ("validation", 4),
        ("step", 5),
        ("validation", 5),
    ]
    assert (result.steps, result.resumed_from, result.skipped) == (5, None, 0)
    assert [event["step"] for event in result.validation] == [0, 2, 4, 5]
    assert set(result.validation[0]) == {"event", "step", "recon", "align", "cosine", "retrieval"}


@pytest.mark.parametrize(
    ("warmup", "rates"),
    [
        (0, [0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
        (2, [0.2, 0.4, 0.6, 0.45, 0.3, 0.15]),
        (100, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
    ],
)
def test_the_learning_rate_rises_and_falls(warmup: int, rates: list[float], tmp_path: Path, backbone: Backbone) -> None:
    """Six steps, and a rate so small that nothing but the log shows it."""
    run(tmp_path, backbone, quick(epochs=2.0, warmup_steps=warmup, lr=0.6e-6))
    found = [event["lr"] for event in log(tmp_path) if event["event"] == "step"]
    assert found == pytest.approx([rate * 1e-6 for rate in rates])


def test_the_first_step_goes_as_far_as_its_learning_rate(tmp_path: Path, backbone: Backbone) -> None:
    """AdamW's first step is the learning rate, up or down, in every number that has a gradient worth the name."""
    run(tmp_path, backbone, quick(epochs=1 / 3, lr=2e-3, warmup_steps=0))
    start, end = saved(tmp_path, "checkpoints/step-000000/weights.safetensors"), saved(tmp_path)
    moved = (end["align.weight"] - start["align.weight"]).abs()
    assert float(moved.median()) == pytest.approx(2e-3, rel=1e-3)


def test_a_relative_rate_moves_each_parameter_by_its_share(tmp_path: Path, backbone: Backbone) -> None:
    run(tmp_path, backbone, quick(epochs=1 / 3, lr=2e-3, lr_scale="relative", token_rate=0.5, recon_rate=3.0))
    start, end = saved(tmp_path, "checkpoints/step-000000/weights.safetensors"), saved(tmp_path)
    for name, rate in (("tokens", 0.5), ("recon.weight", 3.0), ("align.weight", 1.0)):
        far = 2e-3 * rate * float(start[name].square().mean().sqrt())
        assert float((end[name] - start[name]).abs().median()) == pytest.approx(far, rel=1e-3), name


class Stop(Exception):
    pass


def stop_at(step: int) -> Any:
    def report(done: int, steps: int, losses: Mapping[str, float]) -> None:
        if done == step:
            raise Stop

    return report


def test_the_report_comes_after_every_step(tmp_path: Path, backbone: Backbone) -> None:
    seen: list[tuple[int, int, set[str]]] = []
    run(tmp_path, backbone, report=lambda step, steps, losses: seen.append((step, steps, set(losses))))
    assert seen == [(step, 3, {"loss", "recon", "align", "gradient"}) for step in (1, 2, 3)]


@pytest.mark.parametrize("stop", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("start", [{"warm_start": True, "lr_scale": "relative"}, {}], ids=["warm", "random"])
def test_stopped_and_run_again_equals_a_straight_run_bit_for_bit(
    stop: int, start: dict[str, Any], tmp_path: Path, backbone: Backbone
) -> None:
    """Six steps, a checkpoint every other: weights, moments, measures and log are the same (CASES C47)."""
    settings = quick(epochs=2.0, save_every=2, eval_every=3, recon_share=0.5, warmup_steps=2, **start)
    run(tmp_path / "straight", backbone, settings)
    with pytest.raises(Stop):
        run(tmp_path / "cut", backbone, settings, report=stop_at(stop))
    torch.manual_seed(stop)  # whatever state the process is in
    result = run(tmp_path / "cut", backbone, settings)
    assert (result.steps, result.resumed_from) == (6, (stop - 1) // 2 * 2)
    for part in (
        "model/model.safetensors",
        "checkpoints/step-000006/weights.safetensors",
        "checkpoints/step-000006/optimizer.safetensors",
        "checkpoints/step-000000/weights.safetensors",
    ):
        assert equal(saved(tmp_path / "cut", part), saved(tmp_path / "straight", part)), part
    assert log(tmp_path / "cut") == log(tmp_path / "straight")
    assert [event["step"] for event in result.validation] == [0, 3, 6]


def test_a_finished_run_is_returned_without_a_step(tmp_path: Path, backbone: Backbone) -> None:
    first = run(tmp_path, backbone)
    before = log(tmp_path)
    again = run(tmp_path, backbone, report=stop_at(1))
    assert again.resumed_from == again.steps == 3
    assert again.validation == first.validation
    assert log(tmp_path) == before
    assert equal(again.model.parts.state_dict(), first.model.parts.state_dict())


def test_a_run_that_another_process_ends_just_before_the_lock_is_taken_is_not_done_again(
    tmp_path: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last checkpoint must be read behind the lock; what was there before it is out of date."""
    settings = quick(save_every=1)
    with pytest.raises(Stop):
        run(tmp_path, backbone, settings, report=stop_at(2))
    taken, others = FolderLock.acquire, [settings]

    def acquire(lock: FolderLock) -> None:
        if others and lock._path.parent.name == "run":
            run(tmp_path, make_backbone("llama"), others.pop())
        taken(lock)

    monkeypatch.setattr(FolderLock, "acquire", acquire)
    result = run(tmp_path, backbone, settings, report=stop_at(2))
    assert not others
    assert (result.steps, result.resumed_from) == (3, 3)
    assert [event["step"] for event in log(tmp_path) if event["event"] == "step"] == [1, 2, 3]


def test_a_log_line_torn_by_a_kill_is_written_again(tmp_path: Path, backbone: Backbone) -> None:
    settings = quick(save_every=1)
    run(tmp_path / "straight", backbone, settings)
    with pytest.raises(Stop):
        run(tmp_path / "cut", backbone, settings, report=stop_at(2))
    with (tmp_path / "cut" / "run" / "log.jsonl").open("ab") as file:
        file.write(b'{"event": "step", "step": 3, "lo')
    run(tmp_path / "cut", backbone, settings)
    assert log(tmp_path / "cut") == log(tmp_path / "straight")


def test_a_damaged_checkpoint_is_named_and_without_it_the_run_goes_on(tmp_path: Path, backbone: Backbone) -> None:
    settings = quick(save_every=1)
    run(tmp_path / "straight", backbone, settings)
    with pytest.raises(Stop):
        run(tmp_path / "cut", backbone, settings, report=stop_at(3))
    newest = tmp_path / "cut" / "run" / "checkpoints" / "step-000002"
    (newest / "weights.safetensors").write_bytes(b"damaged")
    with pytest.raises(CorruptError, match=r"step-000002 cannot be read .*: remove it to go on from the one before"):
        run(tmp_path / "cut", backbone, settings)
    for path in newest.iterdir():
        path.unlink()
    newest.rmdir()
    assert run(tmp_path / "cut", backbone, settings).resumed_from == 1
    assert equal(saved(tmp_path / "cut"), saved(tmp_path / "straight"))


def test_without_resume_a_folder_with_a_run_is_refused(tmp_path: Path, backbone: Backbone) -> None:
    run(tmp_path, backbone, resume=False)
    with pytest.raises(ArtefactError, match="holds a run at step 3: resume it, or choose another --out"):
        run(tmp_path, backbone, resume=False)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (quick(lr=0.5), "settings.lr: it has 0.01, you asked for 0.5"),
        (quick(seed=4), "settings.seed: it has 0, you asked for 4"),
        (quick(recon_reduction="sum"), 'recon_reduction: it has "mean", you asked for "sum"'),
    ],
)
def test_other_settings_are_refused_by_name(
    settings: TrainSettings, words: str, tmp_path: Path, backbone: Backbone
) -> None:
    run(tmp_path, backbone)
    with pytest.raises(MismatchError) as caught:
        run(tmp_path, backbone, settings)
    assert words in str(caught.value)


def test_how_often_it_saves_is_not_what_it_is(tmp_path: Path, backbone: Backbone) -> None:
    run(tmp_path, backbone)
    assert run(tmp_path, backbone, quick(save_every=1)).resumed_from == 3


def test_another_backbone_shape_or_data_is_refused_by_name(tmp_path: Path, backbone: Backbone) -> None:
    run(tmp_path, backbone)
    responses, targets = corpus(), counted_targets(corpus(), tmp_path / "targets")
    other = make_backbone("qwen3")
    with pytest.raises(MismatchError, match=f"sources.backbone.*{backbone.fingerprint}.*{other.fingerprint}"):
        train(other, responses, targets, tmp_path / "run", SHAPE, quick())
    with pytest.raises(MismatchError, match=r"n_compression: it has 3, you asked for 10"):
        train(backbone, responses, targets, tmp_path / "run", ModelSettings(n_thought=2, max_length=60), quick())
    with pytest.raises(MismatchError, match=r"sources\.data"):
        train(backbone, responses[:-1], targets, tmp_path / "run", SHAPE, quick())


def test_empty_responses_are_left_out_and_counted(tmp_path: Path, backbone: Backbone) -> None:
    empty = [Response(f"e{i}", "and?", "", 0, cut=False) for i in range(3)]
    targets = counted_targets(corpus(), tmp_path / "targets")
    mixed = train(backbone, [*empty, *corpus()], targets, tmp_path / "mixed", SHAPE, quick())
    plain = train(backbone, corpus(), targets, tmp_path / "plain", SHAPE, quick())
    assert mixed.skipped == 3
    assert equal(mixed.model.parts.state_dict(), plain.model.parts.state_dict())
    with pytest.raises(InputError, match="none of the 3 responses has any text"):
        train(backbone, empty, targets, tmp_path / "empty", SHAPE, quick())
    assert not (tmp_path / "empty").exists()


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step(tmp_path: Path, backbone: Backbone) -> None:
    responses = corpus()
    targets = counted_targets(responses, tmp_path / "targets", scale=1e30)
    with pytest.raises(WorkError, match=r"step 1: the loss is .*lower lr, or take dtype float32"):
        train(backbone, responses, targets, tmp_path / "run", SHAPE, quick(validation=0))
    weights = saved(tmp_path, "checkpoints/step-000000/weights.safetensors")
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())


def test_fewer_responses_than_a_batch_are_one_batch(tmp_path: Path, backbone: Backbone) -> None:
    responses = corpus(3)
    targets = counted_targets(responses, tmp_path / "targets")
    result = train(
        backbone, responses, targets, tmp_path / "run", SHAPE, quick(batch_size=32, validation=0, epochs=4.0)
    )
    assert (result.steps, result.validation) == (4, [])


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": 0},
        {"tokens_per_pass": 0},
        {"max_response_tokens": 0},
        {"eval_every": 0},
        {"save_every": 0},
        {"lr": 0.0},
        {"epochs": 0.0},
        {"clip": 0.0},
        {"w_recon": -1.0},
        {"w_align": -0.1},
        {"weight_decay": -0.1},
        {"warmup_steps": -1},
        {"validation": -1},
        {"document_share": 1.5},
        {"recon_share": 0.0},
        {"recon_share": 1.1},
        {"position_share": 0.0},
        {"recon_every": 0},
        {"lr": float("nan")},
        {"w_recon": float("nan")},
        {"w_recon": 0.0, "w_align": 0.0},
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        TrainSettings(**change)
