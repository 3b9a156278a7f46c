"""What a benchmark tries."""

from __future__ import annotations

from dataclasses import dataclass

from afterword.errors import SettingError


@dataclass(frozen=True)
class Grid:
    """What is tried: each query length with each batch size."""

    query_tokens: tuple[int, ...] = (25,)
    """Mean length of a text or query; several are tried one after the other."""
    response_tokens: int = 40
    """Mean length of a response; with respond, the most tokens that are written."""
    batch_sizes: tuple[int, ...] = (16,)
    """Samples or texts at once; several are tried one after the other."""
    warmup: int = 2
    """Repeats that are not counted."""
    repeats: int = 5
    """Repeats that are."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be used."""
        if self.repeats < 1 or self.warmup < 0:
            raise SettingError(f"repeats {self.repeats} must be at least 1, warmup {self.warmup} not negative")
        for name in ("query_tokens", "batch_sizes"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise SettingError(f"{name} {getattr(self, name)}: numbers of at least 1 are needed")

    @property
    def turns(self) -> int:
        """Repeats in all."""
        return self.warmup + self.repeats
