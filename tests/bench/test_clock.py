"""Timing, memory and the ceiling."""

from __future__ import annotations

import mmap
import time

import numpy as np
import pytest
import torch

from afterword.bench.ceiling import gemm_ceiling
from afterword.bench.clock import Timing, peak_memory, resident_memory, timed, timed_in_turn
from tests.world import make_backbone

CPU = torch.device("cpu")


def test_only_repeats_behind_the_warm_up_are_timed() -> None:
    turns: list[int] = []

    def work(turn: int) -> None:
        turns.append(turn)
        time.sleep(0.05 if turn < 2 else 0.0)

    timing = timed(work, CPU, warmup=2, repeats=3)
    assert turns == [0, 1, 2, 3, 4]
    assert len(timing.seconds) == 3
    assert max(timing.seconds) < 0.05
    assert timing.device_bytes is None


def test_works_in_turn_go_to_and_fro_and_each_has_its_own_times() -> None:
    done: list[str] = []
    slow, quick = timed_in_turn(
        [lambda: (done.append("slow"), time.sleep(0.02)), lambda: done.append("quick")], CPU, warmup=1, repeats=2
    )
    assert done == ["quick", "slow", "slow", "quick", "quick", "slow"]
    assert len(slow.seconds) == len(quick.seconds) == 2
    assert min(slow.seconds) > 0.02 > max(quick.seconds)


def fresh(count: int) -> mmap.mmap:
    """So many bytes, written to, straight from the system: what earlier tests gave back to malloc is not used again."""
    memory = mmap.mmap(-1, count)
    np.frombuffer(memory, dtype=np.uint8)[:] = 1
    return memory


def test_what_is_resident_falls_again_and_the_peak_does_not() -> None:
    idle = resident_memory()
    held = fresh(80_000_000)
    busy = resident_memory()
    assert 60_000_000 < busy - idle < 110_000_000
    held.close()
    assert resident_memory() < busy - 60_000_000
    assert peak_memory() >= busy - 1_000_000


def test_median_and_spread() -> None:
    timing = Timing((1.0, 4.0, 2.0), 0)
    assert (timing.median, timing.spread) == (2.0, 0.75)


def test_the_peak_is_that_of_the_work_and_not_of_what_came_before() -> None:
    fresh(120_000_000).close()
    idle = timed(lambda _: None, CPU, 0, 1).process_bytes
    busy = timed(lambda _: fresh(80_000_000).close(), CPU, 0, 1).process_bytes
    assert 60_000_000 < busy - idle < 110_000_000
    assert peak_memory() >= busy - 1_000_000


def test_the_ceiling_is_a_rate_of_this_machine() -> None:
    assert 1e8 < gemm_ceiling(make_backbone("llama"), repeats=2) < 1e15


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_memory_on_a_device_is_counted() -> None:
    timing = timed(lambda _: torch.empty(10_000_000, device="cuda"), torch.device("cuda"), 0, 1)
    assert (timing.device_bytes or 0) >= 40_000_000
