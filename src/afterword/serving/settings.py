"""How a model is served: limits, batches, and what happens to long texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from afterword.errors import SettingError


@dataclass(frozen=True)
class ServeSettings:
    """How a model is served."""

    name: str | None = None
    """Name by which clients ask for the model; by default what the encoder calls itself."""
    normalize: bool = True
    """Scale each vector to length 1, as OpenAI's are; without, vectors come as `encode` makes them."""
    truncation: Literal["refuse", "mark"] = "refuse"
    """What happens to a text that is too long: a 400, or it is cut and its item says `"truncated": true`."""
    max_items: int = 2048
    """Most texts of a request."""
    max_tokens: int = 300_000
    """Most tokens of a request."""
    max_body: int = 4 * 1024 * 1024
    """Most bytes of a request."""
    max_queue: int = 4096
    """Most texts that are accepted and not yet answered; beyond it requests get a 429."""
    max_decode_items: int = 32
    """Most texts of a decode or latents request, whose answers are long."""
    max_new_tokens: int = 256
    """Most tokens of a decoded answer that a request may ask for."""
    batch_items: int = 32
    """Most texts in one batch."""
    batch_tokens: int = 8192
    """Most tokens in one batch, padding counted."""
    stop_seconds: int = 300
    """After SIGTERM: most seconds to finish what was accepted."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be used."""
        for name, value in vars(self).items():
            if type(value) is int and value < 1:
                raise SettingError(f"{name} is {value}: it must be at least 1")
        if self.truncation not in ("refuse", "mark"):
            raise SettingError(f"truncation is {self.truncation!r}: it is 'refuse' or 'mark'")
        if self.max_queue < self.max_items:
            raise SettingError(
                f"max_queue is {self.max_queue}, less than max_items {self.max_items}: "
                "a request that is allowed would never be accepted; raise the first or lower the second"
            )
