"""Masked next-token prediction against plain transformers, one row at a time, with all logits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from afterword.backbone.backbone import Backbone
from afterword.errors import SettingError
from afterword.teacher.adapters import Adapter, LoraSettings
from afterword.training.mntp import MNTPObjective, mask_id
from afterword.training.teacher_settings import TeacherSettings
from tests.world import BOS, VOCABULARY, as_transformers_has_it, byte_ids, make_backbone, random_rows

LORA = LoraSettings(lora_rank=3, lora_dropout=0.0)
ROWS = [[BOS, *row] for row in random_rows([14, 5, 1, 22, 9])]


def adapted(backbone: Backbone, lora: LoraSettings = LORA) -> Adapter:
    """An adapter that has learned something."""
    adapter = Adapter(backbone, lora, seed=0)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in adapter.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3, generator=generator)
    return adapter


def objective(kind: str = "llama", **changes: object) -> MNTPObjective:
    backbone = make_backbone(kind)
    settings = TeacherSettings(**{"mask_share": 0.3, "seed": 1, **changes})
    return MNTPObjective(backbone, adapted(backbone), ROWS, ROWS[:3], settings)


def reference(goal: MNTPObjective, indices: list[int], step: int) -> Tensor:
    """Mean over all masked tokens; the masks are the objective's own, which other tests look at."""
    losses = []
    for index in indices:
        masked = goal._masked(goal.rows[index], step, index)
        with as_transformers_has_it(goal.backbone.model):
            logits = goal.backbone.model(torch.tensor([masked.row]), use_cache=False, is_causal=False).logits[0]
        before = [place - 1 for place in masked.places]
        losses.append(cross_entropy(logits[before], torch.tensor(masked.tokens), reduction="none"))
    return torch.cat(losses).mean()


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text", "gemma2", "starcoder2"])
def test_loss_and_gradient_are_those_of_plain_transformers(kind: str) -> None:
    goal, indices = objective(kind), [0, 1, 2, 3, 4]
    plan = goal.plan(indices, 7)
    parts = [goal.loss(part, plan) for part in ([0, 3], [1, 2, 4])]
    sum(loss for loss, _ in parts).backward()
    found = {name: p.grad.clone() for name, p in goal.adapter.named_parameters()}
    goal.adapter.zero_grad()
    wanted = reference(goal, indices, 7)
    wanted.backward()
    torch.testing.assert_close(sum(loss.detach() for loss, _ in parts), wanted.detach(), atol=1e-5, rtol=1e-5)
    for name, parameter in goal.adapter.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, atol=5e-5, rtol=1e-3)


def test_masks() -> None:
    """A share of each row, never its first token, another one each step, the same one each time it is asked for."""
    goal = objective()
    (mask,) = byte_ids("_")
    for index, row in enumerate(ROWS):
        one, again, other = (goal._masked(row, step, index) for step in (0, 0, 1))
        assert one == again
        assert len(one.places) == max(1, round(0.3 * (len(row) - 1)))
        assert min(one.places) > 0
        assert [row[place] for place in one.places] == one.tokens
        assert [i for i, (a, b) in enumerate(zip(row, one.row, strict=True)) if a != b and b != mask] == []
        assert all(one.row[place] == mask for place in one.places)
        assert len(row) < 9 or one.places != other.places
    assert goal.plan([0, 3], 0) == (0, round(0.3 * 14) + round(0.3 * 22))


def test_masks_like_bert() -> None:
    backbone = make_backbone()
    row = [BOS, *random_rows([2000])[0]]
    settings = TeacherSettings(mask_share=0.5, mask_kind="bert")
    goal = MNTPObjective(backbone, adapted(backbone), [row], [], settings)
    masked = goal._masked(row, 0, 0)
    stand_ins = [masked.row[place] for place in masked.places]
    shares = [
        sum(s == goal.mask for s in stand_ins) / len(stand_ins),
        sum(s == t for s, t in zip(stand_ins, masked.tokens, strict=True)) / len(stand_ins),
    ]
    assert abs(shares[0] - 0.8) < 0.05
    assert abs(shares[1] - 0.1) < 0.04


def test_accuracy_and_nats_on_held_out_rows() -> None:
    goal = objective()
    right = nats = total = 0.0
    for index, row in enumerate(goal.held_out):
        masked = goal._masked(row, -1, index)
        with as_transformers_has_it(goal.backbone.model), torch.no_grad():
            logits = goal.backbone.model(torch.tensor([masked.row]), use_cache=False, is_causal=False).logits[0]
        rows, wanted = logits[[place - 1 for place in masked.places]], torch.tensor(masked.tokens)
        right += float((rows.argmax(dim=1) == wanted).sum())
        nats += float(cross_entropy(rows, wanted, reduction="sum"))
        total += len(wanted)
    assert goal.validate() == pytest.approx({"mntp": nats / total, "accuracy": right / total}, abs=1e-5)
    assert objective().validate() == goal.validate()


def test_rows_too_short_to_predict_anything_are_left_out() -> None:
    backbone = make_backbone()
    goal = MNTPObjective(backbone, adapted(backbone), [[BOS], [BOS, 20]], [[BOS]], TeacherSettings())
    assert len(goal) == 1
    assert goal.validate() == {}


def test_dropout_of_the_adapter_is_a_function_of_seed_and_step() -> None:
    backbone = make_backbone()
    adapter = adapted(backbone, LoraSettings(lora_rank=3, lora_dropout=0.5))
    goal = MNTPObjective(backbone, adapter, ROWS, ROWS[:3], TeacherSettings())
    state = torch.get_rng_state()
    one, again = (goal.loss([0, 3], goal.plan([0, 3], 0))[0].item() for _ in range(2))
    assert one == again
    assert torch.equal(torch.get_rng_state(), state)
    other = MNTPObjective(backbone, adapter, ROWS, ROWS[:3], TeacherSettings(seed=5))
    other._masked = goal._masked  # type: ignore[method-assign]
    assert other.loss([0, 3], goal.plan([0, 3], 0))[0].item() != one
    assert goal.validate() == goal.validate()


def test_mask_tokens(backbone: Backbone) -> None:
    assert mask_id(backbone, "_") == byte_ids("_")[0]
    assert mask_id(backbone, "<pad>") == 0
    with pytest.raises(SettingError, match=r"mask_token is '\[MASK\]': tiny/llama has no such token \(it makes 6"):
        mask_id(backbone, "[MASK]")


def test_the_vocabulary_may_be_larger_than_the_tokenizer() -> None:
    assert len(make_backbone().text.tokenizer) < VOCABULARY
    goal = objective()
    assert all(token < len(goal.backbone.text.tokenizer) for row in goal.rows for token in row)
