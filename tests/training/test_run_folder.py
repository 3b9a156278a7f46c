"""The folder that one training writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from afterword.errors import CorruptError
from afterword.training.run_folder import Checkpoint, RunFolder, optimizer_tensors, restore_optimizer


def checkpoint(step: int, **changes: Any) -> Checkpoint:
    values: dict[str, Any] = {
        "step": step,
        "weights": {"w": torch.full((2, 3), float(step))},
        "optimizer": {"w/exp_avg": torch.full((2, 3), step + 0.5)},
        "rng": torch.get_rng_state(),
        "notes": {"best": 0.25, "name": "café"},
    }
    return Checkpoint(**{**values, **changes})


def steps(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in folder.checkpoints.iterdir())


def same(found: Checkpoint | None, wanted: Checkpoint) -> bool:
    assert found is not None
    return (
        (found.step, found.notes) == (wanted.step, wanted.notes)
        and all(torch.equal(found.weights[name], wanted.weights[name]) for name in wanted.weights)
        and all(torch.equal(found.optimizer[name], wanted.optimizer[name]) for name in wanted.optimizer)
        and torch.equal(found.rng, wanted.rng)
    )


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    kept = checkpoint(3)
    folder.save(kept)
    torch.rand(1)
    assert same(RunFolder(tmp_path).latest(), kept)
    assert {path.suffix for path in (folder.checkpoints / "step-000003").iterdir()} == {".json", ".safetensors"}


def test_a_new_folder_has_no_checkpoints_and_no_events(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "deep" / "run")
    assert (folder.latest(), folder.first(), folder.events()) == (None, None, [])


def test_the_first_and_the_last_two_are_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in (0, 2, 4, 6, 10):
        folder.save(checkpoint(step))
    assert steps(folder) == ["step-000000", "step-000006", "step-000010"]
    assert same(folder.latest(), checkpoint(10))
    assert same(folder.first(), checkpoint(0))


def test_what_a_kill_left_half_written_is_no_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.save(checkpoint(2))
    (folder.checkpoints / ".writing").mkdir()
    (folder.checkpoints / ".writing" / "weights.safetensors").write_bytes(b"half")
    assert same(folder.latest(), checkpoint(2))
    folder.save(checkpoint(4))
    assert steps(folder) == ["step-000002", "step-000004"]
    assert same(folder.latest(), checkpoint(4))


@pytest.mark.parametrize("part", ["state.json", "weights.safetensors", "optimizer.safetensors", "rng.safetensors"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_checkpoint_is_named_with_the_way_out(part: str, damage: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.save(checkpoint(2))
    folder.save(checkpoint(4))
    file = folder.checkpoints / "step-000004" / part
    file.write_bytes(file.read_bytes()[:9]) if damage == "cut" else file.unlink()
    with pytest.raises(CorruptError, match=r"step-000004 cannot be read .*: remove it to go on from the one before"):
        folder.latest()
    for path in (folder.checkpoints / "step-000004").iterdir():
        path.unlink()
    (folder.checkpoints / "step-000004").rmdir()
    assert same(folder.latest(), checkpoint(2))


def test_the_log_is_lines_of_json_and_a_torn_one_is_passed_over(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    events = [{"event": "step", "step": step, "loss": step / 3} for step in (1, 2)]
    for event in events:
        folder.log(event)
    assert [json.loads(line) for line in folder.log_file.read_text().splitlines()] == events
    with folder.log_file.open("ab") as file:
        file.write(b'{"event": "step", "st')
    assert folder.events() == events


def test_rewinding_drops_what_came_after_and_what_was_torn(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in (0, 1, 2, 3):
        folder.log({"event": "step", "step": step})
    with folder.log_file.open("ab") as file:
        file.write(b'{"event"')
    folder.rewind(2)
    folder.log({"event": "step", "step": 3, "again": True})
    assert [event["step"] for event in folder.events()] == [0, 1, 2, 3]
    assert folder.events()[-1]["again"]
    folder.rewind(-1)
    assert folder.log_file.read_bytes() == b""


def test_an_optimizer_goes_on_from_its_tensors_as_if_nothing_had_happened() -> None:
    def start() -> tuple[nn.Linear, torch.optim.AdamW]:
        torch.manual_seed(0)
        layer = nn.Linear(3, 2)
        return layer, torch.optim.AdamW(layer.parameters(), lr=0.1)

    def steps(layer: nn.Linear, optimizer: torch.optim.AdamW, count: range) -> None:
        for step in count:
            optimizer.zero_grad()
            layer(torch.full((1, 3), float(step))).square().sum().backward()
            optimizer.step()

    straight, resumed = start(), start()
    steps(*straight, range(1, 6))
    steps(*resumed, range(1, 3))
    layer, optimizer = start()
    layer.load_state_dict(resumed[0].state_dict())
    tensors = optimizer_tensors(resumed[1], {p: n for n, p in resumed[0].named_parameters()})
    assert sorted(tensors) == [
        f"{name}/{key}" for name in ("bias", "weight") for key in ("exp_avg", "exp_avg_sq", "step")
    ]
    restore_optimizer(optimizer, {p: n for n, p in layer.named_parameters()}, tensors)
    steps(layer, optimizer, range(3, 6))
    assert torch.equal(layer.weight, straight[0].weight)
    assert torch.equal(layer.bias, straight[0].bias)
