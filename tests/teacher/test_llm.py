"""The LLM as its own teacher, against means of states that plain transformers gives, one text at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from afterword.backbone.backbone import Backbone
from afterword.encoder import Encoder, fingerprint_of, name_of
from afterword.errors import InputError
from afterword.teacher.llm import LLMTeacher
from tests.world import BOS, byte_ids, make_backbone

SUMMARISE = "Summarize the following passage: "
TEXTS = [
    "Light travels faster than sound.",
    "ok",
    "café ☃ 👩‍👩‍👧 <eos>",
    "a text that is a good deal longer than all the others, so that they are padded when they stand beside it",
]
KINDS = {"llama": True, "qwen3": False, "gemma3_text": True, "gemma3_text-short": True, "starcoder2": True}


@torch.no_grad()
def mean_states(backbone: Backbone, head: list[int], own: list[int]) -> NDArray[np.float32]:
    states = backbone.model.base_model(torch.tensor([[*head, *own]]), use_cache=False).last_hidden_state[0]
    return states[-len(own) :].mean(dim=0).numpy()


def reference(backbone: Backbone, bos: bool, prompt: str, text: str, limit: int = 512) -> NDArray[np.float32]:
    """The space between prompt and text belongs to the text, as the head of its first word."""
    head = prompt.rstrip()
    return mean_states(backbone, [BOS] * bos + byte_ids(head), byte_ids(prompt[len(head) :] + text)[:limit])


@pytest.mark.parametrize("prompt", [SUMMARISE, "", "Passage:"])
@pytest.mark.parametrize(("kind", "bos"), KINDS.items())
def test_vectors_are_means_of_the_last_states_over_the_text(kind: str, bos: bool, prompt: str) -> None:
    backbone = make_backbone(kind, bos=bos)
    found = LLMTeacher(backbone, prompt=prompt).encode(TEXTS, batch_size=3)
    wanted = np.stack([reference(backbone, bos, prompt, text) for text in TEXTS])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_the_papers_prompt_is_the_default(backbone: Backbone) -> None:
    found = LLMTeacher(backbone).encode(TEXTS[:1])[0]
    np.testing.assert_allclose(found, reference(backbone, True, SUMMARISE, TEXTS[0]), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_do_not_depend_on_batch_or_order(kind: str) -> None:
    teacher = LLMTeacher(make_backbone(kind))
    together = teacher.encode(TEXTS)
    np.testing.assert_allclose(teacher.encode(TEXTS, batch_size=1), together, atol=1e-5)
    np.testing.assert_allclose(teacher.encode(TEXTS[::-1], batch_size=2)[::-1], together, atol=1e-5)


@pytest.mark.parametrize("prompt", [SUMMARISE, "", "Passage:"])
@pytest.mark.parametrize("kind", ["llama", "gemma3_text-short"])
def test_an_empty_text_has_the_last_state_of_the_prompt_whoever_stands_beside_it(kind: str, prompt: str) -> None:
    backbone = make_backbone(kind)
    teacher = LLMTeacher(backbone, prompt=prompt)
    ids = [BOS, *byte_ids(prompt)]
    wanted = mean_states(backbone, ids[:-1], ids[-1:])
    for texts in ([""], ["", ""], ["", *TEXTS], [TEXTS[1], ""]):
        found = teacher.encode(texts)
        np.testing.assert_allclose(found[texts.index("")], wanted, atol=1e-5)
        others = [text for text in texts if text]
        if others:
            np.testing.assert_allclose(found[[bool(text) for text in texts]], teacher.encode(others), atol=1e-5)


def test_an_empty_text_without_any_prompt_is_finite_and_stays_the_same() -> None:
    """Nothing stands before the text, not even BOS."""
    teacher = LLMTeacher(make_backbone("qwen3", bos=False), prompt="")
    alone = teacher.encode([""])[0]
    assert np.isfinite(alone).all()
    np.testing.assert_allclose(teacher.encode(["", *TEXTS])[0], alone, atol=1e-5)


def test_no_texts_no_vectors(backbone: Backbone) -> None:
    assert LLMTeacher(backbone).encode([]).shape == (0, 32)


def test_a_long_text_is_cut(backbone: Backbone) -> None:
    found = LLMTeacher(backbone, max_seq_length=10).encode(TEXTS)
    wanted = np.stack([reference(backbone, True, SUMMARISE, text, limit=10) for text in TEXTS])
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_half_precision_states_are_averaged_in_float32() -> None:
    backbone = make_backbone("llama", torch.bfloat16)
    text = "a" * 300
    found = LLMTeacher(backbone, prompt="").encode([text])[0]
    with torch.no_grad():
        ids = torch.tensor([[BOS, *byte_ids(text)]])
        states = backbone.model.base_model(ids, use_cache=False).last_hidden_state[0, 1:].double()
    bfloat16 = states.mean(dim=0).bfloat16().double()
    exact = states.mean(dim=0)
    assert np.abs(found - exact.numpy()).max() < (bfloat16 - exact).abs().max()


def test_it_is_an_encoder_with_a_name_and_a_fingerprint(backbone: Backbone) -> None:
    teacher = LLMTeacher(backbone)
    assert isinstance(teacher, Encoder)
    assert name_of(teacher) == "LLM(tiny/llama)"
    assert teacher.get_embedding_dimension() == 32
    assert fingerprint_of(teacher) == fingerprint_of(LLMTeacher(make_backbone("llama")))
    others = [
        LLMTeacher(make_backbone("qwen3")),
        LLMTeacher(backbone, prompt="Passage:"),
        LLMTeacher(backbone, max_seq_length=9),
    ]
    assert len({fingerprint_of(encoder) for encoder in [teacher, *others]}) == 4


def test_a_text_that_is_none_is_named(backbone: Backbone) -> None:
    with pytest.raises(InputError, match="item 1: a lone surrogate"):
        LLMTeacher(backbone).encode(["ok", "ok \ud800 bad"])
