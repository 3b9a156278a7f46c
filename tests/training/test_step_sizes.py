"""How far one step moves each parameter."""

from __future__ import annotations

import pytest
import torch

from afterword.model.heads import LearnedParts
from afterword.training.step_sizes import step_sizes
from tests.training.world import quick


def parts() -> LearnedParts:
    learned = LearnedParts(torch.tensor([[3.0, 4.0], [0.0, 5.0]]), 3, recon_scale=2.0)
    with torch.no_grad():
        learned.align.weight.copy_(torch.tensor([[1.0, 1.0], [1.0, 1.0], [2.0, 4.0]]))
    return learned


TARGETS = torch.tensor([[10.0, 0.0, 1.0], [14.0, 2.0, 1.0]])


def test_relative_sizes_are_root_mean_squares_by_hand() -> None:
    """Targets lie (2, 1, 0) from their mean: the spread over three dimensions is 5 / 3."""
    assert step_sizes(parts(), TARGETS, quick(lr_scale="relative")) == pytest.approx(
        {
            "tokens": 0.1 * (50 / 4) ** 0.5,
            "recon.weight": 6 * 2**0.5,
            "recon.bias": 6 * (50 / 4) ** 0.5,
            "align.weight": 2.0,
            "align.bias": (5 / 3) ** 0.5,
        }
    )


def test_tokens_and_reconstruction_head_have_rates_of_their_own() -> None:
    plain = step_sizes(parts(), TARGETS, quick(lr_scale="relative", token_rate=1.0, recon_rate=1.0))
    rated = step_sizes(parts(), TARGETS, quick(lr_scale="relative", token_rate=0.5, recon_rate=3.0))
    assert {name: size / plain[name] for name, size in rated.items()} == pytest.approx(
        {"tokens": 0.5, "recon.weight": 3.0, "recon.bias": 3.0, "align.weight": 1.0, "align.bias": 1.0}
    )


def test_absolute_sizes_are_one() -> None:
    assert set(step_sizes(parts(), TARGETS, quick()).values()) == {1.0}


def test_a_parameter_of_zeros_still_moves() -> None:
    learned = parts()
    with torch.no_grad():
        learned.align.weight.zero_()
    assert step_sizes(learned, TARGETS, quick(lr_scale="relative"))["align.weight"] > 0
