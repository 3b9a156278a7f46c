"""Teachers for tests: one whose vectors are worked out by hand, and a tiny SentenceTransformer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tests.world import VOCABULARY, make_tokenizer

LETTERS = "aeiou"


class VowelTeacher:
    """Counts vowels: the vector of a text is how often each of a, e, i, o, u stands in it. Keeps what it was asked."""

    def __init__(self, fingerprint: str = "vowels-1", scale: float = 1.0) -> None:
        self.fingerprint = fingerprint
        self.scale = scale
        self.asked: list[list[str]] = []

    def encode(
        self, inputs: Sequence[str], *, batch_size: int = 32, show_progress_bar: bool | None = None
    ) -> NDArray[np.float32]:
        self.asked.append(list(inputs))
        return vowels(inputs) * np.float32(self.scale)

    def get_embedding_dimension(self) -> int:
        return len(LETTERS)


def vowels(texts: Sequence[str]) -> NDArray[np.float32]:
    return np.array([[text.count(letter) for letter in LETTERS] for text in texts], np.float32).reshape(-1, 5)


def save_sentence_transformer(folder: Path) -> Path:
    """Save a tiny random BERT with mean pooling, 24 wide, as a SentenceTransformer."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from transformers import BertConfig, BertModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        config = BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=64,
            initializer_range=0.3,
        )
        BertModel(config).save_pretrained(folder / "bert")
    make_tokenizer().save_pretrained(folder / "bert")
    transformer = modules.Transformer(str(folder / "bert"), max_seq_length=64)
    pooling = modules.Pooling(transformer.get_embedding_dimension())
    SentenceTransformer(modules=[transformer, pooling], device="cpu").save(str(folder / "teacher"))
    return folder / "teacher"
