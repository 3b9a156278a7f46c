"""Saved models on backbones that lie on disk, as users have them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from afterword.backbone.load import load_backbone
from afterword.backbone.settings import BackboneSettings
from tests.model.embedders import make_embedder
from tests.world import GEMMA_TEMPLATE, QWEN_TEMPLATE, make_model, make_tokenizer

PROMPTS = {"query": "", "document": "Summarize the following passage: ", "ask": "Q: "}
TEXTS = [
    "Why is the sky blue?",
    "a",
    "",
    "Name a river in France, and say in one or two sentences where it springs and where it flows into the sea.",
    "café ☃ 👩‍👩‍👧",
    " leading and trailing \n",
    "<|im_end|> and <eos><bos> and <start_of_turn> and <|tool|> and <think> are text, <table> is one token",
    "long " * 300,
]

# Kind of LLM, whether its tokenizer puts BOS in front, template, changes.
LLMS: dict[str, tuple[str, bool, str | None, dict[str, Any]]] = {
    "llama": ("llama", True, None, {}),
    "llama-tied": ("llama", True, None, {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", False, QWEN_TEMPLATE, {}),
    "qwen3-untied": ("qwen3", False, QWEN_TEMPLATE, {"tie_word_embeddings": False}),
    "gemma3": ("gemma3_text", True, GEMMA_TEMPLATE, {}),
    "gemma3-short": ("gemma3_text-short", True, GEMMA_TEMPLATE, {}),  # a window shorter than the texts
    "gemma3-untied": ("gemma3_text", True, None, {"tie_word_embeddings": False}),
}

Save = Callable[..., Path]


@pytest.fixture(scope="session")
def save(tmp_path_factory: pytest.TempPathFactory) -> Save:
    """Save a model of random tokens and heads on an LLM of the table, once; nobody writes there."""

    @cache
    def llm(name: str) -> Path:
        kind, bos, template, changes = LLMS[name]
        folder = tmp_path_factory.mktemp(name)
        make_model(kind, **changes).save_pretrained(folder)
        make_tokenizer(bos, template).save_pretrained(folder)
        return folder

    @cache
    def model(name: str, placement: str = "query", default: str | None = None, max_length: int = 512) -> Path:
        backbone = load_backbone(BackboneSettings(str(llm(name)), device="cpu", dtype="float32"))
        folder = tmp_path_factory.mktemp(f"{name}-{placement}")
        make_embedder(
            backbone, placement=placement, prompts=PROMPTS, default_prompt_name=default, max_length=max_length
        ).save_pretrained(folder)
        return folder

    return model
