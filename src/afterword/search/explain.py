"""What the embeddings of queries and hits say, decoded; only an Afterword model can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from afterword.errors import SettingError
from afterword.search.index import Index
from afterword.search.store import Hit


@runtime_checkable
class Decoder(Protocol):
    """An encoder whose embeddings can be decoded, as `Afterword`."""

    def latents(self, texts: Sequence[str], prompt: str | None = None, batch_size: int = 32) -> Any:
        """Return what `decode` takes."""
        ...

    def decode(
        self, texts_or_latents: Any, max_new_tokens: int = 64, batch_size: int = 32, repetition_penalty: float = 1.0
    ) -> list[str]:
        """Return what an embedding says."""
        ...


@dataclass(frozen=True)
class Explainer:
    """Decodes queries and hits, each behind the prompt that it was encoded with.

    Attributes:
        index: An index of an Afterword model.
        max_new_tokens: Most tokens of each answer.
        repetition_penalty: Above 1, words already said become less likely.

    Raises:
        SettingError: The encoder of the index cannot decode.
    """

    index: Index
    max_new_tokens: int = 32
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        sides = self.index.sides
        if not (isinstance(sides.encoder, Decoder) and hasattr(sides.encoder, "encode_document")):
            raise SettingError(
                f"{sides.name} cannot say what its embeddings hold: only the index of an Afterword model is explained"
            )

    def queries(self, texts: Sequence[str]) -> list[str]:
        """Return what the embedding of each query says."""
        return self._decode(texts, self.index.sides.identity()["query prompt"])

    def hits(self, found: Sequence[Sequence[Hit]]) -> list[list[str]]:
        """Return what the embedding of each hit says; a document that was found twice is decoded once."""
        contents = {hit.id: hit.content for hits in found for hit in hits}
        said = self._decode(list(contents.values()), self.index.sides.identity()["document prompt"])
        by_id = dict(zip(contents, said, strict=True))
        return [[by_id[hit.id] for hit in hits] for hits in found]

    def _decode(self, texts: Sequence[str], prompt: str) -> list[str]:
        if not texts:
            return []
        decoder, size = cast("Decoder", self.index.sides.encoder), self.index.sides.batch_size
        latents = decoder.latents(list(texts), prompt, size)
        return decoder.decode(latents, self.max_new_tokens, size, self.repetition_penalty)
