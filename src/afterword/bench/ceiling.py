"""The fastest that this machine multiplies matrices: what a pass through an LLM can come close to."""

from __future__ import annotations

import torch

from afterword.backbone.backbone import Backbone
from afterword.bench.clock import timed

ROWS = (256, 1024)
SECONDS_WORTH = 2e10


def gemm_ceiling(backbone: Backbone, repeats: int = 7) -> float:
    """Return the best rate of a matrix product, in FLOP/s, in the type, on the device and with the weights of an LLM.

    Its own largest layers are taken, on some hundred rows: a larger product may be faster, but nothing in this LLM is
    larger.
    """
    shapes = {tuple(m.weight.shape): m.weight for m in backbone.body.modules() if isinstance(m, torch.nn.Linear)}
    largest = sorted(shapes.values(), key=lambda weight: weight.numel())[-2:]
    return max(_rate(weight, rows, repeats) for weight in largest for rows in ROWS)


@torch.inference_mode()
def _rate(weight: torch.Tensor, rows: int, repeats: int) -> float:
    x = torch.randn(rows, weight.shape[1], device=weight.device).to(weight.dtype)
    one = 2.0 * rows * weight.numel()
    times = max(1, min(64, round(SECONDS_WORTH / one)))

    def work(_: int) -> None:
        for _ in range(times):
            torch.nn.functional.linear(x, weight)

    timing = timed(work, weight.device, warmup=2, repeats=repeats)
    return one * times / min(timing.seconds)
