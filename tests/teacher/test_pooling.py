"""Poolings by hand, and the teacher's options against plain transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from afterword.errors import SettingError
from afterword.teacher.llm import LLMTeacher
from afterword.teacher.pooling import Pooling, pool
from afterword.teacher.settings import PoolingSettings
from tests.world import BOS, EOS, GEMMA_TEMPLATE, QWEN_TEMPLATE, byte_ids, make_backbone

STATES = torch.tensor([[9.0, 9.0], [1.0, 0.0], [2.0, 2.0], [6.0, 4.0], [5.0, 5.0]])
BY_HAND: dict[Pooling, list[list[float]]] = {
    "mean": [[3.0, 2.0], [5.0, 5.0]],
    "weighted_mean": [[(1 + 4 + 18) / 6, (0 + 4 + 12) / 6], [5.0, 5.0]],
    "last": [[6.0, 4.0], [5.0, 5.0]],
    "eos": [[6.0, 4.0], [5.0, 5.0]],
}


@pytest.mark.parametrize(("pooling", "wanted"), BY_HAND.items(), ids=list(BY_HAND))
def test_by_hand(pooling: Pooling, wanted: list[list[float]]) -> None:
    """Rows of four and one states, of which three and one count."""
    found = pool(STATES, [4, 1], [3, 1], pooling)
    torch.testing.assert_close(found, torch.tensor(wanted))


def test_half_precision_is_pooled_in_float32() -> None:
    assert pool(STATES.bfloat16(), [4, 1], [3, 1], "mean").dtype == torch.float32


@torch.no_grad()
def states(backbone: Any, ids: list[int], causal: bool, layer: int = -1) -> torch.Tensor:
    model = backbone.model.base_model
    return model(torch.tensor([ids]), use_cache=False, is_causal=causal, output_hidden_states=True).hidden_states[
        layer
    ][0]


@pytest.mark.parametrize("attention", ["causal", "bidirectional"])
@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_options_are_what_they_say(kind: str, attention: str) -> None:
    backbone, text, prompt, causal = make_backbone(kind), "a text", "Say: ", attention == "causal"
    head, own = [BOS, *byte_ids("Say:")], byte_ids(" a text")

    def found(**changes: Any) -> np.ndarray:
        teacher = LLMTeacher(backbone, PoolingSettings(attention=attention, prompt=prompt), **changes)
        return teacher.encode(["another, longer one", text])[1]

    whole = states(backbone, [*head, *own], causal)
    np.testing.assert_allclose(found(), whole[len(head) :].mean(dim=0), atol=1e-5)
    np.testing.assert_allclose(found(pool_prompt=True), whole.mean(dim=0), atol=1e-5)
    np.testing.assert_allclose(found(pooling="last"), whole[-1], atol=1e-5)
    weights = torch.arange(1.0, len(own) + 1)
    np.testing.assert_allclose(found(pooling="weighted_mean"), weights @ whole[len(head) :] / weights.sum(), atol=1e-5)
    ended = states(backbone, [*head, *own, EOS], causal)
    np.testing.assert_allclose(found(pooling="eos"), ended[-1], atol=1e-5)
    early = states(backbone, [*head, *own], causal, layer=1)
    np.testing.assert_allclose(found(layer=1), early[len(head) :].mean(dim=0), atol=1e-5)


@pytest.mark.parametrize(
    ("template", "bos", "before", "after"),
    [
        (QWEN_TEMPLATE, False, "<|im_start|>user\n", "<|im_end|>"),
        (GEMMA_TEMPLATE, True, "<bos><start_of_turn>user\n", "<end_of_turn>"),
    ],
)
def test_in_the_users_turn(template: str, bos: bool, before: str, after: str) -> None:
    """The head of the turn stands outside the pooling, its end inside; nothing of the assistant is there."""
    backbone = make_backbone("llama", bos=bos, template=template)
    convert = backbone.text.tokenizer
    head = convert(before, add_special_tokens=False).input_ids
    tail = convert(after, add_special_tokens=False).input_ids
    teacher = LLMTeacher(backbone, PoolingSettings(attention="bidirectional", prompt="", around="user"))
    wanted = states(backbone, [*head, *byte_ids("hello"), *tail], False)[len(head) :].mean(dim=0)
    np.testing.assert_allclose(teacher.encode(["hello"])[0], wanted, atol=1e-5)


def test_a_prompt_sees_the_text_both_ways_and_every_setting_is_in_the_fingerprint() -> None:
    backbone = make_backbone()
    settings = PoolingSettings(attention="bidirectional", prompt="")
    changes: list[dict[str, Any]] = [
        {},
        {"attention": "causal"},
        {"pooling": "last"},
        {"prompt": "x"},
        {"pool_prompt": True},
        {"layer": 1},
        {"max_seq_length": 7},
    ]
    assert len({LLMTeacher(backbone, settings, **change).fingerprint for change in changes}) == len(changes)


@pytest.mark.parametrize("text", ["", "ok"])
def test_an_empty_text_is_finite_both_ways(text: str) -> None:
    for bos in (True, False):
        teacher = LLMTeacher(make_backbone("qwen3", bos=bos), attention="bidirectional", prompt="")
        alone, beside = teacher.encode([text])[0], teacher.encode([text, "something longer", ""])[0]
        assert np.isfinite(alone).all()
        np.testing.assert_allclose(beside, alone, atol=1e-5)


def test_a_layer_that_is_not_there_and_a_length_of_none() -> None:
    with pytest.raises(SettingError, match="layer is 3: tiny/llama has 2 layers"):
        LLMTeacher(make_backbone(), layer=3)
    with pytest.raises(SettingError, match="max_seq_length is 0"):
        PoolingSettings(max_seq_length=0)


def test_an_llm_that_cannot_see_both_ways_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from afterword.backbone.backbone import Backbone

    monkeypatch.setattr(Backbone, "packs", False)
    run = Backbone.run
    monkeypatch.setattr(Backbone, "run", lambda *args, **options: run(*args, **{**options, "both_ways": False}))
    with pytest.raises(SettingError, match="models of type llama do not see both ways"):
        LLMTeacher(make_backbone(), attention="bidirectional")
