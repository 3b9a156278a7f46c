"""What a backbone says of itself, and its vocabulary head, against plain transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3Config, GenerationConfig

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import token_batch
from afterword.backbone.families import FAMILIES, family_of, sliding_window
from afterword.backbone.passes import full_pass
from afterword.errors import SettingError
from tests.world import (
    ADDED,
    EOS,
    GEMMA_TEMPLATE,
    KINDS,
    QWEN_TEMPLATE,
    SPECIAL,
    byte_ids,
    embedded,
    make_backbone,
    make_model,
    make_tokenizer,
    with_tokenizer,
)

IM_END = SPECIAL.index("<|im_end|>")
TURN_END = SPECIAL.index("<end_of_turn>")
ROW = byte_ids("Which layer of the air is the lowest?")


@pytest.mark.parametrize("kind", KINDS)
def test_head_gives_the_logits_of_the_model(kind: str) -> None:
    backbone = make_backbone(kind)
    with torch.no_grad():
        wanted = backbone.model(torch.tensor([ROW])).logits[0]
        states = backbone.model.base_model(torch.tensor([ROW])).last_hidden_state[0]
        found = backbone.logits(states)
    assert wanted.std() > 0.1
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_head_knows_the_bias_of_a_head_that_has_one() -> None:
    model = make_model("llama")
    model.lm_head.bias = torch.nn.Parameter(torch.linspace(-2, 2, 300))
    backbone = Backbone(model, make_tokenizer(), "tiny")
    with torch.no_grad():
        wanted = model(torch.tensor([ROW])).logits[0]
        found = backbone.logits(model.base_model(torch.tensor([ROW])).last_hidden_state[0])
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_embedded_ids_stand_for_the_ids(kind: str) -> None:
    """Whatever a family does to its embeddings (Gemma and Granite scale them), running them equals running the ids."""
    backbone = make_backbone(kind)
    ids = torch.tensor([ROW])
    with torch.no_grad():
        found = backbone.run(backbone.embed(ids), None, torch.arange(len(ROW))[None])
        wanted = backbone.model.base_model(ids).last_hidden_state
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_the_language_model_inside_a_multimodal_one_is_used() -> None:
    """Gemma 3 from 4B on can see; only its language part is asked, and its config, window and head are found."""
    text = make_model("gemma3_text-short").config
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Gemma3Config(text_config=text, vision_config={**vision, "image_size": 8, "patch_size": 4})
    backbone = Backbone(AutoModelForCausalLM.from_config(config), make_tokenizer(), "tiny")
    assert (backbone.window, backbone.hidden_size, backbone.family) == (8, 32, FAMILIES["gemma3_text"])
    batch = token_batch([ROW[:-1], ROW[:5]], backbone.device)
    with torch.no_grad():
        wanted = backbone.model(torch.tensor([ROW])).logits[0, -1]
        tail = backbone.embed(torch.tensor([ROW[-1:]]))[0]
        states = full_pass(backbone, batch, tail)
    assert wanted.std() > 0.1
    torch.testing.assert_close(backbone.logits(states[0])[0], wanted, rtol=1e-5, atol=1e-5)


def test_a_backbone_is_frozen_and_in_eval_mode() -> None:
    model = make_model("llama").train()
    Backbone(model, make_tokenizer(), "tiny")
    assert not any(module.training for module in model.modules())
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_device_type_and_width_are_those_of_the_weights() -> None:
    backbone = make_backbone("qwen3", torch.bfloat16)
    assert (backbone.device, backbone.dtype, backbone.hidden_size) == (torch.device("cpu"), torch.bfloat16, 32)


@pytest.mark.parametrize(
    ("kind", "changes", "window"),
    [
        ("llama", {}, None),
        ("mistral", {}, 16),
        ("gemma3_text", {}, 128),
        ("gemma3_text", {"layer_types": ["full_attention"] * 3}, None),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 8}, None),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}, 8),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}, None),
    ],
)
def test_window_is_that_of_the_layers_that_have_one(kind: str, changes: dict[str, object], window: int | None) -> None:
    assert sliding_window(make_model(kind, **changes).config) == window


def test_fingerprint_survives_a_change_of_type_and_nothing_else() -> None:
    original = make_backbone("llama").fingerprint
    assert make_backbone("llama").fingerprint == original
    assert Backbone(make_model("llama").bfloat16(), make_tokenizer(), "other name").fingerprint == original
    assert make_backbone("llama", initializer_range=0.31).fingerprint != original
    assert make_backbone("llama", bos=False).fingerprint != original


@pytest.mark.parametrize("name", ["model.layers.1.mlp.down_proj.weight", "model.norm.weight", "lm_head.weight"])
def test_fingerprint_sees_every_tensor(name: str) -> None:
    changed = make_backbone("llama")
    with torch.no_grad():
        changed.model.get_parameter(name).mul_(1.1)
    assert changed.fingerprint != make_backbone("llama").fingerprint


def with_ends(backbone: Backbone, generation: object, config: object = EOS) -> Backbone:
    backbone.model.generation_config = GenerationConfig(eos_token_id=generation)
    backbone.model.config.eos_token_id = config
    return backbone


def test_end_tokens_come_from_the_generation_config_first() -> None:
    assert with_ends(make_backbone("llama"), [EOS, TURN_END], 99).end_ids == (EOS, TURN_END)
    assert with_ends(make_backbone("llama"), TURN_END).end_ids == (TURN_END,)


def test_end_tokens_come_from_the_config_and_then_from_the_tokenizer() -> None:
    assert with_ends(make_backbone("llama"), None, 9).end_ids == (9,)
    assert with_ends(make_backbone("llama"), None, None).end_ids == (EOS,)


def test_the_end_of_a_turn_in_the_template_comes_first() -> None:
    """Answers are trained with the first: an instruct model ends them as its template does."""
    assert with_ends(make_backbone("qwen3", template=QWEN_TEMPLATE), [EOS, IM_END]).end_ids == (IM_END, EOS)
    assert with_ends(make_backbone("llama", template=GEMMA_TEMPLATE), [EOS, TURN_END]).end_ids == (TURN_END, EOS)


def test_the_end_of_a_turn_counts_only_if_the_config_knows_it() -> None:
    assert with_ends(make_backbone("qwen3", template=QWEN_TEMPLATE), [EOS]).end_ids == (EOS,)


def test_no_end_token_anywhere_is_an_error() -> None:
    tokenizer = make_tokenizer()
    tokenizer.eos_token = None
    backbone = with_ends(with_tokenizer(make_backbone("llama"), tokenizer), None, None)
    with pytest.raises(SettingError, match="no end token"):
        _ = backbone.end_ids


def test_line_ids_are_all_tokens_that_hold_a_line_break() -> None:
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["\n\n", "<0x0A>"])
    breaks = tokenizer.convert_tokens_to_ids(["\n\n", "<0x0A>"])
    assert with_tokenizer(make_backbone("llama"), tokenizer).line_ids == tuple(sorted([*byte_ids("\n"), *breaks]))


def test_embed_is_in_the_space_of_the_model() -> None:
    """Gemma's embedding layer scales by the square root of the width."""
    backbone = make_backbone("gemma3_text")
    weight = backbone.model.get_input_embeddings().weight
    torch.testing.assert_close(backbone.embed(torch.tensor([[20, 30]]))[0], weight[[20, 30]] * 32**0.5)
    torch.testing.assert_close(embedded(backbone.model, [20, 30])[0], weight[[20, 30]] * 32**0.5)


def test_table_is_not_a_control_token() -> None:
    """The helper's own facts: what the other tests take for control tokens and for text."""
    tokenizer = make_tokenizer()
    assert [tokenizer.convert_tokens_to_ids(token) for token in (*SPECIAL, *ADDED)] == list(range(11))
    assert tokenizer("hé☃", add_special_tokens=False).input_ids == byte_ids("hé☃")


@pytest.mark.parametrize(
    ("changes", "template"),
    [
        ({"sliding_window": 9}, None),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 77.0}}, None),
        ({}, "x"),
    ],
)
def test_fingerprint_sees_what_no_weight_shows(changes: dict[str, object], template: str | None) -> None:
    plain = make_backbone("mistral")
    other = make_backbone("mistral", template=template, **changes)
    assert all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), other.model.parameters(), strict=True))
    assert plain.fingerprint != other.fingerprint


def test_fingerprint_sees_a_vocabulary_in_another_order() -> None:
    backbone = make_backbone()
    tokenizer = make_tokenizer()
    tokenizer.convert_ids_to_tokens = lambda ids: [f"other {i}" for i in ids]
    assert with_tokenizer(backbone, tokenizer).fingerprint != backbone.fingerprint


def test_a_head_that_no_table_explains_is_refused() -> None:
    backbone = make_backbone("starcoder2")
    forward = backbone.model.forward

    def scaled(*arguments: object, **options: object) -> object:
        output = forward(*arguments, **options)
        output.logits = output.logits * 3.0
        return output

    backbone.model.forward = scaled
    with pytest.raises(SettingError, match=r"starcoder2.*families\.py"):
        _ = backbone.head


def test_a_model_that_sees_both_ways_takes_the_plain_pass() -> None:
    config = make_model("gemma3_text").config
    config.use_bidirectional_attention = True
    assert not family_of(config).causal_prefix
