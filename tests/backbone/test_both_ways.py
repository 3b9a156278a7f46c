"""A causal LLM that sees both ways, against transformers' own switch, one row at a time; and dropout inside it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import token_batch
from afterword.backbone.dropout import attention_dropout
from afterword.backbone.passes import encoder_pass, text_pass
from afterword.errors import SettingError
from tests.world import as_transformers_has_it, make_backbone, make_model, make_tokenizer, random_rows

KINDS = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "gemma3_text-short", "starcoder2"]
LENGTHS = {"padded": (12, 3, 1, 20), "even": (9, 9), "alone": (14,), "in groups": (2, 20, 1, 3, 19, 9)}


def eager(kind: str) -> Backbone:
    model = make_model(kind)
    model.set_attn_implementation("eager")
    return Backbone(model, make_tokenizer(), kind)


@torch.no_grad()
def reference(backbone: Backbone, row: list[int], both_ways: bool, layer: int | None = None) -> Tensor:
    """By the config's switch, without mask, padding or position ids."""
    config, model = backbone.config, backbone.model.base_model
    before = config.to_dict()
    if both_ways:
        config.is_causal = False
    try:
        with as_transformers_has_it(backbone.model):
            output = model(torch.tensor([row]), use_cache=False, output_hidden_states=True)
    finally:
        if both_ways:
            del config.is_causal
    assert config.to_dict() == before
    return output.last_hidden_state[0] if layer is None else output.hidden_states[layer][0]


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_states_are_those_of_plain_transformers(kind: str, both_ways: bool, lengths: tuple[int, ...]) -> None:
    rows = random_rows(lengths)
    for backbone in (make_backbone(kind), eager(kind)):
        with torch.no_grad():
            found = encoder_pass(backbone, rows, both_ways=both_ways)
        wanted = torch.cat([reference(backbone, row, both_ways) for row in rows])
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("make", [make_backbone, eager])
@pytest.mark.parametrize("kind", KINDS)
def test_a_later_token_moves_an_earlier_state_both_ways_only(kind: str, make) -> None:
    backbone, (row,) = make(kind), random_rows([6])
    other = [*row[:-1], row[-1] - 1]
    for both_ways in (True, False):
        with torch.no_grad():
            one, two = (encoder_pass(backbone, [each, row], both_ways=both_ways)[0] for each in (row, other))
        assert torch.equal(one, two) != both_ways


@pytest.mark.parametrize("kind", KINDS)
def test_the_causal_llm_is_untouched_afterwards(kind: str) -> None:
    backbone, rows = make_backbone(kind), random_rows([8, 5])
    batch = token_batch(rows, backbone.device)
    before, config = text_pass(backbone, batch)[0], backbone.config.to_dict()
    with torch.no_grad():
        encoder_pass(backbone, rows)
    assert torch.equal(text_pass(backbone, batch)[0], before)
    assert backbone.config.to_dict() == config


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("kind", ["llama", "gemma2", "starcoder2"])
def test_the_states_behind_a_layer(kind: str, layer: int) -> None:
    backbone, rows = make_backbone(kind), random_rows([8, 5])
    for both_ways in (True, False):
        with torch.no_grad():
            found = encoder_pass(backbone, rows, both_ways=both_ways, layer=layer)
        wanted = torch.cat([reference(backbone, row, both_ways, layer) for row in rows])
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    alone = text_pass(backbone, token_batch(rows, backbone.device), layer)[0]
    torch.testing.assert_close(alone, wanted, atol=1e-5, rtol=1e-5)


def test_rows_longer_than_the_window_run_the_librarys_way() -> None:
    """Gemma 3 with a window of 8 tokens: what transformers masks both ways is masked."""
    backbone, (row,) = make_backbone("gemma3_text-short"), random_rows([40])
    with torch.no_grad():
        found = encoder_pass(backbone, [row, row[:5]])[:40]
    torch.testing.assert_close(found, reference(backbone, row, True), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text", "mistral", "qwen2", "gemma2"])
def test_attention_dropout_acts_where_the_config_has_none_and_goes_again(kind: str) -> None:
    backbone, rows = make_backbone(kind), random_rows([30, 20])
    with torch.no_grad():
        plain = encoder_pass(backbone, rows)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            with attention_dropout(backbone.body, 0.5):
                noisy = [encoder_pass(backbone, rows) for _ in range(2)]
        again = encoder_pass(backbone, rows)
    assert not torch.allclose(noisy[0], plain)
    assert not torch.allclose(noisy[0], noisy[1])
    assert torch.equal(again, plain)
    assert not any(module.training for module in backbone.model.modules())


def test_no_dropout_changes_nothing(backbone: Backbone) -> None:
    rows = random_rows([6])
    with torch.no_grad(), attention_dropout(backbone.body, 0.0):
        assert torch.equal(encoder_pass(backbone, rows, dropout=0.0), encoder_pass(backbone, rows))


def test_a_model_without_attention_dropout_says_so() -> None:
    with (
        pytest.raises(SettingError, match="no attention module of this LLM has dropout"),
        attention_dropout(torch.nn.Linear(2, 2), 0.1),
    ):
        pass


def test_dropped_embeddings_are_scaled_up(backbone: Backbone) -> None:
    """Behind no layer at all the states are the input embeddings."""
    (row,) = random_rows([50])
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        found = encoder_pass(backbone, [row], layer=0, dropout=0.25)
        plain = encoder_pass(backbone, [row], layer=0)
    gone = found == 0
    assert 0.2 < gone.float().mean() < 0.3
    torch.testing.assert_close(found[~gone], plain[~gone] / 0.75)
