"""Which examples a step sees."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from afterword.training.order import rank, seeded, step_indices, total_steps


@given(examples=st.integers(1, 60), batch_size=st.integers(1, 70), seed=st.integers(0, 5), epochs=st.integers(1, 4))
def test_every_example_comes_once_an_epoch(examples: int, batch_size: int, seed: int, epochs: int) -> None:
    size = min(batch_size, examples)
    steps = -(-examples * epochs // size)
    seen = [i for step in range(steps) for i in step_indices(step, examples, batch_size, seed)]
    for epoch in range(epochs):
        assert sorted(seen[epoch * examples : (epoch + 1) * examples]) == list(range(examples))


@given(examples=st.integers(1, 60), batch_size=st.integers(1, 70), step=st.integers(0, 50))
def test_every_step_is_full(examples: int, batch_size: int, step: int) -> None:
    assert len(step_indices(step, examples, batch_size, 0)) == min(batch_size, examples)


def test_a_step_knows_nothing_of_those_before() -> None:
    forwards = [step_indices(step, 17, 4, 3) for step in range(12)]
    torch.manual_seed(99)
    backwards = [step_indices(step, 17, 4, 3) for step in reversed(range(12))][::-1]
    assert forwards == backwards


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [step_indices(step, 20, 20, seed) for step in (0, 1) for seed in (0, 1)]
    assert len({tuple(order) for order in [*orders, list(range(20))]}) == 5


def test_asking_for_an_order_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    step_indices(3, 17, 4, 0)
    seeded(1, "x")
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_depend_on_every_part() -> None:
    draws = [
        torch.rand(1, generator=seeded(*parts)).item() for parts in ((1, "a", 2), (1, "a", 3), (2, "a", 2), (1, "b", 2))
    ]
    assert len(set(draws)) == 4
    assert draws[0] == torch.rand(1, generator=seeded(1, "a", 2)).item()


@pytest.mark.parametrize(
    ("examples", "batch_size", "epochs", "steps"),
    [
        (100, 10, 1.0, 10),
        (101, 10, 1.0, 11),
        (100, 10, 0.5, 5),
        (100, 10, 2.0, 20),
        (30, 10, 0.1, 1),
        (3, 10, 0.1, 1),
        (10, 3, 3.0, 10),
        (5, 32, 1.0, 1),
        (5, 32, 10.0, 10),  # a step holds five examples, so ten passes take ten steps
        (7, 0x7FFF, 0.3, 1),
    ],
)
def test_number_of_steps(examples: int, batch_size: int, epochs: float, steps: int) -> None:
    assert total_steps(examples, batch_size, epochs) == steps


def test_ranks_differ_by_seed_and_name_and_mix_them_up() -> None:
    names = [f"q{i}" for i in range(200)]
    first = sorted(names, key=lambda name: rank(0, name))
    assert first not in (names, sorted(names), sorted(names, key=lambda name: rank(1, name)))
    halves = Counter(name in first[:100] for name in names[:100])
    assert 30 < halves[True] < 70
