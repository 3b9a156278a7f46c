"""Dropout that is a function of seed and step: it can be drawn twice, and a resumed run needs no memory of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from afterword.training.order import seeded


@contextmanager
def seeded_noise(device: torch.device, *parts: int | str) -> Iterator[None]:
    """Let torch's own generators start from the parts meanwhile, and put them back afterwards."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seeded(*parts).initial_seed())
        yield
