"""Token batches: rows, order and size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, takewhile

import torch
from jaxtyping import Int
from torch import Tensor

from afterword.errors import SettingError


@dataclass(frozen=True)
class TokenBatch:
    """Rows of token ids behind a prefix that all rows share.

    Attributes:
        rows: Ids of each row, without the shared prefix.
        device: Where its tensors are made.
        shared: Ids that stand before every row.
    """

    rows: tuple[tuple[int, ...], ...]
    device: torch.device
    shared: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row."""
        return [len(row) for row in self.rows]

    @property
    def flat(self) -> Int[Tensor, " tokens"]:
        """All rows end to end."""
        return torch.tensor([i for row in self.rows for i in row], dtype=torch.long, device=self.device)

    @cached_property
    def ids(self) -> Int[Tensor, "batch time"]:
        """Rows side by side, padded on the left with 0, whatever id 0 means.

        Left, because sliding-window layers of a cache count indices, not positions: padding between a text and what is
        appended to it would push the text out of the window.
        """
        return self._beside([[0] * (self._width - len(row)) + list(row) for row in self.rows])

    @cached_property
    def mask(self) -> Int[Tensor, "batch time"]:
        """1 for the real tokens of `ids`."""
        return self._beside([[0] * (self._width - len(row)) + [1] * len(row) for row in self.rows])

    def unshared(self) -> TokenBatch:
        """Return the same rows with the shared prefix written into each."""
        return TokenBatch(tuple((*self.shared, *row) for row in self.rows), self.device)

    @property
    def _width(self) -> int:
        return max(map(len, self.rows), default=0)

    def _beside(self, padded: list[list[int]]) -> Tensor:
        return torch.tensor(padded, dtype=torch.long).view(len(self.rows), self._width).to(self.device)


def token_batch(rows: Sequence[Sequence[int]], device: torch.device, shared: tuple[int, ...] = ()) -> TokenBatch:
    """Make a batch of rows of ids."""
    return TokenBatch(tuple(map(tuple, rows)), device, tuple(shared))


def by_length(
    lengths: Sequence[int], max_rows: int, max_tokens: int | None = None, *, packed: bool = False
) -> Iterator[list[int]]:
    """Group items of similar length, longest first, so that little is padding and memory peaks at once.

    Args:
        lengths: Tokens of each item.
        max_rows: Most items in a group.
        max_tokens: Most tokens in a group, padding counted; an item that is longer alone stands alone.
        packed: Rows run end to end, without padding: only tokens count.

    Yields:
        Indices of the items of one group; each index comes once.

    Raises:
        SettingError: There are items, and no group may hold any.
    """
    if lengths and max_rows < 1:
        raise SettingError(f"batch_size is {max_rows}: it must be at least 1")
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    start = 0
    while start < len(order):
        rows = min(max_rows, len(order) - start)
        if max_tokens is not None:
            longest = lengths[order[start]]
            places = range(start, start + rows)
            sums = accumulate(lengths[order[place]] if packed else longest for place in places)
            rows = max(1, sum(1 for _ in takewhile(max_tokens.__ge__, sums)))
        yield order[start : start + rows]
        start += rows
