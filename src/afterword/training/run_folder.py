"""The folder that one training writes: manifest, log, checkpoints, and in the end the model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from afterword.corpus.manifest import write_whole
from afterword.errors import CorruptError

KEEP = 2


@dataclass(frozen=True)
class Checkpoint:
    """A moment of a run from which it goes on as if it had never stopped.

    Attributes:
        step: Steps done.
        weights: The trained parameters.
        optimizer: Moments and counters of the optimizer, by parameter name.
        rng: State of torch's generator.
        notes: Anything else that the run needs to remember.
    """

    step: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    rng: Tensor
    notes: dict[str, Any]


class RunFolder:
    """Reads and writes the parts of a run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.log_file = self.path / "log.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.model = self.path / "model"
        self.path.mkdir(parents=True, exist_ok=True)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint aside and rename it, so that a folder under the final name is always whole."""
        self.checkpoints.mkdir(exist_ok=True)
        scratch = self.checkpoints / ".writing"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        save_file(
            {k: v.detach().cpu().contiguous() for k, v in checkpoint.weights.items()}, scratch / "weights.safetensors"
        )
        save_file(checkpoint.optimizer, scratch / "optimizer.safetensors")
        save_file({"rng": checkpoint.rng}, scratch / "rng.safetensors")
        state = json.dumps({"step": checkpoint.step, "notes": checkpoint.notes})
        (scratch / "state.json").write_text(state, encoding="utf-8")
        final = self.checkpoints / f"step-{checkpoint.step:06d}"
        shutil.rmtree(final, ignore_errors=True)
        scratch.rename(final)
        for old in self._steps()[1:-KEEP]:  # the first is kept too: it holds the model before gradient training
            shutil.rmtree(old)

    def latest(self) -> Checkpoint | None:
        """Return the newest checkpoint, if there is one.

        Raises:
            CorruptError: It cannot be read.
        """
        steps = self._steps()
        return self._read(steps[-1]) if steps else None

    def first(self) -> Checkpoint | None:
        """Return the checkpoint taken before the first step, if there is one."""
        steps = self._steps()
        return self._read(steps[0]) if steps else None

    def _read(self, folder: Path) -> Checkpoint:
        try:
            state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            return Checkpoint(
                state["step"],
                load_file(folder / "weights.safetensors"),
                load_file(folder / "optimizer.safetensors"),
                load_file(folder / "rng.safetensors")["rng"],
                state["notes"],
            )
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise CorruptError(f"{folder} cannot be read ({error}): remove it to go on from the one before") from None

    def log(self, event: Mapping[str, Any]) -> None:
        """Add a line to the log."""
        with self.log_file.open("a", encoding="utf-8") as log:
            log.write(json.dumps(event) + "\n")

    def events(self) -> list[dict[str, Any]]:
        """Return the whole lines of the log; one that a kill cut short is passed over."""
        if not self.log_file.is_file():
            return []
        lines = self.log_file.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def measures(self) -> list[dict[str, Any]]:
        """Return what the log says of measurements, first to last."""
        return [event for event in self.events() if event["event"] == "validation"]

    def rewind(self, step: int) -> None:
        """Drop what the log says of steps after a checkpoint: they will be done again."""
        kept = [event for event in self.events() if event["step"] <= step]
        write_whole(self.log_file, "".join(json.dumps(event) + "\n" for event in kept))

    def _steps(self) -> list[Path]:
        return sorted(self.checkpoints.glob("step-*")) if self.checkpoints.is_dir() else []


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
    """Return an optimizer's state as named tensors, so that it needs no pickle."""
    return {
        f"{names[parameter]}/{key}": value.detach().cpu().contiguous()
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str], tensors: Mapping[str, Tensor]
) -> None:
    """Put back what `optimizer_tensors` returned."""
    for parameter, name in names.items():
        prefix = f"{name}/"
        state = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        for key, value in state.items():
            optimizer.state[parameter][key] = value if key == "step" else value.to(parameter.device)
