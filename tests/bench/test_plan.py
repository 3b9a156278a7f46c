"""The estimate before a training, against what the training then does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from afterword.backbone.batch import token_batch
from afterword.backbone.cost import Cost
from afterword.backbone.passes import full_pass
from afterword.bench.plan import kept_bytes, plan_training
from tests.cli.conftest import done
from tests.training.world import SHAPE, corpus, counted_targets, quick
from tests.world import make_backbone, random_rows, random_vectors

CPU = torch.device("cpu")
WIDE = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text"])
def test_what_a_token_keeps_for_the_backward_pass_is_about_right(kind: str) -> None:
    backbone = make_backbone(kind, head_dim=64, num_hidden_layers=6, layer_types=None, **WIDE)
    frozen = {parameter.data_ptr() for parameter in backbone.model.parameters()}

    def kept(tokens: int) -> int:
        sizes: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            if tensor.untyped_storage().data_ptr() not in frozen:
                sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        tail = random_vectors(tokens, backbone.hidden_size).requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            states = full_pass(backbone, token_batch(random_rows((3,)), CPU), tail)
        assert states.requires_grad
        return sum(sizes.values())

    measured = (kept(300) - kept(100)) / 200
    assert 0.8 * measured < kept_bytes(backbone) < 1.6 * measured  # rather too much than too little


def test_the_plan_counts_the_examples_and_steps_of_the_training(tmp_path: Path) -> None:
    backbone, responses = make_backbone("llama"), corpus()
    targets = counted_targets(responses, tmp_path)
    settings = quick(epochs=2.0, document_share=0.5)
    plan = plan_training(backbone, responses, targets, SHAPE, settings)
    assert (plan.examples, plan.steps) == (18, 9)  # 12, half of them as documents too; batches of 4
    assert plan.hours == pytest.approx(plan.flops / plan.ceiling / 0.65 / 3600)
    assert plan.memory > plan.weights + plan.learned + plan.one_pass
    assert plan.weights == Cost.of(backbone.model).parameters * 4
    less = plan_training(backbone, responses, targets, SHAPE, replace(settings, recon_share=0.25))
    least = plan_training(backbone, responses, targets, SHAPE, replace(settings, w_recon=0.0))
    fewer = plan_training(backbone, responses, targets, SHAPE, replace(settings, position_share=0.5))
    assert least.flops < less.flops < fewer.flops < plan.flops


def test_the_command_says_it_and_does_nothing(
    tmp_path: Path,
    queries: Path,
    teacher_folder: Path,
    backbone_flags: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    done(capsys, "respond", "--queries", queries, "--out", tmp_path / "r", *backbone_flags, "--max-new-tokens", 4)
    done(capsys, "target", "--responses", tmp_path / "r", "--out", tmp_path / "t", "--teacher", teacher_folder)
    asked = ["train", "--responses", tmp_path / "r", "--targets", tmp_path / "t", "--out", tmp_path / "x"]
    asked += [*backbone_flags, "--validation", 2, "--plan"]
    text = done(capsys, *asked)
    assert "GB of memory" in text and "TFLOP" in text
    assert json.loads(done(capsys, *asked, "--json"))["steps"] == 1
    assert not (tmp_path / "x").exists()
