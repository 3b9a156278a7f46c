"""Untrained models with everything drawn at random, and what their vectors must be, worked out one text at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from afterword.backbone.backbone import Backbone
from afterword.model.config import ModelConfig
from afterword.model.heads import LearnedParts
from afterword.model.model import Afterword
from afterword.prompts import ANSWER_EXAMPLES
from tests.world import (
    ADDED,
    BOS,
    QWEN_TEMPLATE,
    SPECIAL,
    byte_ids,
    make_backbone,
    random_vectors,
    reference_states,
)

WIDTH, DIMENSION, THOUGHT, COMPRESSION = 32, 12, 2, 3
TEXTS = (
    "Why is the sky blue?",
    "a",
    "",
    "Name a river in France, and say in one or two sentences where it springs and where it flows into the sea.",
    "café ☃ 👩‍👩‍👧",
    "<eos> is text <|im_end|>",
    " leading and trailing ",
)


def make_embedder(backbone: Backbone | None = None, seed: int = 3, **config: Any) -> Afterword:
    """Random tokens of the scale of embeddings and random heads with biases: nothing is zero or the identity."""
    backbone = backbone or make_backbone("llama")
    values: dict[str, Any] = {"n_thought": THOUGHT, "n_compression": COMPRESSION, "embedding_dimension": DIMENSION}
    full = ModelConfig(
        backbone=backbone.name,
        backbone_fingerprint=backbone.fingerprint,
        hidden_size=backbone.hidden_size,
        **{**values, **config},
    )
    tokens = random_vectors(full.n_tokens, WIDTH, seed=seed)
    parts = LearnedParts(tokens, full.embedding_dimension)
    parts.load_state_dict(
        {
            "tokens": tokens,
            "recon.weight": random_vectors(WIDTH, WIDTH, seed=seed + 1) / WIDTH**0.5,
            "recon.bias": random_vectors(WIDTH, seed=seed + 2),
            "align.weight": random_vectors(full.embedding_dimension, WIDTH, seed=seed + 3) / WIDTH**0.5,
            "align.bias": random_vectors(full.embedding_dimension, seed=seed + 4),
        }
    )
    return Afterword(backbone, parts, full)


def framed(text: str, frame: str, bos: bool = True) -> list[int]:
    """The ids before the learned tokens, written out: after the raw text, or where the answer would start."""
    start = [BOS] if bos else []
    if frame == "query":
        return start + byte_ids(text)
    if frame == "examples":
        return start + byte_ids(f"{ANSWER_EXAMPLES.before()} {text}\nAnswer:")
    im_start, im_end = SPECIAL.index("<|im_start|>"), SPECIAL.index("<|im_end|>")
    think, thought = (len(SPECIAL) + ADDED.index(token) for token in ("<think>", "</think>"))
    answer = [im_end, *byte_ids("\n"), im_start, *byte_ids("assistant\n"), think, *byte_ids("\n\n"), thought]
    return [*start, im_start, *byte_ids(f"user\n{text}"), *answer, *byte_ids("\n\n")]


def embedder_in(kind: str, frame: str, bos: bool = True, dtype: torch.dtype = torch.float32) -> Afterword:
    """An embedder whose tokens stand in one of the three frames."""
    backbone = make_backbone(kind, dtype, bos=bos, template=QWEN_TEMPLATE if frame == "chat" else None)
    return make_embedder(backbone, placement="query" if frame == "query" else "answer", max_length=1024)


@torch.no_grad()
def reference_latents(model: Afterword, row: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """States, soft prompt and embedding of one row of ids."""
    parts = model.parts
    states = reference_states(model.backbone.model, row, parts.tokens)[model.config.n_thought :].float()
    soft_prompt = states @ parts.recon.weight.T + parts.recon.bias
    aligned = soft_prompt @ parts.align.weight.T + parts.align.bias
    return states, soft_prompt, aligned.mean(dim=0)


def reference_matrix(model: Afterword, rows: Sequence[Sequence[int]]) -> Tensor:
    """Embeddings of rows of ids, one at a time."""
    return torch.stack([reference_latents(model, row)[2] for row in rows])
