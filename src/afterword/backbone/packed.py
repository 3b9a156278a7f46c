"""Rows of different lengths laid end to end, so that no padding goes through the layers.

Nine tenths of the work of a pass are matrix products over tokens, and they do not care which row a token is of. Only
attention does: there, and only there, rows are put side by side again, in groups of similar length, so that a long row
does not make attention over padding of the short ones. A `Packing` says how, and holds the keys and values that the
rows saw before: those of a prefix that all share, and their own of an earlier pass.

transformers calls attention through a table of functions. Ours stands in that table: within `Packing.active` it works
on packed rows, otherwise it hands over to torch's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME, INNER = "afterword_packed", "sdpa"
NOWHERE = 1 << 30
ALIKE = 2
WORTH = 1.5

KeysValues = dict[int, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Kept:
    """Keys and values of rows that were run before, by layer.

    Attributes:
        lengths: Tokens of each row.
        layers: Keys and values, each `(tokens, heads, width)`, rows end to end.
    """

    lengths: tuple[int, ...]
    layers: KeysValues = field(default_factory=dict)


class Rows:
    """Some of the rows of a pass: the way from all rows end to end to these side by side, padded on the right."""

    def __init__(self, lengths: Sequence[int], chosen: Sequence[int], device: torch.device) -> None:
        self.lengths = tuple(lengths[i] for i in chosen)
        self.width = max(self.lengths, default=0)
        self.even = all(length == self.width for length in self.lengths)
        self.into: Tensor | None = None
        if not self.even or len(chosen) < len(lengths):
            starts = [0, *accumulate(lengths)]
            into = [starts[i] + min(j, lengths[i] - 1) if lengths[i] else 0 for i in chosen for j in range(self.width)]
            self.into = torch.tensor(into, dtype=torch.long, device=device)

    def beside(self, flat: Float[Tensor, "tokens heads width"]) -> Float[Tensor, "rows heads time width"]:
        """Put rows side by side; what stands in the padding is a repetition and is never seen."""
        if self.into is not None:
            flat = flat[self.into]
        return flat.view(len(self.lengths), self.width, *flat.shape[1:]).transpose(1, 2)


class Group:
    """Rows of similar length, whose attention is computed side by side.

    Args:
        chosen: Which rows of the pass, in ascending order.
        packing: The pass.
    """

    def __init__(self, chosen: Sequence[int], packing: Packing) -> None:
        self.chosen, self.packing = chosen, packing
        self.rows = Rows(packing.lengths, chosen, packing.device)
        before = packing.before
        saw = before is not None and any(before.lengths[i] for i in chosen)
        self.earlier = Rows(before.lengths, chosen, packing.device) if before and saw else None
        self.starts = [packing.starts[i] for i in chosen]
        self._masks: dict[int | None, Tensor | None] = {}

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, window: int | None, options: dict[str, Any]
    ) -> Float[Tensor, "places heads width"]:
        """Attend within each row. All tokens of the pass are given; those of the group come back, padding and all."""
        keys, values = (self._seen(module, part, i) for i, part in enumerate((key, value)))
        inner = ALL_ATTENTION_FUNCTIONS[INNER]
        output: Tensor = inner(module, self.rows.beside(query), keys, values, self._mask(window), **options)[0]
        return output.flatten(0, 1)

    def _seen(self, module: nn.Module, own: Tensor, which: int) -> Tensor:
        parts, count = [], len(self.chosen)
        if self.packing.shared is not None:
            shared = self.packing.shared.layers[_layer(module)][which]
            parts.append(shared.transpose(0, 1).expand(count, -1, -1, -1))
        if self.packing.before is not None and self.earlier is not None:
            parts.append(self.earlier.beside(self.packing.before.layers[_layer(module)][which]))
        parts.append(self.rows.beside(own))
        return torch.cat(parts, dim=2) if len(parts) > 1 else parts[0]

    def _mask(self, window: int | None) -> Tensor | None:
        """Return who may see whom, or `None` where it is plainly causal and attention need not be told."""
        if window is not None and max(self.starts, default=0) + self.rows.width <= window:
            window = None
        if window not in self._masks:
            self._masks[window] = self._make_mask(window)
        return self._masks[window]

    def _make_mask(self, window: int | None) -> Tensor | None:
        packing = self.packing
        if packing.both_ways:
            return self._real_tokens(window)
        if packing.prefix == 0 and packing.before is None and window is None:
            return None
        own = torch.arange(self.rows.width, device=packing.device)
        starts = torch.tensor(self.starts, device=packing.device)[: 1 if packing.before is None else None, None]
        asks = starts + own
        holds = [torch.arange(packing.prefix, device=packing.device).expand(len(asks), -1)]
        if self.earlier is not None:
            places = torch.arange(self.earlier.width, device=packing.device) + packing.prefix
            holds.append(torch.where(places < starts, places, NOWHERE))
        holds.append(asks)
        seen, asking = torch.cat(holds, dim=1)[:, None, None, :], asks[:, None, :, None]
        mask = seen <= asking
        return mask if window is None else mask & (asking - seen < window)

    def _real_tokens(self, window: int | None) -> Tensor | None:
        """Return which tokens of each row are no padding, *shape* `(rows, 1, 1, width)`."""
        if window is not None:
            raise ValueError(f"rows of {self.rows.width} tokens do not fit in a window of {window} both ways")
        if self.rows.even:
            return None
        lengths = torch.tensor(self.rows.lengths, device=self.packing.device)
        return (torch.arange(self.rows.width, device=self.packing.device) < lengths[:, None])[:, None, None, :]


class Packing:
    """One pass over packed rows.

    Args:
        lengths: Tokens of each row in this pass.
        device: Where it runs.
        shared: Keys and values of a prefix that every row sees.
        before: Keys and values that each row saw by itself, behind the shared ones.
        keep: Keep this pass's keys and values in `kept`.
        both_ways: Let each token see all of its row, what stands behind it too; not with `shared` or `before`.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        device: torch.device,
        shared: Kept | None = None,
        before: Kept | None = None,
        keep: bool = False,
        both_ways: bool = False,
    ) -> None:
        self.lengths, self.device, self.both_ways = tuple(lengths), device, both_ways
        self.shared, self.before = shared, before
        self.kept = Kept(self.lengths) if keep else None
        self.prefix = sum(shared.lengths) if shared else 0
        self.starts = [self.prefix + n for n in (before.lengths if before else [0] * len(self.lengths))]
        positions = [start + j for start, n in zip(self.starts, lengths, strict=True) for j in range(n)]
        self.positions: Int[Tensor, "1 tokens"] = torch.tensor([positions], dtype=torch.long, device=device)
        ends = [start + n for start, n in zip(self.starts, lengths, strict=True)]
        self.groups = [Group(chosen, self) for chosen in similar(self.lengths, ends)]
        self._back = self._way_back()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let attention work on these rows meanwhile."""
        token = _ACTIVE.set(self)
        try:
            yield
        finally:
            _ACTIVE.reset(token)

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, window: int | None, options: dict[str, Any]
    ) -> Tensor:
        """Attend within each row. `query`, `key`, `value` are `(1, heads, tokens, width)`."""
        query, key, value = (flat[0].transpose(0, 1) for flat in (query, key, value))
        if self.kept is not None:
            self.kept.layers[_layer(module)] = (key, value)
        if self.both_ways:
            options["is_causal"] = False
        outputs = [group.attend(module, query, key, value, window, options) for group in self.groups]
        flat = torch.cat(outputs) if len(outputs) > 1 else outputs[0]
        return (flat if self._back is None else flat[self._back])[None]

    def _way_back(self) -> Tensor | None:
        """Return where each token stands among the groups' rows, or `None` where that is its own place."""
        if len(self.groups) == 1 and self.groups[0].rows.into is None:
            return None
        first, places = [0] * len(self.lengths), 0
        for group in self.groups:
            for i in group.chosen:
                first[i], places = places, places + group.rows.width
        back = [start + j for start, n in zip(first, self.lengths, strict=True) for j in range(n)]
        return torch.tensor(back, dtype=torch.long, device=self.device)


def similar(lengths: Sequence[int], ends: Sequence[int]) -> list[list[int]]:
    """Group rows so that little of the attention of a group is padding; all together where that saves too little.

    Args:
        lengths: Tokens of each row that ask.
        ends: Tokens of each row that are seen, these and what stands before them.

    Returns:
        Numbers of the rows of each group, ascending, the group of the longest first; without rows that ask nothing.
    """
    asking = [i for i, n in enumerate(lengths) if n]
    groups: list[list[int]] = []
    for i in sorted(asking, key=lambda i: -ends[i]):
        if groups and ends[i] * ALIKE >= ends[groups[-1][0]]:
            groups[-1].append(i)
        else:
            groups.append([i])
    apart = sum(_work(group, lengths, ends) for group in groups)
    worth = WORTH * apart < _work(asking, lengths, ends)
    return [sorted(group) for group in groups] if worth else [asking]


def _work(group: Sequence[int], lengths: Sequence[int], ends: Sequence[int]) -> int:
    """Return how many pairs of tokens attention looks at, padding counted."""
    return len(group) * max((lengths[i] for i in group), default=0) * max((ends[i] for i in group), default=0)


_ACTIVE: ContextVar[Packing | None] = ContextVar("afterword_packing", default=None)


def can_pack(model: PreTrainedModel) -> bool:
    """Put our attention function into a model that runs on torch's own (sdpa), and say whether that went well."""
    config = model.config.get_text_config()
    if config._attn_implementation == NAME:
        return True
    if config._attn_implementation != INNER:
        return False
    model.set_attn_implementation(NAME)
    return bool(config._attn_implementation == NAME)


def packed_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Attend within packed rows while a packing is active, otherwise as torch does; called by transformers."""
    packing = _ACTIVE.get()
    if packing is None:
        return ALL_ATTENTION_FUNCTIONS[INNER](module, query, key, value, attention_mask, **options)  # type: ignore[no-any-return]
    return packing.attend(module, query, key, value, options.pop("sliding_window", None), options), None


def _layer(module: nn.Module) -> int:
    index: int = module.layer_idx  # type: ignore[assignment]
    return index


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
