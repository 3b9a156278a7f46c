"""Norms and gates of a frozen LLM in fewer passes over memory.

transformers writes a norm as five operations and a gate as two, each of which reads and keeps whole activations: on a
CPU they take a fifth of a training step. Here each is one differentiable function that keeps its inputs only and works
in place. What a module computes is not read from its name but asked of it: one that does not give what the formula
gives stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

CLOSE = 1e-5
"""The three activations differ by 1e-4 and more."""
PROBE = 2
"""Rows that a module is asked about."""


class _RMSNorm(torch.autograd.Function):
    """`y = x · r · w` with `r = 1 / sqrt(mean(x²) + eps)`; `w` is frozen."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = _inverse_rms(x, eps)
        ctx.save_for_backward(x, scale, weight)
        return (x * scale).mul_(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        x, scale, weight = ctx.saved_tensors
        inner = gradient * weight
        along = torch.linalg.vecdot(inner, x).unsqueeze(-1).mul_(scale.pow(3)).div_(-x.shape[-1])
        return inner.mul_(scale).addcmul_(x, along), None, None


class _Gate(torch.autograd.Function):
    """`y = act(gate) · up`; `act(gate)` is computed again in the backward pass instead of being kept."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, kind: str) -> Tensor:
        ctx.save_for_backward(gate, up)
        ctx.kind = kind
        return ACTIVATIONS[kind].value(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        gate, up = ctx.saved_tensors
        act = ACTIVATIONS[ctx.kind]
        return act.slope(gradient * up, gate), act.value(gate).mul_(gradient), None


@dataclass(frozen=True)
class Activation:
    """An activation, and what comes back through it."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor]


ACTIVATIONS = {
    "silu": Activation(torch.nn.functional.silu, torch.ops.aten.silu_backward),
    "gelu": Activation(torch.nn.functional.gelu, torch.ops.aten.gelu_backward),
    "gelu_tanh": Activation(
        lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        lambda gradient, x: torch.ops.aten.gelu_backward(gradient, x, approximate="tanh"),
    ),
}


def fuse(model: nn.Module) -> dict[str, int]:
    """Let the norms and gates of a frozen model run fused, in place; its weights and their names stay.

    Args:
        model: Any model of transformers whose parameters need no gradient.

    Returns:
        How many norms and gates run fused now.
    """
    counts = {"norms": 0, "gates": 0}
    kinds: dict[tuple[type, int], bool | None] = {}
    for module in model.modules():
        if "forward" in module.__dict__:  # fused already (two backbones may share a model), or hooked by accelerate
            continue
        weight = getattr(module, "weight", None)
        if isinstance(weight, nn.Parameter) and weight.dim() == 1 and _eps(module) is not None:
            key = (type(module), weight.numel())
            if key not in kinds:
                kinds[key] = _one_plus(module)
            if kinds[key] is not None:
                module.forward = MethodType(_ONE_PLUS if kinds[key] else _PLAIN, module)
                counts["norms"] += 1
        elif (kind := _activation(module)) is not None:
            module.forward = MethodType(_GATES[kind], module)
            counts["gates"] += 1
    return counts


def unfuse(model: nn.Module) -> None:
    """Let all modules run as transformers has them: torch.compile fuses by itself, and has one graph for all layers."""
    for module in model.modules():
        if getattr(module.__dict__.get("forward"), "__func__", None) in _OURS:
            del module.forward


def rms_norm(x: Tensor, weight: Tensor, eps: float, one_plus: bool) -> Tensor:
    """Normalise by the root mean square over the last dimension, in float32 as all families do.

    Args:
        x: *Shape:* `(..., d)`.
        weight: *Shape:* `(d,)`.
        eps: Added to the mean square.
        one_plus: Whether the result is multiplied by `1 + weight` before it goes back to the type of `x` (Gemma), or by
            `weight` afterwards.
    """
    if one_plus:
        return _normed(x.float(), 1.0 + weight.float(), eps).to(x.dtype)
    if x.dtype == torch.float32:
        return _normed(x, weight, eps)
    return weight * _normed(x.float(), torch.ones_like(weight, dtype=torch.float32), eps).to(x.dtype)


def _normed(x: Tensor, factor: Tensor, eps: float) -> Tensor:
    if torch.is_grad_enabled() and x.requires_grad:
        return cast("Tensor", _RMSNorm.apply(x, factor, eps))  # type: ignore[no-untyped-call]
    return (x * _inverse_rms(x, eps)).mul_(factor)


def _inverse_rms(x: Tensor, eps: float) -> Tensor:
    square: Tensor = torch.linalg.vecdot(x, x)
    return square.unsqueeze(-1).div_(x.shape[-1]).add_(eps).rsqrt_()


def _norm_forward(one_plus: bool) -> Callable[[nn.Module, Tensor], Tensor]:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        weight = cast("Tensor", self.weight)
        if weight.requires_grad or x.dtype == torch.float64:  # transformers rounds to float32 there: leave it to it
            return cast("Tensor", type(self).forward(self, x))
        return rms_norm(x, weight, cast("float", _eps(self)), one_plus)

    return forward


def _gate_forward(kind: str) -> Callable[[nn.Module, Tensor], Tensor]:
    def forward(self: Any, x: Tensor) -> Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        if torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad):
            return cast("Tensor", self.down_proj(_Gate.apply(gate, up, kind)))  # type: ignore[no-untyped-call]
        return cast("Tensor", self.down_proj(ACTIVATIONS[kind].value(gate).mul_(up)))

    return forward


# Bound to each module. They are called `forward`, so that a copy by pickle finds that of its class again.
_PLAIN, _ONE_PLUS = _norm_forward(False), _norm_forward(True)
_GATES = {kind: _gate_forward(kind) for kind in ACTIVATIONS}
_OURS = (_PLAIN, _ONE_PLUS, *_GATES.values())


def _eps(module: nn.Module) -> float | None:
    found = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    return found if isinstance(found, float) else None


@torch.no_grad()
def _one_plus(module: nn.Module) -> bool | None:
    """Ask a norm which of the two formulas it has; None for neither."""
    weight = cast("Tensor", module.weight)
    if weight.is_meta:
        return None
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(PROBE, weight.numel(), generator=generator).to(weight)
    for one_plus in (False, True):
        if torch.allclose(module(x), rms_norm(x, weight, cast("float", _eps(module)), one_plus), rtol=1e-2, atol=1e-5):
            return one_plus
    return None


@torch.no_grad()
def _activation(module: Any) -> str | None:
    """Ask a feed-forward block for its activation, if it is `down(act(gate(x)) · up(x))` and nothing else."""
    parts = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    if not all(isinstance(part, nn.Linear) for part in parts) or not callable(getattr(module, "act_fn", None)):
        return None
    gate, up, down = cast("list[nn.Linear]", parts)
    if gate.weight.is_meta:
        return None
    values = torch.linspace(-4, 4, 33, device=gate.weight.device)
    fits = [
        kind
        for kind, act in ACTIVATIONS.items()
        if torch.allclose(module.act_fn(values), act.value(values), rtol=CLOSE, atol=CLOSE)
    ]
    x = torch.randn(PROBE, gate.in_features, generator=torch.Generator().manual_seed(0)).to(gate.weight)
    same = torch.allclose(module(x), down(module.act_fn(gate(x)) * up(x)), rtol=1e-2, atol=1e-5)
    return fits[0] if fits and same else None
