"""An encoder whose vectors are worked out by hand, and documents to find."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from afterword.search.build import Tally, build_index
from afterword.search.documents import Document
from afterword.search.index import Index
from afterword.search.settings import IndexSettings

WORDS = ["river", "mountain", "bread", "engine", "poem", "salt", "window", "doctor", "planet", "song"]
STORES = [
    "numpy",
    pytest.param("lancedb", marks=pytest.mark.skipif(find_spec("lancedb") is None, reason="the extra lancedb")),
    pytest.param("faiss", marks=pytest.mark.skipif(find_spec("faiss") is None, reason="the extra faiss")),
]


def vector(text: str, dimension: int = 16) -> NDArray[np.float32]:
    """The sum of a vector for each word, drawn with the word as seed, and a little for the text as a whole."""
    parts = [np.random.default_rng(zlib.crc32(word.encode())).standard_normal(dimension) for word in text.split()]
    whole = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(dimension)
    return (sum(parts, 0.3 * whole)).astype(np.float32)


class WordEncoder:
    """Has two sides, as our own model and a SentenceTransformer have; keeps what it was asked, prompts included."""

    def __init__(
        self, fingerprint: str = "words-1", dimension: int = 16, similarity: str = "cosine", **prompts: str
    ) -> None:
        self.fingerprint, self.dimension, self.similarity_fn_name = fingerprint, dimension, similarity
        self.prompts = prompts or {"query": "", "document": ""}
        self.default_prompt_name = None
        self.max_seq_length = 99
        self.asked: list[list[str]] = []

    def encode(
        self,
        inputs: Sequence[str],
        prompt: str | None = None,
        *,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> NDArray[np.float32]:
        texts = [(prompt or "") + text for text in inputs]
        self.asked.append(texts)
        return np.stack([vector(text, self.dimension) for text in texts])

    def encode_query(self, inputs: Sequence[str], prompt: str | None = None, **options: Any) -> NDArray[np.float32]:
        return self.encode(inputs, self.prompts.get("query", "") if prompt is None else prompt, **options)

    def encode_document(self, inputs: Sequence[str], prompt: str | None = None, **options: Any) -> NDArray[np.float32]:
        return self.encode(inputs, self.prompts.get("document", "") if prompt is None else prompt, **options)

    def get_embedding_dimension(self) -> int:
        return self.dimension


def some_documents(count: int, seed: int = 0) -> list[Document]:
    """Documents of a few words each, with fields of several kinds; no two alike."""
    draw = np.random.default_rng(seed)
    return [
        Document(
            id=f"d{i}",
            text=" ".join(draw.choice(WORDS, 4)) + f" {i}",
            title=str(draw.choice(WORDS)) if i % 3 else "",
            fields={"group": f"g{i % 5}", "number": i, "odd": bool(i % 2)},
        )
        for i in range(count)
    ]


def make(out: Path, documents: Sequence[Document], encoder: Any = None, **settings: Any) -> Tally:
    return build_index(encoder or WordEncoder(), documents, out, IndexSettings(**settings))


def opened(out: Path, encoder: Any = None) -> Index:
    return Index.open(out, encoder or WordEncoder())


def ranking(
    queries: Sequence[str], documents: Sequence[Document], k: int, similarity: str = "cosine"
) -> list[list[tuple[str, float]]]:
    """What exact search must find, worked out in float64 with a stable sort: ids and scores."""
    matrix = np.stack([vector(document.content) for document in documents]).astype(np.float64)
    found = []
    for query in queries:
        own = vector(query).astype(np.float64)
        scores = matrix @ own
        if similarity == "cosine":
            scores = scores / np.linalg.norm(matrix, axis=1) / np.linalg.norm(own)
        best = np.argsort(-scores, kind="stable")[:k]
        found.append([(documents[i].id, float(scores[i])) for i in best])
    return found
