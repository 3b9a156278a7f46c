"""How an LLM is used as an encoder of texts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from afterword.errors import SettingError
from afterword.prompts import SUMMARISE
from afterword.teacher.pooling import Pooling

Attention = Literal["causal", "bidirectional"]
Around = Literal["raw", "user"]


@dataclass(frozen=True)
class PoolingSettings:
    """How the states of an LLM become an embedding."""

    attention: Attention = "causal"
    """Whether a token sees what stands before it only, or all of the text."""
    pooling: Pooling = "mean"
    """Mean of the states; weighted_mean, later ones counting more; last; or eos, that of an end token put behind."""
    prompt: str = SUMMARISE
    """Text put before each text."""
    pool_prompt: bool = False
    """Let the states of what stands before the text count too."""
    layer: int | None = None
    """Take the states behind so many layers; by default the last ones, after the final norm."""
    around: Around = "raw"
    """Nothing around the text but BOS, or the user's turn of the chat template."""
    max_seq_length: int = 512
    """Most tokens of a text; the rest is cut."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be used."""
        if self.max_seq_length < 1:
            raise SettingError(f"max_seq_length is {self.max_seq_length}: it must be at least 1")

    @property
    def both_ways(self) -> bool:
        """Whether a token sees what stands behind it, too."""
        return self.attention == "bidirectional"

    def to_dict(self) -> dict[str, Any]:
        """Return all settings by name."""
        return asdict(self)
