"""One loop for everything that is trained here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from afterword.backbone.batch import by_length
from afterword.corpus.lock import FolderLock
from afterword.errors import ArtefactError, WorkError
from afterword.training.objective import Objective
from afterword.training.order import step_indices, total_steps
from afterword.training.run_folder import Checkpoint, RunFolder, optimizer_tensors, restore_optimizer
from afterword.training.settings import LoopSettings

Report = Callable[[int, int, Mapping[str, float]], None]


@dataclass
class Loop:
    """AdamW over an objective: accumulation, clipping, linear schedule, measuring, checkpoints.

    The parameters are few, so processes do not wrap the model: each takes a share of every step, and the gradients are
    summed. Everything random is a function of seed and step; a run that was cut goes on to the same weights, bit for
    bit in float32 on a CPU.

    Attributes:
        objective: What is minimised.
        settings: How.
        folder: Where the run is kept.
        accelerator: Processes and device.
        report: Called after each step with the step, the number of steps and the losses.
        sizes: What the learning rate is multiplied by, for each parameter by name; 1 where nothing is said. Kept in
            every checkpoint.
    """

    objective: Objective
    settings: LoopSettings
    folder: RunFolder
    accelerator: Accelerator
    report: Report | None = None
    sizes: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.module = self.objective.trainable()
        self.names: dict[Tensor, str] = {parameter: name for name, parameter in self.module.named_parameters()}
        groups = [{"params": [parameter], "name": name} for name, parameter in self.module.named_parameters()]
        self.optimizer = torch.optim.AdamW(groups, lr=self.settings.lr, weight_decay=self.settings.weight_decay)
        self.steps = total_steps(len(self.objective), self.settings.batch_size, self.settings.epochs)

    def run(self, start: int | None = None) -> None:
        """Train from a step to the end. Without a step, begin: the start is measured and kept as a checkpoint.

        Raises:
            WorkError: The loss is not finite; the step is named.
        """
        if start is None:
            self.mark(0)
        for step in range(start or 0, self.steps):
            began = time.perf_counter()
            losses = self.step(step)
            done = step + 1
            self._log(
                {"event": "step", "step": done, "lr": self._rate(step), "s": time.perf_counter() - began, **losses}
            )
            if self.report:
                self.report(done, self.steps, losses)
            if done % self.settings.eval_every == 0 or done == self.steps:
                self._measure(done)
            if done % self.settings.save_every == 0 or done == self.steps:
                self._save(done)

    def mark(self, step: int) -> None:
        """Measure, and keep a checkpoint."""
        self._measure(step)
        self._save(step)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Put a run back to where a checkpoint was taken."""
        self.module.load_state_dict(checkpoint.weights)
        self.sizes = checkpoint.notes["sizes"]
        restore_optimizer(self.optimizer, self.names, checkpoint.optimizer)
        torch.set_rng_state(checkpoint.rng)
        if self.accelerator.is_main_process:
            self.folder.rewind(checkpoint.step)

    def step(self, step: int) -> dict[str, float]:
        """Do one step: its batch in passes, gradients of all processes, clipping, optimizer. Nothing is logged."""
        indices = step_indices(step, len(self.objective), self.settings.batch_size, self.settings.seed)
        passes = self._passes(indices[self.accelerator.process_index :: self.accelerator.num_processes])
        plan = self.objective.plan(indices, step, passes)
        self.optimizer.zero_grad()
        sums: dict[str, Tensor] = {}
        for part in passes:
            loss, named = self.objective.loss(part, plan)
            self.accelerator.backward(loss)
            for name, value in {"loss": loss.detach(), **named}.items():
                sums[name] = sums.get(name, torch.zeros_like(value)) + value
        losses = self._together(sums)
        if not all(map(_finite, losses.values())):
            raise WorkError(f"step {step + 1}: the loss is {losses}; lower lr, or take dtype float32")
        losses["gradient"] = float(torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.settings.clip))
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate(step) * self.sizes.get(group["name"], 1.0)
        self.optimizer.step()
        return losses

    def _passes(self, indices: Sequence[int]) -> list[list[int]]:
        lengths = [self.objective.cost(i) for i in indices]
        groups = by_length(lengths, len(lengths), self.settings.tokens_per_pass, packed=self.objective.packed)
        return [[indices[place] for place in group] for group in groups]

    def _together(self, sums: dict[str, Tensor]) -> dict[str, float]:
        """Sum gradients and losses over the processes."""
        if self.accelerator.num_processes > 1:
            for parameter in self.module.parameters():
                gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
                parameter.grad = self.accelerator.reduce(gradient, "sum")
            everywhere = {name: sums.get(name, torch.zeros((), device=self.accelerator.device)) for name in self._parts}
            sums = {name: self.accelerator.reduce(value, "sum") for name, value in everywhere.items()}
        return {name: float(value) for name, value in sums.items()}

    @property
    def _parts(self) -> tuple[str, ...]:
        return ("loss", *self.objective.parts)

    def _rate(self, step: int) -> float:
        """Return the learning rate of a step: up over the warm-up, then down in a line to 0 behind the last step."""
        warm = min(self.settings.warmup_steps, self.steps - 1)
        if step < warm:
            return self.settings.lr * (step + 1) / (warm + 1)
        return self.settings.lr * (self.steps - step) / (self.steps - warm)

    def _measure(self, step: int) -> None:
        if self.accelerator.is_main_process:
            measures = self.objective.validate()
            if measures:
                self._log({"event": "validation", "step": step, **measures})
        self.accelerator.wait_for_everyone()

    def _log(self, event: dict[str, Any]) -> None:
        if self.accelerator.is_main_process:
            self.folder.log(event)
            numbers = {f"{event['event']}/{k}": v for k, v in event.items() if isinstance(v, float)}
            self.accelerator.log(numbers, step=event["step"])

    def _save(self, step: int) -> None:
        if self.accelerator.is_main_process:
            moments = optimizer_tensors(self.optimizer, self.names)
            notes = {"sizes": self.sizes}
            self.folder.save(Checkpoint(step, self.module.state_dict(), moments, torch.get_rng_state(), notes))
        self.accelerator.wait_for_everyone()


def _finite(value: float) -> bool:
    return value == value and abs(value) != float("inf")


@contextmanager
def held_run(loop: Loop, refuse: bool) -> Iterator[Checkpoint | None]:
    """Hold the lock of a run's folder, and read where the run stands only then: until then its holder may have gone on.

    The other processes of this run read what the main one reads: when the lock is taken, and before a step is done.

    Args:
        loop: The loop of the run.
        refuse: Refuse a folder in which a run has begun.

    Yields:
        The checkpoint to go on from, if there is one.

    Raises:
        WorkError: Another process holds the folder.
        ArtefactError: A run has begun, and is refused.
    """
    lock, folder = FolderLock(loop.folder.path), loop.folder.path
    try:
        if loop.accelerator.is_main_process:
            lock.acquire()
        loop.accelerator.wait_for_everyone()
        checkpoint = loop.folder.latest()
        loop.accelerator.wait_for_everyone()
        if checkpoint and refuse:
            raise ArtefactError(f"{folder} holds a run at step {checkpoint.step}: resume it, or choose another --out")
        yield checkpoint
    finally:
        lock.release()
