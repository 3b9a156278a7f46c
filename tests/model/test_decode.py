"""What the LLM says from a soft prompt, against greedy decoding by full passes."""

from __future__ import annotations

import pytest
import torch

from afterword.model.model import Afterword
from tests.model.embedders import TEXTS, embedder_in, framed, make_embedder, reference_latents
from tests.world import BOS, EOS, byte_ids, embedded, make_backbone, naive_answer

LIMIT = 14


def behind_bos(model: Afterword, soft_prompt: torch.Tensor) -> torch.Tensor:
    return torch.cat([embedded(model.backbone.model, [BOS]), soft_prompt[None]], dim=1)


def reference_answer(model: Afterword, frame: str, text: str, stops: set[int]) -> str:
    soft_prompt = reference_latents(model, framed(text, frame))[1]
    ids, _ = naive_answer(model.backbone.model, behind_bos(model, soft_prompt), LIMIT, stops)
    return model.backbone.text.tokenizer.decode(ids, skip_special_tokens=True).strip()


@pytest.mark.parametrize("frame", ["query", "examples", "chat"])
@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text", "gemma3_text-short"])
def test_decoded_texts_are_those_of_the_llm_alone(kind: str, frame: str) -> None:
    model = embedder_in(kind, frame)
    stops = {EOS, *(byte_ids("\n") if frame == "examples" else [])}
    wanted = [reference_answer(model, frame, text, stops) for text in TEXTS]
    assert len(set(wanted)) > 1
    assert model.decode(TEXTS, max_new_tokens=LIMIT, batch_size=3) == wanted
    assert model.decode(model.latents(TEXTS), max_new_tokens=LIMIT) == wanted


def test_an_answer_to_examples_is_one_line() -> None:
    """A base model goes on with the next question; the same soft prompt in a raw frame is not cut."""
    free, cut = embedder_in("llama", "query"), embedder_in("llama", "examples")
    latents = free.latents(TEXTS)
    first = [naive_answer(free.backbone.model, behind_bos(free, row), LIMIT, ())[0] for row in latents.soft_prompt]
    line = next(token for token in first[0][2:] if token != first[0][0])
    for model in (free, cut):
        model.backbone.__dict__["line_ids"] = (line,)
    limit = first[0].index(line)
    decode = cut.backbone.text.decode
    assert cut.decode(latents, LIMIT)[0] == decode(first[0][:limit]).strip()
    assert free.decode(latents, LIMIT)[0] == decode(first[0]).strip()


def test_one_text_gives_a_list_of_one_and_none_gives_none() -> None:
    model = make_embedder()
    assert model.decode("one", 5) == model.decode(["one"], 5)
    assert len(model.decode("one", 5)) == 1
    assert model.decode([]) == []
    assert model.decode(model.latents([])) == []


def test_decoding_needs_no_text() -> None:
    """From slices of latents, as interpretation does."""
    model = make_embedder()
    latents = model.latents(TEXTS)
    assert model.decode(latents[2:4], LIMIT) == model.decode(latents, LIMIT)[2:4]


def test_decoding_in_bfloat16_works() -> None:
    model = make_embedder(make_backbone("qwen3", torch.bfloat16))
    assert len(model.decode(TEXTS, LIMIT)) == len(TEXTS)
