"""SimCSE: the loss by hand, cached gradients against plain ones, and dropout that really differs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from afterword.corpus.pairs import StsPairs
from afterword.teacher.adapters import LoraSettings
from afterword.teacher.llm import LLMTeacher
from afterword.teacher.settings import PoolingSettings
from afterword.training.simcse import SimCSEObjective, SimCSEPlan, info_nce
from afterword.training.similarity import alignment, ranks, spearman, uniformity
from afterword.training.teacher_settings import TeacherSettings
from tests.teachers import VowelTeacher
from tests.training.test_mntp import adapted
from tests.world import make_backbone

TEXTS = [
    "the sky is blue and the sea is not",
    "four",
    "a river in France, the Loire",
    "no idea at all",
    "café ☃",
    "under the moon",
    "a song that the sea sings to the moon",
]
NOISE: dict[str, dict[str, float]] = {
    "attention": {"attention_dropout": 0.3},
    "embedding": {"attention_dropout": 0.0, "embedding_dropout": 0.2},
    "token": {"attention_dropout": 0.0, "token_dropout": 0.3},
    "crop": {"attention_dropout": 0.0, "crop": 0.9},
    "adapter": {"attention_dropout": 0.0},
}


def objective(kind: str = "llama", lora_dropout: float = 0.1, **changes: Any) -> SimCSEObjective:
    backbone = make_backbone(kind)
    adapter = adapted(backbone, LoraSettings(lora_rank=3, lora_dropout=lora_dropout))
    teacher = LLMTeacher(backbone, PoolingSettings(attention="bidirectional", prompt=""))
    rows = teacher.rows(TEXTS)
    return SimCSEObjective(teacher, adapter, rows, rows[:4], TeacherSettings(**changes))


def test_info_nce_by_hand() -> None:
    """Cosines 1, 0.6 and 0, 0.8 at temperature 0.5; lengths do not matter."""
    pairs = torch.tensor([[[2.0, 0.0], [0.0, 3.0]], [[1.0, 0.0], [0.6, 0.8]]])
    first = -math.log(math.exp(1 / 0.5) / (math.exp(1 / 0.5) + math.exp(0.6 / 0.5)))
    second = -math.log(math.exp(0.8 / 0.5) / (math.exp(0.8 / 0.5) + math.exp(0.0)))
    assert float(info_nce(pairs, 0.5)) == pytest.approx((first + second) / 2, rel=1e-6)


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text"])
def test_the_two_passes_differ_whatever_is_dropped(kind: str, noise: dict[str, float]) -> None:
    goal = objective(kind, lora_dropout=0.3 if len(noise) == 1 and not noise["attention_dropout"] else 0.0, **noise)
    with torch.no_grad():
        one, other = goal._pairs([0, 2, 6], 0)
        again = goal._pairs([0, 2, 6], 0)
        later = goal._pairs([0, 2, 6], 1)
    assert all(not torch.allclose(a, b, atol=1e-4) for a, b in zip(one, other, strict=True))
    assert torch.equal(again[0], one)
    assert not torch.allclose(later[0], one, atol=1e-4)


def test_without_any_dropout_they_are_equal() -> None:
    goal = objective(lora_dropout=0.0, attention_dropout=0.0)
    with torch.no_grad():
        one, other = goal._pairs([0, 2], 0)
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_cached_gradients_are_those_of_one_graph_over_all_passes(noise: dict[str, float]) -> None:
    goal, passes = objective(lora_dropout=0.2, **noise), [[0, 4], [1, 2, 5], [3]]
    indices = [i for part in passes for i in part]
    plan = goal.plan(indices, 3, passes)
    losses = [goal.loss(part, plan) for part in passes]
    sum(loss for loss, _ in losses).backward()
    found = {name: p.grad.clone() for name, p in goal.adapter.named_parameters()}
    goal.adapter.zero_grad()
    whole = info_nce(torch.cat([goal._pairs(part, 3) for part in passes], dim=1), 0.05)
    whole.backward()
    assert sum(float(loss.detach()) for loss, _ in losses) == pytest.approx(float(whole.detach()), rel=1e-5)
    assert sum(float(named["simcse"]) for _, named in losses) == pytest.approx(float(whole.detach()), rel=1e-5)
    for name, parameter in goal.adapter.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, atol=1e-5, rtol=1e-4)


def test_a_step_that_fits_is_one_pass() -> None:
    goal = objective()
    assert goal.plan([0, 1], 4, [[0, 1]]) == SimCSEPlan(4)
    loss, named = goal.loss([0, 1], SimCSEPlan(4))
    assert float(loss.detach()) == float(named["simcse"])
    assert goal.cost(1) == 2 * (1 + len("four"))


def test_processes_share_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes, each with its own texts: together they have the loss and the gradient of one."""
    alone = objective()
    passes = [[0, 2], [1, 3]]
    plan = alone.plan([0, 1, 2, 3], 0, passes)
    wanted = sum(float(alone.loss(part, plan)[0].detach()) for part in passes)
    parts = [dict(zip(own, alone._pairs(own, 0).detach().unbind(1), strict=True)) for own in passes]
    monkeypatch.setattr("afterword.training.simcse.gather_object", lambda _: parts)
    found = 0.0
    for own in passes:
        goal = objective()
        goal.processes = 2
        shared = goal.plan([0, 1, 2, 3], 0, [own])
        assert shared.gradients is not None
        assert set(shared.gradients) == set(own)
        for i in own:
            torch.testing.assert_close(shared.gradients[i], plan.gradients[i])  # type: ignore[index]
        found += float(goal.loss(own, shared)[0].detach())
    assert found == pytest.approx(wanted, rel=1e-5)


def views(goal: SimCSEObjective, row: list[int]) -> list[list[int]]:
    return [goal._view(row, step, 0, view) for step in range(40) for view in (0, 1)]


def test_token_dropout_keeps_something_of_every_text() -> None:
    goal = objective(token_dropout=0.9)
    for row in goal.rows:
        seen = views(goal, row)
        assert all(seen)
        remaining = iter(row)
        assert all(token in remaining for token in seen[0])


def test_first_tokens_can_be_kept() -> None:
    row = list(range(30))
    dropped = views(objective(token_dropout=0.5), row)
    assert any(view[:2] != [0, 1] for view in dropped)
    kept = views(objective(token_dropout=0.5, kept_tokens=2), row)
    assert all(view[:2] == [0, 1] for view in kept)
    later = sum(place in view for view in kept for place in range(2, 30)) / (28 * len(kept))
    assert later == pytest.approx(0.5, abs=0.05)
    assert objective(token_dropout=0.5, kept_tokens=9)._view([4, 5, 6], 0, 0, 0) == [4, 5, 6]


def test_crops_are_runs_of_a_long_text_and_short_ones_stay_whole() -> None:
    goal, long = objective(crop=0.5), list(range(100))
    seen = views(goal, long)
    assert all(view == list(range(view[0], view[0] + len(view))) for view in seen)
    lengths = [len(view) for view in seen]
    assert min(lengths) >= 50
    assert len(set(lengths)) > 10
    assert min(view[0] for view in seen) < 5
    assert max(view[-1] for view in seen) > 95
    assert all(view == list(range(16)) for view in views(goal, list(range(16))))
    assert all(len(view) >= 16 for view in views(objective(crop=0.9), list(range(20))))


def test_alignment_and_uniformity_by_hand() -> None:
    a = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    b = torch.tensor([[0.0, 1.0], [0.0, 1.0], [-1.0, 0.0]])
    assert alignment(a, b) == pytest.approx(2 / 3)
    assert uniformity(a) == pytest.approx(math.log((2 * math.exp(-4) + math.exp(-8)) / 3))


def test_validation_measures_noise_against_noise_and_clean_texts() -> None:
    goal = objective(tokens_per_pass=40)
    measured = goal.validate()
    assert set(measured) == {"alignment", "uniformity"}
    assert measured["alignment"] > 0
    clean = torch.from_numpy(goal.teacher.encode(TEXTS[:4]))
    assert measured["uniformity"] == pytest.approx(uniformity(torch.nn.functional.normalize(clean, dim=1)), abs=1e-5)
    assert goal.validate() == measured


def test_spearman_is_that_of_scipy_with_ties() -> None:
    pairs = StsPairs(TEXTS, [*TEXTS[2:], *TEXTS[:2]], [1.0, 2.0, 2.0, 5.0, 0.0, 1.0, 3.0])
    teacher = VowelTeacher()
    one, two = (np.asarray(teacher.encode(side), dtype=np.float64) for side in (pairs.first, pairs.second))
    cosines = (one * two).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(two, axis=1)
    assert spearman(teacher, pairs) == pytest.approx(100 * spearmanr(cosines, pairs.scores).statistic, abs=1e-4)
    np.testing.assert_array_equal(ranks(np.array([3.0, 1.0, 3.0, 2.0])), [3.5, 1.0, 3.5, 2.0])


def test_spearman_is_measured_where_pairs_are_given() -> None:
    goal = objective()
    goal.sts = StsPairs(TEXTS, [*TEXTS[2:], *TEXTS[:2]], [1.0, 2.0, 3.0, 5.0, 0.0, 4.0, 2.5])
    assert goal.validate()["sts"] == pytest.approx(spearman(goal.teacher, goal.sts))
