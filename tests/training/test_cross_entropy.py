"""Chunked cross entropy behind a frozen head, against torch's on all logits at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from afterword.backbone.head import VocabularyHead
from afterword.training import cross_entropy
from afterword.training.cross_entropy import head_cross_entropy
from tests.world import VOCABULARY, random_vectors

ROWS, WIDTH = 23, 16
BLOCKS = {"one": 1, "five": 5, "all but one": VOCABULARY - 1, "all": VOCABULARY, "more than all": 2 * VOCABULARY}
HEADS: dict[str, dict[str, Any]] = {
    "plain": {},
    "softcap": {"softcap": 3.0},
    "scale": {"scale": 0.25},
    "bias": {"bias": random_vectors(VOCABULARY, seed=3)},
    "all": {"softcap": 3.0, "scale": 0.25, "bias": random_vectors(VOCABULARY, seed=3)},
}


def head(bias: Tensor | None = None, scale: float = 1.0, softcap: float | None = None) -> VocabularyHead:
    return VocabularyHead(random_vectors(VOCABULARY, WIDTH, seed=1), bias, scale, softcap)


def targets() -> Tensor:
    return torch.randint(VOCABULARY, (ROWS,), generator=torch.Generator().manual_seed(2))


def plain_loss(
    states: Tensor, ids: Tensor, bias: Tensor | None = None, scale: float = 1.0, softcap: float | None = None
) -> Tensor:
    logits = states @ random_vectors(VOCABULARY, WIDTH, seed=1, dtype=states.dtype).T
    logits = (logits if bias is None else logits + bias) * scale
    logits = logits if softcap is None else torch.tanh(logits / softcap) * softcap
    return torch.nn.functional.cross_entropy(logits, ids, reduction="none")


@pytest.mark.parametrize("settings", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_value_and_gradient_equal_torch(block: int, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cross_entropy.BLOCK, "cpu", block)
    weights = random_vectors(ROWS, seed=4)  # each row's loss counts differently: the outer gradient must reach its row
    states = random_vectors(ROWS, WIDTH).requires_grad_()
    loss = head_cross_entropy(states, targets(), head(**settings))
    (gradient,) = torch.autograd.grad((loss * weights).sum(), states)

    precise = random_vectors(ROWS, WIDTH, dtype=torch.float64).requires_grad_()
    wanted = plain_loss(precise, targets(), **settings)
    (wanted_gradient,) = torch.autograd.grad((wanted * weights).sum(), precise)

    torch.testing.assert_close(loss.double(), wanted, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(gradient.double(), wanted_gradient, rtol=2e-5, atol=2e-6)


def test_hand_worked_value() -> None:
    """Two words with logits 0 and ln 3: the second has three quarters of the probability."""
    two_words = VocabularyHead(torch.tensor([[0.0], [1.0]]), None, 1.0, None)
    states = torch.tensor([[3.0], [3.0]]).log()
    loss = head_cross_entropy(states, torch.tensor([0, 1]), two_words)
    torch.testing.assert_close(loss, -torch.tensor([0.25, 0.75]).log())


def test_without_gradient_the_value_is_the_same() -> None:
    with torch.no_grad():
        loss = head_cross_entropy(random_vectors(ROWS, WIDTH), targets(), head(**HEADS["all"]))
    wanted = plain_loss(random_vectors(ROWS, WIDTH), targets(), **HEADS["all"])
    assert not loss.requires_grad
    torch.testing.assert_close(loss, wanted)


def test_no_rows_no_loss() -> None:
    loss = head_cross_entropy(torch.empty(0, WIDTH, requires_grad=True), torch.empty(0, dtype=torch.long), head())
    assert loss.shape == (0,)


def test_states_are_left_as_they_were() -> None:
    """Gradients are computed in place of the logits; nothing else may be written to."""
    states = random_vectors(ROWS, WIDTH).requires_grad_()
    frozen = head(**HEADS["all"])
    head_cross_entropy(states, targets(), frozen).sum().backward()
    torch.testing.assert_close(states.detach(), random_vectors(ROWS, WIDTH), rtol=0, atol=0)
    torch.testing.assert_close(frozen.weight, random_vectors(VOCABULARY, WIDTH, seed=1), rtol=0, atol=0)


def test_a_bfloat16_head_gives_a_float32_loss_near_the_exact_one() -> None:
    states = random_vectors(ROWS, WIDTH, dtype=torch.bfloat16).requires_grad_()
    rounded = VocabularyHead(random_vectors(VOCABULARY, WIDTH, seed=1, dtype=torch.bfloat16), None, 1.0, None)
    loss = head_cross_entropy(states, targets(), rounded)
    (gradient,) = torch.autograd.grad(loss.sum(), states)

    precise = random_vectors(ROWS, WIDTH, dtype=torch.float64).requires_grad_()
    wanted = plain_loss(precise, targets())
    (wanted_gradient,) = torch.autograd.grad(wanted.sum(), precise)
    assert (loss.dtype, gradient.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(loss.double(), wanted, rtol=0.02, atol=0.1)
    torch.testing.assert_close(gradient.double(), wanted_gradient, rtol=0.05, atol=0.05)


class _Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not result._is_view():
            self.numel = max(self.numel, result.numel())
        return result


def test_no_more_than_one_block_of_logits_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cross_entropy.BLOCK, "cpu", WIDTH + 1)
    states = random_vectors(ROWS, WIDTH).requires_grad_()
    frozen = head()
    with _Largest() as largest:
        head_cross_entropy(states, targets(), frozen).sum().backward()
    assert largest.numel == ROWS * (WIDTH + 1) < ROWS * VOCABULARY
