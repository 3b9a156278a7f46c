"""Timing one piece of work, and the memory it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Timing:
    """Seconds of each repeat, and the most memory while they ran.

    Attributes:
        seconds: One number a repeat.
        process_bytes: Peak of the process's resident memory.
        device_bytes: Peak of what torch held on the accelerator; `None` on a CPU.
    """

    seconds: tuple[float, ...]
    process_bytes: int
    device_bytes: int | None = None

    @property
    def median(self) -> float:
        """Median of the repeats."""
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """Half of the distance from the fastest to the slowest, as a share of the median."""
        return (max(self.seconds) - min(self.seconds)) / 2 / self.median


def timed(work: Callable[[int], object], device: torch.device, warmup: int, repeats: int) -> Timing:
    """Time `work(0)`, `work(1)`, … after some repeats that are not counted.

    The device is waited for on both sides of each repeat.
    """
    for turn in range(warmup):
        work(turn)
    _wait(device)
    _forget_peak(device)
    seconds = [_once(partial(work, turn), device) for turn in range(warmup, warmup + repeats)]
    on_device = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return Timing(tuple(seconds), peak_memory(), on_device)


def timed_in_turn(
    works: Sequence[Callable[[], object]], device: torch.device, warmup: int, repeats: int
) -> list[Timing]:
    """Time several pieces of work in turn within each repeat, in an order that goes to and fro.

    What disturbs the machine for a while then disturbs all of them. Memory is that of all together.
    """
    seconds: list[list[float]] = [[] for _ in works]
    for turn in range(warmup + repeats):
        for index in range(len(works)) if turn % 2 else reversed(range(len(works))):
            spent = _once(works[index], device)
            if turn >= warmup:
                seconds[index].append(spent)
    return [Timing(tuple(each), peak_memory()) for each in seconds]


def _once(work: Callable[[], object], device: torch.device) -> float:
    _wait(device)
    began = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - began


def resident_memory() -> int:
    """Return this process's resident memory, in bytes; where the system is not Linux, its peak until now."""
    return _status("VmRSS") if _STATUS.is_file() else peak_memory()


def peak_memory() -> int:
    """Return the peak of this process's resident memory, in bytes; on Linux since it was last forgotten."""
    if _STATUS.is_file():
        return _status("VmHWM")
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _status(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):  # Linux only: the peak starts again from what is resident now
        _CLEAR.write_text("5")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
