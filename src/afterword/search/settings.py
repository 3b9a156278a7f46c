"""How documents are read and an index is made; knows no library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from afterword.errors import SettingError

StoreName = Literal["numpy", "lancedb", "faiss"]
Similarity = Literal["cosine", "dot"]


@dataclass(frozen=True)
class DocumentSettings:
    """Which columns hold what."""

    column: str | None = None
    """Column with the text; by default `text`, or else the only one of contents, content, body, passage, document."""
    id_column: str | None = None
    """Column with the id; by default `_id`, `id` or `doc_id`; without any, the id is a hash of the document."""
    title_column: str | None = None
    """Column with a title, which is read before the text; by default `title` where there is one."""
    fields: tuple[str, ...] | None = None
    """Other columns to keep with each document; by default all."""


@dataclass(frozen=True)
class IndexSettings:
    """How an index is made."""

    store: StoreName = "numpy"
    """numpy (exact, nothing to install), lancedb (exact, filters in SQL) or faiss (approximate, for very many)."""
    similarity: Literal["auto", "cosine", "dot"] = "auto"
    """How vectors are compared; auto does as the encoder says."""
    query_prompt: str | None = None
    """Text before each query; by default the encoder's own for queries."""
    document_prompt: str | None = None
    """Text before each document; by default the encoder's own for documents."""
    batch_size: int = 32
    """Documents in one pass."""
    replace: bool = False
    """Put a document in the place of one with the same id; otherwise another document under a known id is refused."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be used."""
        if self.batch_size < 1:
            raise SettingError(f"batch_size is {self.batch_size}: it must be at least 1")
