"""The paper's losses and one step of training, against a plain double-precision reference; see `world.py`.

That shares are right on average is in tests/test_optimisations.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from torch import Tensor

from afterword.backbone.backbone import Backbone
from afterword.corpus.records import Response
from afterword.model.model import Afterword
from afterword.training.alignment import alignment_loss, alignment_unit
from afterword.training.cross_entropy import head_cross_entropy
from afterword.training.examples import Examples, hold_out, make_examples
from afterword.training.generative import GenerativeObjective
from afterword.training.loop import Loop
from afterword.training.run_folder import RunFolder
from afterword.training.settings import TrainSettings
from afterword.training.train import train
from tests.teachers import vowels
from tests.training.world import SHAPE, Reference, corpus, counted_targets, quick
from tests.world import make_backbone, random_vectors

REDUCTIONS = [
    {"recon_reduction": "mean", "align_reduction": "mean"},
    {"recon_reduction": "mean", "align_reduction": "relative"},
    {"recon_reduction": "sum", "align_reduction": "sum"},
    {"recon_reduction": "sum", "align_reduction": "mean", "w_recon": 0.25, "w_align": 3.0},
]


def objective(backbone: Backbone, folder: Path, settings: TrainSettings, count: int = 16) -> GenerativeObjective:
    responses = corpus(count)
    targets = counted_targets(responses, folder)
    model = Afterword.from_backbone(backbone, settings=SHAPE, embedding_dimension=5)
    examples, _ = make_examples(model, responses, targets, settings.max_response_tokens)
    return GenerativeObjective(model, *hold_out(examples, settings.validation, settings.seed), settings)


def responses_of(examples: Examples, indices: Sequence[int]) -> list[Response]:
    """The responses that some examples were made from."""
    by_id = {response.id: response for response in corpus()}
    return [by_id[examples.ids[i]] for i in indices]


def numbers(*losses: Tensor) -> list[float]:
    return [float(loss.detach()) for loss in losses]


def random_weights(goal: GenerativeObjective) -> None:
    """Heads that are no special case, such as the identity is."""
    with torch.no_grad():
        for parameter in goal.trainable().parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))


@pytest.mark.parametrize(("reduction", "unit"), [("sum", 1.0), ("mean", 2.0), ("relative", 6.25)])
def test_alignment_loss_by_hand(reduction: Any, unit: float) -> None:
    """Squared distances 25 and 1; the targets lie 2.5 from their mean, (2, −0.5)."""
    embeddings, targets = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[4.0, -2.0], [0.0, 1.0]])
    assert alignment_unit(targets, reduction) == unit
    assert alignment_loss(embeddings, targets, unit).tolist() == pytest.approx([25.0 / unit, 1.0 / unit])


def test_a_constant_embedding_at_the_mean_has_a_relative_loss_of_one() -> None:
    targets = 100 * random_vectors(50, 7)
    at_mean = targets.mean(dim=0).expand(50, 7)
    assert float(alignment_loss(at_mean, targets, alignment_unit(targets, "relative")).mean()) == pytest.approx(1.0)


@pytest.mark.parametrize("changes", REDUCTIONS, ids=["means", "relative", "sums", "weighted"])
@pytest.mark.parametrize(
    ("kind", "bos"), [("llama", True), ("qwen3", False), ("gemma3_text-short", True), ("starcoder2", True)]
)
def test_loss_and_gradient_equal_the_plain_formula(
    kind: str, bos: bool, changes: dict[str, Any], tmp_path: Path
) -> None:
    settings = quick(**changes)
    goal = objective(make_backbone(kind, bos=bos), tmp_path, settings)
    random_weights(goal)
    indices = [0, 3, 5, 7, 8, 11]
    loss, named = goal.loss(indices, goal.plan(indices, 0))
    loss.backward()

    batch = responses_of(goal.train, indices)
    reference = Reference.of(goal.model.backbone.model, dict(goal.trainable().named_parameters()), bos)
    spread = float(vowels(goal.train.texts).var(axis=0).sum())
    recon, align = reference.losses(batch, {response.id for response in batch}, settings, spread)
    total = settings.w_recon * recon + settings.w_align * align
    total.backward()
    found = numbers(named["recon"], named["align"], loss)
    assert found == pytest.approx(numbers(recon, align, total), rel=1e-5)
    for name, parameter in goal.trainable().named_parameters():
        wanted = reference.weights[name].grad
        assert wanted is not None
        size = float(wanted.abs().max())
        torch.testing.assert_close(
            parameter.grad.double() / size,
            wanted / size,
            rtol=0,
            atol=2e-5,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def only_step(folder: Path, backbone: Backbone, settings: TrainSettings) -> tuple[Loop, dict[str, Tensor]]:
    """Run a loop of one step and return it with the gradients that the step had, before clipping."""
    goal = objective(backbone, folder / "targets", settings)
    random_weights(goal)
    loop = Loop(goal, settings.loop, RunFolder(folder / "run"), Accelerator(cpu=True))
    assert loop.steps == 1
    loop.run()
    return loop, {name: parameter.grad for name, parameter in goal.trainable().named_parameters()}


@pytest.mark.parametrize(
    "changes",
    [{}, {"recon_share": 0.5, "recon_reduction": "sum"}, {"position_share": 0.5}],
    ids=["all", "half", "half of the positions"],
)
def test_a_step_does_not_depend_on_how_it_is_split(changes: dict[str, Any], tmp_path: Path) -> None:
    backbone, passes = make_backbone("llama", torch.float64), {}
    for budget in (1, 200, 100_000):
        settings = quick(batch_size=12, clip=1e9, tokens_per_pass=budget, **changes)
        loop, passes[budget] = only_step(tmp_path / str(budget), backbone, settings)
        assert len(loop._passes(range(12))) == {1: 12, 200: 3, 100_000: 1}[budget]
    for budget in (1, 200):
        for name, gradient in passes[100_000].items():
            size = float(gradient.abs().max())
            torch.testing.assert_close(
                passes[budget][name] / size,
                gradient / size,
                rtol=0,
                atol=5e-6,
                msg=lambda text, name=name: f"{name}: {text}",
            )


@pytest.mark.parametrize("clip", [1e9, 0.01], ids=["unclipped", "clipped"])
@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_one_step_of_training_is_one_step_of_adamw_on_the_papers_loss(kind: str, clip: float, tmp_path: Path) -> None:
    """The whole stage, from responses to saved weights; the reference is written out below."""
    backbone, responses = make_backbone(kind), corpus(12)
    settings = quick(batch_size=12, validation=0, clip=clip, weight_decay=0.1, lr=3e-3)
    targets = counted_targets(responses, tmp_path / "targets")
    result = train(backbone, responses, targets, tmp_path / "run", SHAPE, settings)
    assert result.steps == 1

    before = load_file(tmp_path / "run" / "checkpoints" / "step-000000" / "weights.safetensors")
    after = load_file(tmp_path / "run" / "model" / "model.safetensors")
    reference = Reference.of(backbone.model, before)
    recon, align = reference.losses(responses, {response.id for response in responses}, settings)
    (recon + align).backward()
    gradients = {name: weight.grad for name, weight in reference.weights.items()}
    norm = float(torch.stack([gradient.square().sum() for gradient in gradients.values()]).sum().sqrt())
    event = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])
    assert event["gradient"] == pytest.approx(norm, rel=1e-5)
    assert (event["recon"], event["align"]) == pytest.approx(tuple(numbers(recon, align)), rel=1e-5)
    for name, start in before.items():
        gradient = gradients[name] * min(1.0, clip / norm)
        first, second = 0.1 * gradient, 0.001 * gradient.square()
        step = (first / (1 - 0.9)) / ((second / (1 - 0.999)).sqrt() + 1e-8)
        wanted = start.double() * (1 - 3e-3 * 0.1) - 3e-3 * step
        clear = gradient.abs() > 1e-4 * gradient.abs().max()  # below that, rounding decides the sign, and so the step
        assert clear.float().mean() > 0.9
        torch.testing.assert_close(
            after[name].double()[clear], wanted[clear], rtol=0, atol=3e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
        assert (after[name].double() - wanted).abs().max() <= 2 * 3e-3


def test_without_reconstruction_nothing_is_reconstructed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goal = objective(make_backbone(), tmp_path, quick(w_recon=0.0))
    monkeypatch.setattr("afterword.training.generative.response_pass", None)
    loss, named = goal.loss([0, 1], goal.plan([0, 1], 0))
    assert set(named) == {"align"}
    assert numbers(loss) == numbers(named["align"])


@pytest.mark.parametrize(("share", "count"), [(1.0, 8), (0.5, 4), (0.3, 2), (0.01, 1)])
def test_the_share_of_responses_is_reconstructed_and_never_none(
    share: float, count: int, tmp_path: Path, backbone: Backbone
) -> None:
    goal = objective(backbone, tmp_path, quick(recon_share=share))
    indices = list(range(2, 10))
    drawn: Counter[int] = Counter()
    for step in range(400):
        plan = goal.plan(indices, step)
        assert len(plan.rebuilt) == count
        assert plan.rebuilt <= set(indices)
        assert plan == goal.plan(indices, step)
        drawn.update(plan.rebuilt)
    expected = 400 * count / 8
    assert all(abs(drawn[i] - expected) < 5 * (400 * count / 8 * (1 - count / 8)) ** 0.5 + 1 for i in indices)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_reconstructing_a_share_is_the_loss_of_that_share(reduction: Any, tmp_path: Path, backbone: Backbone) -> None:
    """Over its own tokens or responses, not those of the whole step: the loss keeps its size."""
    settings = quick(recon_share=0.5, recon_reduction=reduction)
    goal = objective(backbone, tmp_path, settings)
    indices = list(range(8))
    plan = goal.plan(indices, 3)
    _, named = goal.loss(indices, plan)
    batch = responses_of(goal.train, indices)
    reference = Reference.of(backbone.model, dict(goal.trainable().named_parameters()))
    recon, align = reference.losses(batch, {goal.train.ids[i] for i in plan.rebuilt}, settings)
    assert numbers(named["recon"], named["align"]) == pytest.approx(numbers(recon, align), rel=1e-5)


def test_between_reconstructing_steps_only_alignment_is_left_and_the_weight_makes_up(
    tmp_path: Path, backbone: Backbone
) -> None:
    goal = objective(backbone, tmp_path, quick(recon_every=3, w_recon=0.5))
    found = [goal.loss([0, 1], goal.plan([0, 1], step)) for step in range(6)]
    assert [sorted(named) for _, named in found] == [["align", "recon"], ["align"], ["align"]] * 2
    loss, named = found[3]
    assert numbers(loss) == pytest.approx(numbers(named["align"] + 3 * 0.5 * named["recon"]))
    assert numbers(found[1][0]) == pytest.approx(numbers(found[1][1]["align"]))


def test_the_positions_of_a_step_are_few_and_the_same_again(
    tmp_path: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored = []

    def spy(states: Tensor, ids: Tensor, head: Any) -> Tensor:
        scored.append(ids.tolist())
        return head_cross_entropy(states, ids, head)

    monkeypatch.setattr("afterword.training.generative.head_cross_entropy", spy)
    goal = objective(backbone, tmp_path, quick(position_share=0.5))
    for step in (4, 4, 5):
        goal.loss([0, 4], goal.plan([0, 4], step))
    lengths = [len(goal.train.responses[i]) for i in (0, 4)]
    assert len(scored[0]) == sum(max(1, round(0.5 * length)) for length in lengths)
    assert scored[0] == scored[1] != scored[2]


def test_cost_counts_all_tokens_that_run(tmp_path: Path, backbone: Backbone) -> None:
    goal = objective(backbone, tmp_path, quick())
    (response,) = responses_of(goal.train, [0])
    query, answer = len(response.query.encode()), len(response.text.encode()) + (not response.cut)
    assert goal.cost(0) == query + 2 + 3 + 3 + answer


def test_gradient_checkpointing_of_the_backbone_changes_nothing(tmp_path: Path) -> None:
    """A backbone that a user has set up for it: tokens and heads get the gradients they had (CASES C50)."""
    gradients = {}
    for checkpointing in (False, True):
        backbone = make_backbone("llama")
        if checkpointing:
            model = backbone.model
            getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
        goal = objective(backbone, tmp_path / str(checkpointing), quick())
        loss, _ = goal.loss([0, 1, 2], goal.plan([0, 1, 2], 0))
        loss.backward()
        gradients[checkpointing] = [parameter.grad for parameter in goal.trainable().parameters()]
    assert all(float(gradient.abs().sum()) > 0 for gradient in gradients[False])
    torch.testing.assert_close(gradients[True], gradients[False])
