"""From the states of a text to one vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Pooling = Literal["mean", "weighted_mean", "last", "eos"]


def pool(
    states: Float[Tensor, "tokens hidden"], lengths: Sequence[int], pooled: Sequence[int], pooling: Pooling
) -> Float[Tensor, "rows hidden"]:
    """Pool the last `pooled` states of each row, in float32.

    Args:
        states: All rows end to end.
        lengths: Tokens of each row.
        pooled: How many of a row's last states count, at least one.
        pooling: `mean`; `weighted_mean`, the i-th state counting i times (SGPT, arXiv 2202.08904); `last` and `eos`
            take one state (for `eos` the row ends with the end token).
    """
    parts = [part[-count:].float() for part, count in zip(torch.split(states, list(lengths)), pooled, strict=True)]
    if pooling in ("last", "eos"):
        return torch.stack([part[-1] for part in parts])
    if pooling == "mean":
        return torch.stack([part.mean(dim=0) for part in parts])
    weights = [torch.arange(1, len(part) + 1, dtype=part.dtype, device=part.device) for part in parts]
    return torch.stack([w @ part / w.sum() for w, part in zip(weights, parts, strict=True)])
