"""Cross entropy behind a frozen vocabulary head, without ever holding all logits.

For V = 262,144 a batch of 1,000 tokens has a gigabyte of float32 logits, and as much again for their gradient. Here the
vocabulary is taken in blocks with a running maximum and sum, as attention does with its keys (online softmax): each
block of the head is multiplied with the states, and then with the chances, while it is in the cache, and only one
block of logits ever exists.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from afterword.backbone.head import VocabularyHead

BLOCK = {"cpu": 1024}
"""Rows of the head in a block. On a CPU block and logits should fit in the cache; 1,024 came within a tenth of the best
matrix product for 64 to 1,500 tokens (640 × 262,144, float32, two cores). Elsewhere fewer launches matter more."""
LARGE_BLOCK = 16384


def head_cross_entropy(
    states: Float[Tensor, "tokens hidden"], targets: Int[Tensor, " tokens"], head: VocabularyHead
) -> Float[Tensor, " tokens"]:
    """Return `−log P(target)` for each row, in float32, differentiable in the states only.

    Costs `4 · hidden · V` FLOP a token, forward and backward together, and no more memory than one block of logits.
    Second derivatives are not supported.

    Args:
        states: Last states, in the type of the head.
        targets: Token id of each row.
        head: The frozen vocabulary head.
    """
    loss: Tensor = _HeadCrossEntropy.apply(states, targets, head)  # type: ignore[no-untyped-call]
    return loss


class _HeadCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, targets: Tensor, head: VocabularyHead) -> Tensor:
        states = states.detach().to(head.weight.dtype)
        running = _Running(states, ctx.needs_input_grad[0])
        size = BLOCK.get(states.device.type, LARGE_BLOCK)
        for start in range(0, head.weight.shape[0], size):
            running.add(head, slice(start, start + size))
        own, slope = _target_logits(states, targets, head)
        if running.pulled is not None:
            mean = running.pulled / running.total
            gradient = head.scale * (mean - slope * head.weight[targets].to(mean.dtype))
            ctx.save_for_backward(gradient.to(states.dtype))
        loss: Tensor = (running.highest + running.total.log() - own)[:, 0].float()
        return loss

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * outer[0][:, None].to(gradient.dtype), None, None


class _Running:
    """Softmax over the blocks seen so far: highest logit, sum of exponentials, and the head's rows weighted by them."""

    def __init__(self, states: Tensor, needs_gradient: bool) -> None:
        self.states = states
        wide = torch.promote_types(states.dtype, torch.float32)
        self.highest = torch.full((len(states), 1), -torch.inf, dtype=wide, device=states.device)
        self.total = torch.zeros_like(self.highest)
        self.pulled = torch.zeros(states.shape, dtype=wide, device=states.device) if needs_gradient else None

    def add(self, head: VocabularyHead, block: slice) -> None:
        logits = head.some_logits(self.states, block).to(self.total.dtype)
        highest = torch.maximum(self.highest, logits.amax(dim=1, keepdim=True))
        shrink = (self.highest - highest).exp_()
        slope = head.slope(logits) if self.pulled is not None else None
        chances = logits.sub_(highest).exp_()  # in place: the logits are not needed again
        self.total.mul_(shrink).add_(chances.sum(dim=1, keepdim=True))
        self.highest = highest
        if self.pulled is not None:
            pull = chances if slope is None else chances.mul_(slope)
            self.pulled.mul_(shrink)
            if head.weight.dtype == self.pulled.dtype:
                self.pulled.addmm_(pull, head.weight[block])
            else:
                self.pulled.add_(pull.to(head.weight.dtype) @ head.weight[block])


def _target_logits(states: Tensor, targets: Tensor, head: VocabularyHead) -> tuple[Tensor, Tensor | float]:
    """Return the logit of each row's target and the slope of the soft cap there. *Shape:* `(tokens, 1)`."""
    wide = torch.promote_types(states.dtype, torch.float32)
    logits = (states.to(wide) * head.weight[targets].to(wide)).sum(dim=1, keepdim=True)
    if head.bias is not None:
        logits = logits + head.bias[targets, None].to(wide)
    logits = head.capped(logits * head.scale)
    slope = head.slope(logits)
    return logits, 1.0 if slope is None else slope
