"""Cross entropy behind a frozen vocabulary head, without ever holding all logits.

For V = 262,144 a batch of 1,000 tokens has a gigabyte of float32 logits, and as much again for their gradient. Rows are
taken in chunks; each chunk's gradient with respect to the states is computed at once, so that the logits can go.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from afterword.backbone.backbone import VocabularyHead

CHUNK_BYTES = 1 << 28


def head_cross_entropy(
    states: Float[Tensor, "tokens hidden"], targets: Int[Tensor, " tokens"], head: VocabularyHead
) -> Float[Tensor, " tokens"]:
    """Return `−log P(target)` for each row, in float32, differentiable in the states only.

    Costs `4 · hidden · V` FLOP a token, forward and backward together, and no more memory than one chunk of logits.
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
        needs_gradient = ctx.needs_input_grad[0]
        loss = torch.empty(states.shape[0], dtype=torch.float32, device=states.device)
        gradient = torch.empty_like(states) if needs_gradient else None
        rows = max(1, CHUNK_BYTES // (4 * head.weight.shape[0]))
        for start in range(0, states.shape[0], rows):
            part = slice(start, start + rows)
            logits = head.logits(states[part])
            target = targets[part, None]
            normaliser = logits.logsumexp(dim=1, keepdim=True)
            loss[part] = (normaliser - logits.gather(1, target))[:, 0]
            if gradient is not None:
                gradient[part] = _state_gradient(logits, normaliser, target, head).to(gradient.dtype)
        if gradient is not None:
            ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * outer[0][:, None].to(gradient.dtype), None, None


def _state_gradient(logits: Tensor, normaliser: Tensor, target: Tensor, head: VocabularyHead) -> Tensor:
    """Return the gradient of each row's loss with respect to its state: `(softmax − one-hot) · dz · weight`."""
    slope = 1.0 - (logits / head.softcap).square() if head.softcap is not None else None
    chances = logits.sub_(normaliser).exp_()  # in place: the logits are not needed again
    chances.scatter_add_(1, target, torch.full_like(target, -1.0, dtype=chances.dtype))
    if slope is not None:
        chances.mul_(slope)
    return (chances * head.scale if head.scale != 1.0 else chances).to(head.weight.dtype) @ head.weight
