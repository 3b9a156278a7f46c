"""What a model starts as: its settings, its tokens, its heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from afterword.errors import SettingError
from afterword.model.config import ModelConfig
from afterword.model.heads import LearnedParts, random_heads
from afterword.model.model import Afterword
from afterword.model.settings import ModelSettings
from afterword.model.tokens import embedding_scale, start_tokens
from tests.model.embedders import TEXTS, WIDTH, make_embedder
from tests.world import TOKENIZER_SIZE, as_users_run_it, byte_ids, make_backbone, weights_of


def config(**changes: Any) -> ModelConfig:
    values = {"backbone": "b", "backbone_fingerprint": "f", "hidden_size": 8, "embedding_dimension": 4}
    return ModelConfig(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_compression": 0}, "n_compression is 0"),
        ({"n_thought": -1}, "n_thought is -1"),
        ({"placement": "after"}, "placement is 'after'"),
        ({"max_length": 10}, "max_length is 10: no room for text beside 10 learned tokens"),
        ({"embedding_dimension": 0}, "embedding_dimension is 0"),
        ({"embedding_dimension": "8"}, "embedding_dimension is '8'"),
        (
            {"default_prompt_name": "q"},
            r"default_prompt_name is 'q', prompts are document, query, AdvBench-IR-document, .* and 73 more",
        ),
    ],
)
def test_a_config_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with as_users_run_it(), pytest.raises(SettingError, match=message):
        config(**changes)


def test_defaults_are_the_second_recipe_of_the_paper() -> None:
    assert (config().n_thought, config().n_compression, config().max_length) == (0, 10, 512)
    assert config().settings == ModelSettings()
    assert config().placement == "query"


def test_each_config_has_its_own_prompts() -> None:
    config().prompts["query"] = "changed"
    assert config().prompts["query"] == ""
    assert config().prompts["document"] == "Summarize the following passage: "


def test_a_frame_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(SettingError, match=r"max_length 100 leaves no room for text beside 5 learned tokens and \d+"):
        make_embedder(placement="answer", max_length=100)


def table(kind: str) -> tuple[torch.Tensor, Any]:
    """All embeddings a tokenizer can ask for, in the space they are fed in, and their backbone."""
    backbone = make_backbone(kind)
    weight = backbone.model.get_input_embeddings().weight[:TOKENIZER_SIZE]
    return weight * (WIDTH**0.5 if kind == "gemma3_text" else 1.0), backbone


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_random_tokens_look_like_embedded_ones(kind: str) -> None:
    """Dimension by dimension, and in the space that Gemma scales by the square root of the width."""
    real, backbone = table(kind)
    tokens = start_tokens(backbone, 20_000, "random")
    assert tokens.dtype == torch.float32
    torch.testing.assert_close(tokens.std(dim=0), real.std(dim=0), rtol=0.08, atol=0)
    torch.testing.assert_close(tokens.mean(dim=0), real.mean(dim=0), rtol=0, atol=float(0.1 * real.std()))


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_scale_is_that_of_embedded_tokens(kind: str) -> None:
    real, backbone = table(kind)
    assert embedding_scale(backbone) == pytest.approx(float(real.square().mean().sqrt()), rel=0.05)


def test_rows_beyond_the_tokenizer_do_not_count() -> None:
    """They were never trained; here they are huge."""
    backbone = make_backbone("llama")
    with torch.no_grad():
        backbone.model.get_input_embeddings().weight[TOKENIZER_SIZE:] = 1e6
    assert start_tokens(backbone, 100, "random").abs().max() < 10
    assert embedding_scale(backbone) < 10


def test_random_tokens_are_drawn_by_seed() -> None:
    backbone = make_backbone("llama")
    first = start_tokens(backbone, 4, "random", seed=1)
    assert torch.equal(first, start_tokens(backbone, 4, "random", seed=1))
    assert not torch.equal(first, start_tokens(backbone, 4, "random", seed=2))


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_tokens_may_start_from_a_text(kind: str) -> None:
    real, backbone = table(kind)
    wanted = real[[byte_ids("abc")[i % 3] for i in range(7)]]
    torch.testing.assert_close(start_tokens(backbone, 7, "abc"), wanted)
    assert torch.equal(start_tokens(backbone, 2, "abc"), start_tokens(backbone, 7, "abc")[:2])


def test_tokens_of_a_bfloat16_backbone_are_float32() -> None:
    backbone = make_backbone("llama", torch.bfloat16)
    assert start_tokens(backbone, 2, "ab").dtype == start_tokens(backbone, 2, "random").dtype == torch.float32


def test_a_text_without_a_token_is_refused() -> None:
    with pytest.raises(SettingError, match="token_init '' has no token"):
        start_tokens(make_backbone("llama"), 2, "")


def test_heads_start_as_the_scaled_identity_and_a_seeded_draw() -> None:
    tokens = torch.zeros(3, 5)
    torch.manual_seed(1)
    parts = LearnedParts(tokens, 2, recon_scale=0.5)
    states = torch.randn(4, 3, 5)
    torch.testing.assert_close(parts.soft_prompt(states), states * 0.5)
    wanted = (states * 0.5).mean(dim=1) @ parts.align.weight.T
    torch.testing.assert_close(parts.embedding(parts.soft_prompt(states)), wanted)
    assert parts.tokens is not tokens


def test_random_heads_are_seeded_and_within_the_bounds_of_torch() -> None:
    first, same, other = (LearnedParts(torch.zeros(2, 16), 4) for _ in range(3))
    random_heads(first, 1)
    random_heads(same, 1)
    random_heads(other, 2)
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, same.get_parameter(name))
        if name != "tokens":
            assert not torch.equal(parameter, other.get_parameter(name))
            assert 0 < parameter.abs().max() <= 16**-0.5


def test_from_backbone_takes_a_loaded_one() -> None:
    backbone = make_backbone("gemma3_text")
    model = Afterword.from_backbone(backbone, 2, 3, embedding_dimension=6)
    assert model.backbone is backbone
    assert tuple(model.parts.tokens.shape) == (5, WIDTH)
    assert model.encode(TEXTS).shape == (len(TEXTS), 6)
    assert (model.config.backbone, model.config.backbone_fingerprint) == (backbone.name, backbone.fingerprint)
    scale = embedding_scale(backbone)
    torch.testing.assert_close(model.parts.recon.weight.detach(), torch.eye(WIDTH) * scale)


def test_from_backbone_takes_a_folder(saved_folders: dict[str, Path]) -> None:
    folder = str(saved_folders["llama"])
    model = Afterword.from_backbone(folder, n_compression=4, device="cpu", dtype="float32")
    assert (model.config.backbone, model.config.n_thought, model.config.n_compression) == (folder, 0, 4)
    assert model.get_embedding_dimension() == WIDTH
    np.testing.assert_array_equal(
        model.encode(TEXTS), Afterword.from_backbone(make_backbone("llama"), n_compression=4).encode(TEXTS)
    )


def test_settings_beat_counts() -> None:
    settings = ModelSettings(n_thought=1, n_compression=2, placement="answer", token_init="ab", max_length=800)
    model = Afterword.from_backbone(make_backbone("llama"), 7, 7, settings=settings)
    assert model.config.settings == settings
    torch.testing.assert_close(model.parts.tokens.detach(), start_tokens(model.backbone, 3, "ab"))


def test_a_start_is_repeatable_and_leaves_global_random_numbers_alone() -> None:
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    models = [Afterword.from_backbone(make_backbone("llama"), seed=seed) for seed in (5, 5, 6)]
    assert torch.equal(torch.rand(2), wanted)
    assert models[0].fingerprint == models[1].fingerprint != models[2].fingerprint


def test_only_tokens_and_heads_can_be_trained() -> None:
    model = make_embedder()
    names = {name for name, parameter in model.parts.named_parameters() if parameter.requires_grad}
    assert names == {"tokens", "recon.weight", "recon.bias", "align.weight", "align.bias"}
    assert not any(parameter.requires_grad for parameter in model.backbone.model.parameters())


def test_several_models_share_one_backbone() -> None:
    backbone = make_backbone("llama")
    before = weights_of(backbone.model)
    first, second = make_embedder(backbone, seed=1), make_embedder(backbone, seed=2)
    assert first.backbone.model is second.backbone.model
    assert np.abs(first.encode("one") - second.encode("one")).max() > 1e-3
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.model.state_dict().items())
