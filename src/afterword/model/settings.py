"""The choices that make one model differ from another on the same backbone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Placement = Literal["query", "answer"]


@dataclass(frozen=True)
class ModelSettings:
    """Shape of the model and where its tokens stand."""

    n_thought: int = 0
    """Thought tokens: learned vectors that only give the LLM room to compute (m in the paper)."""
    n_compression: int = 10
    """Compression tokens: learned vectors whose last states are kept (n in the paper)."""
    placement: Placement = "query"
    """Where the tokens stand: after the raw query (paper), or where the LLM's answer would start."""
    token_init: str = "random"
    """What the tokens start from: random, or a text whose tokens' embeddings are repeated over them."""
    max_length: int = 512
    """Most tokens of a text together with the learned ones; longer text is cut, learned tokens never."""
    system: str | None = None
    """System prompt, with placement answer."""
