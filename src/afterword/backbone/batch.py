"""Token batches: padding, order and size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from afterword.errors import SettingError


@dataclass(frozen=True)
class TokenBatch:
    """Left-padded rows behind a prefix that all rows share.

    Left, because sliding-window layers count indices, not positions: padding between a text and what is appended to it
    would push the text out of the window.

    Attributes:
        ids: *Shape:* `(batch, time)`, without the shared prefix.
        mask: 1 for real tokens. *Shape:* `(batch, time)`.
        shared: Ids that stand before every row.
    """

    ids: Int[Tensor, "batch time"]
    mask: Int[Tensor, "batch time"]
    shared: tuple[int, ...] = ()

    def unshared(self) -> TokenBatch:
        """Return the same rows with the shared prefix written into each."""
        if not self.shared:
            return self
        rows = [[*self.shared, *ids[mask.bool()].tolist()] for ids, mask in zip(self.ids, self.mask, strict=True)]
        return pad_left(rows, self.ids.device)


def pad_left(rows: Sequence[Sequence[int]], device: torch.device, shared: tuple[int, ...] = ()) -> TokenBatch:
    """Pad rows of ids on the left to the longest. Pad ids are 0 and masked, whatever id 0 means."""
    width = max((len(row) for row in rows), default=0)
    ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows], dtype=torch.long)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], dtype=torch.long)
    shape = (len(rows), width)
    return TokenBatch(ids.view(shape).to(device), mask.view(shape).to(device), shared)


def by_length(lengths: Sequence[int], max_rows: int, max_tokens: int | None = None) -> Iterator[list[int]]:
    """Group items of similar length, longest first, so that little is padding and memory peaks at once.

    Args:
        lengths: Tokens of each item.
        max_rows: Most items in a group.
        max_tokens: Most tokens in a group, padding counted; an item that is longer alone stands alone.

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
        rows = max_rows
        if max_tokens is not None:
            rows = min(rows, max(1, max_tokens // max(1, lengths[order[start]])))
        yield order[start : start + rows]
        start += rows
