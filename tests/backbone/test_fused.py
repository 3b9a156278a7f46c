"""Fused norms and gates: what plain transformers computes, forwards and backwards, with less kept."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from afterword.backbone.fused import fuse, rms_norm, unfuse
from tests.world import make_backbone, make_model, random_vectors

KINDS = ["llama", "qwen2", "qwen3", "gemma3_text", "mistral"]
NORMS = {False: LlamaRMSNorm, True: Gemma3RMSNorm}


def norm_of(one_plus: bool, dtype: torch.dtype = torch.float32, width: int = 16) -> nn.Module:
    norm = NORMS[one_plus](width, eps=1e-6)
    with torch.no_grad():
        norm.weight.copy_(random_vectors(width, seed=4))
    return norm.to(dtype).requires_grad_(False)


@pytest.mark.parametrize("one_plus", [False, True])
def test_a_norm_by_hand(one_plus: bool) -> None:
    x, weight = torch.tensor([[3.0, 4.0]]), torch.tensor([2.0, -1.0])
    mean = (9 + 16) / 2
    factors = [3.0, 0.0] if one_plus else [2.0, -1.0]
    wanted = torch.tensor([[3 * factors[0] / mean**0.5, 4 * factors[1] / mean**0.5]])
    assert torch.allclose(rms_norm(x, weight, 0.0, one_plus), wanted)


@pytest.mark.parametrize("one_plus", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_norm_is_that_of_transformers(one_plus: bool, dtype: torch.dtype) -> None:
    norm = norm_of(one_plus, dtype)
    x = (5 * random_vectors(3, 7, 16, seed=1)).to(dtype)
    assert torch.allclose(
        rms_norm(x, norm.weight, 1e-6, one_plus), norm(x), rtol=1e-6 if dtype == torch.float32 else 1e-2
    )


@pytest.mark.parametrize("one_plus", [False, True])
def test_the_gradient_of_a_norm_is_that_of_autograd(one_plus: bool) -> None:
    norm = norm_of(one_plus)
    x = random_vectors(5, 16, seed=2).requires_grad_()
    pull = random_vectors(5, 16, seed=3)
    (plain,) = torch.autograd.grad(norm(x), x, pull)
    (fused,) = torch.autograd.grad(rms_norm(x, norm.weight, 1e-6, one_plus), x, pull)
    assert torch.allclose(fused, plain, atol=1e-6)


def states_and_gradient(model: Any, x: Tensor) -> tuple[Tensor, Tensor, int]:
    """Run the body on vectors: its states, the gradient of a fixed sum of them, and how many numbers were kept."""
    kept = 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel()
        return tensor

    x = x.clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        states = model.get_decoder()(inputs_embeds=x, use_cache=False).last_hidden_state
    (gradient,) = torch.autograd.grad(states, x, random_vectors(*states.shape, seed=9))
    return states.detach(), gradient, kept


@pytest.mark.parametrize("kind", KINDS)
def test_a_fused_model_is_the_plain_one(kind: str) -> None:
    plain = make_model(kind).requires_grad_(False).eval()
    fused = make_backbone(kind).model
    x = random_vectors(2, 12, int(plain.config.hidden_size), seed=6)
    wanted, pull, much = states_and_gradient(plain, x)
    found, gradient, little = states_and_gradient(fused, x)
    assert torch.allclose(found, wanted, atol=1e-5)
    assert torch.allclose(gradient, pull, atol=1e-5 * float(pull.abs().max()))
    assert little < 0.9 * much
    with torch.no_grad():
        assert torch.allclose(fused.get_decoder()(inputs_embeds=x).last_hidden_state, wanted, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_norm_and_gate_is_found_once(kind: str) -> None:
    model = make_model(kind).requires_grad_(False)
    layers = int(model.config.num_hidden_layers)
    first = fuse(model)
    assert first["gates"] == layers
    assert first["norms"] == sum("norm" in name.rpartition(".")[2] for name, _ in model.named_modules())
    assert fuse(model) == {"norms": 0, "gates": 0}


def test_a_norm_of_another_formula_stays_as_it_is() -> None:
    class Odd(LlamaRMSNorm):
        def forward(self, hidden_states: Tensor) -> Tensor:
            return super().forward(hidden_states) + 1

    model = nn.ModuleList([Odd(8), nn.LayerNorm(8)])
    assert fuse(model) == {"norms": 0, "gates": 0}


def test_a_norm_that_is_trained_keeps_its_gradient() -> None:
    norm = NORMS[False](8)
    assert fuse(nn.ModuleList([norm])) == {"norms": 1, "gates": 0}
    norm(random_vectors(3, 8)).sum().backward()
    assert norm.weight.grad is not None and norm.weight.grad.abs().sum() > 0


def test_weights_and_their_names_stay() -> None:
    plain, fused = make_model("qwen3"), make_backbone("qwen3").model
    assert [name for name, _ in plain.named_parameters()] == [name for name, _ in fused.named_parameters()]
    assert plain.state_dict().keys() == fused.state_dict().keys()


def test_unfused_is_as_it_was_and_other_hooks_stay() -> None:
    model = make_model("llama").requires_grad_(False)
    plain = {name: module.__dict__.copy() for name, module in model.named_modules()}
    hooked = model.get_decoder().norm
    hooked.forward = hook = lambda x: x
    fuse(model)
    assert hooked.forward is hook
    unfuse(model)
    assert hooked.forward is hook
    del hooked.forward
    assert {name: module.__dict__.keys() for name, module in model.named_modules()} == {
        name: kept.keys() for name, kept in plain.items()
    }


def test_a_copy_of_a_fused_model_computes_the_same() -> None:
    model = make_backbone("gemma3_text").model
    x = random_vectors(1, 5, int(model.config.hidden_size))
    wanted, pull, _ = states_and_gradient(model, x)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert copied.get_decoder().norm.forward.__self__ is copied.get_decoder().norm
        found, gradient, _ = states_and_gradient(copied, x)
        assert torch.allclose(found, wanted, atol=1e-5)
        assert torch.allclose(gradient, pull, atol=1e-5 * float(pull.abs().max()))
