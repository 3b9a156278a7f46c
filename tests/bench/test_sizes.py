"""Backbones of a real shape with random weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from afterword.backbone.cost import Cost
from afterword.bench.sizes import KNOWN, empty_model, model_config, random_backbone
from afterword.errors import SettingError
from tests.world import make_model

PUBLISHED = {  # parameters in millions, as their model cards say
    "Qwen/Qwen3-0.6B": 596,
    "Qwen/Qwen3-1.7B": 1721,
    "Qwen/Qwen3-4B": 4022,
    "Qwen/Qwen3-8B": 8191,
    "Qwen/Qwen2.5-0.5B-Instruct": 494,
    "Qwen/Qwen2.5-1.5B-Instruct": 1544,
    "Qwen/Qwen2.5-3B-Instruct": 3086,
    "Qwen/Qwen2.5-7B-Instruct": 7616,
    "meta-llama/Llama-3.2-1B-Instruct": 1236,
    "meta-llama/Llama-3.2-3B-Instruct": 3213,
    "meta-llama/Llama-3.1-8B-Instruct": 8030,
    "google/gemma-3-270m": 268,
    "google/gemma-3-1b-it": 1000,
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_shapes_have_the_published_number_of_parameters(name: str) -> None:
    model = empty_model(model_config(name))
    assert next(model.parameters()).device.type == "meta"
    assert Cost.of(model).parameters / 1e6 == pytest.approx(PUBLISHED[name], abs=1)


def test_a_config_file_or_folder_gives_a_backbone_that_runs(tmp_path: Path) -> None:
    config = make_model("qwen3").config
    config.save_pretrained(tmp_path)
    from_folder = random_backbone(str(tmp_path), "cpu", "float32")
    from_file = random_backbone(str(tmp_path / "config.json"), "cpu", "float32")
    assert from_folder.hidden_size == from_file.hidden_size == config.hidden_size
    assert torch.equal(from_folder.embedding_matrix, from_file.embedding_matrix)  # one seed
    assert from_folder.text.decode(from_folder.text.plain(["a word ☃"])[0]) == "a word ☃"
    assert from_folder.packs


def test_a_name_that_nobody_knows_is_refused_with_those_that_need_no_hub(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot read a config for 'no/such'") as refused:
        model_config("no/such")
    assert "Qwen/Qwen3-0.6B" in str(refused.value)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nothing"}))
    with pytest.raises((SettingError, ValueError)):
        model_config(str(tmp_path))
