"""The two sides of an encoder: queries and documents, each behind its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from afterword.encoder import Encoder, fingerprint_of, name_of
from afterword.errors import InputError, SettingError, WorkError
from afterword.search.settings import Similarity

QUERY = ("query",)
DOCUMENT = ("document", "passage", "corpus")
"""Names of the prompts of a side, as sentence-transformers looks for them: the first that there is."""


@dataclass(frozen=True)
class Sides:
    """An encoder as search uses it.

    Attributes:
        encoder: Anything that turns texts into vectors.
        similarity: How vectors are compared. For `cosine` all vectors have length 1 here, so that a product is enough.
        query_prompt: Text before each query in the place of the encoder's own.
        document_prompt: Text before each document in the place of the encoder's own.
        batch_size: Texts in one pass.
    """

    encoder: Encoder
    similarity: Similarity = "cosine"
    query_prompt: str | None = None
    document_prompt: str | None = None
    batch_size: int = 32

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode queries. *Shape:* `(N, d)`.

        Raises:
            InputError: A query is no string.
            WorkError: The encoder gave another shape, or a value that is not finite.
        """
        return self._encode(texts, "encode_query", self.query_prompt)

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode the contents of documents; otherwise as `queries`."""
        return self._encode(texts, "encode_document", self.document_prompt)

    @property
    def name(self) -> str:
        """A name for messages."""
        return name_of(self.encoder)

    @property
    def dimension(self) -> int:
        """Width of the vectors.

        Raises:
            SettingError: The encoder does not say it.
        """
        dimension = self.encoder.get_embedding_dimension()
        if not dimension:
            raise SettingError(f"{self.name} does not say its embedding dimension: it cannot make an index")
        return dimension

    def identity(self) -> dict[str, str]:
        """Return what an index belongs to: fingerprint of the weights, the words of both prompts, longest text."""
        queries, documents = own_prompt(self.encoder, QUERY), own_prompt(self.encoder, DOCUMENT)
        config = getattr(self.encoder, "config", None)
        length = getattr(config, "max_length", None) or getattr(self.encoder, "max_seq_length", None)
        return {
            "encoder": fingerprint_of(self.encoder),
            "query prompt": queries if self.query_prompt is None else self.query_prompt,
            "document prompt": documents if self.document_prompt is None else self.document_prompt,
            "longest text": str(length),
        }

    def _encode(self, texts: Sequence[str], method: str, prompt: str | None) -> NDArray[np.float32]:
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise InputError(f"a text is a string, found {type(text).__name__}", index)
        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        options: dict[str, Any] = {"batch_size": self.batch_size, "show_progress_bar": False}
        if encode := getattr(self.encoder, method, None):
            options.update({} if prompt is None else {"prompt": prompt})
        else:
            encode, texts = self.encoder.encode, [(prompt or "") + text for text in texts]
        vectors = np.asarray(encode(list(texts), **options), dtype=np.float32)
        return self.compared(self._checked(vectors, len(texts)))

    def _checked(self, vectors: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        if vectors.shape != (count, self.dimension):
            raise WorkError(f"{self.name} returned shape {vectors.shape}, expected {(count, self.dimension)}")
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if bad.size:
            raise WorkError(f"{self.name} returned a vector with NaN or infinity for item {bad[0]}")
        return vectors

    def compared(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return vectors so that their products are the similarity; a vector of zeros stays one. *Shape:* `(N, d)`."""
        if self.similarity == "dot":
            return vectors
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def similarity_of(encoder: Encoder) -> Similarity:
    """Return how an encoder wants its vectors to be compared; cosine where it does not say.

    Raises:
        SettingError: It says something that is no product; choose one by hand.
    """
    own = getattr(encoder, "similarity_fn_name", None)
    own = own or getattr(getattr(encoder, "config", None), "similarity_fn_name", None) or "cosine"
    name = str(getattr(own, "value", own))
    if name not in ("cosine", "dot"):
        raise SettingError(
            f"{name_of(encoder)} compares by {name}; search knows cosine and dot: choose one with --similarity"
        )
    return cast("Similarity", name)


def own_prompt(encoder: Encoder, names: Sequence[str]) -> str:
    """Return the text that an encoder itself puts before the texts of a side."""
    holder = encoder if hasattr(encoder, "prompts") else getattr(encoder, "config", None)
    if not hasattr(encoder, "encode_query") or holder is None:
        return ""
    prompts = getattr(holder, "prompts", None) or {}
    name = next((name for name in names if name in prompts), getattr(holder, "default_prompt_name", None))
    return str(prompts.get(name) or "")
