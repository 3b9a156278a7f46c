"""Which examples a step sees. A function of seed and step only, so that a resumed run needs no memory of the past."""

from __future__ import annotations

import math
from hashlib import blake2b

import torch


def rank(seed: int, name: str) -> bytes:
    """Return a hash that orders names at random, the same way for one seed."""
    return blake2b(f"{seed}:{name}".encode(), digest_size=16).digest()


def seeded(*parts: int | str) -> torch.Generator:
    """Return a generator whose draws depend on the parts and nothing else."""
    digest = blake2b(":".join(map(str, parts)).encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))


def total_steps(examples: int, batch_size: int, epochs: float) -> int:
    """Return the steps of a run; at least one."""
    return max(1, math.ceil(examples / min(batch_size, examples) * epochs - 1e-9))


def step_indices(step: int, examples: int, batch_size: int, seed: int) -> list[int]:
    """Return the examples of a step.

    Each epoch is a new permutation; steps run through the permutations end to end, so every step is full and every
    example comes once an epoch.
    """
    batch_size = min(batch_size, examples)
    start = step * batch_size
    epochs = range(start // examples, (start + batch_size - 1) // examples + 1)
    order = [i for epoch in epochs for i in torch.randperm(examples, generator=seeded(seed, "order", epoch)).tolist()]
    offset = start - epochs[0] * examples
    return order[offset : offset + batch_size]
