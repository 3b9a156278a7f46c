"""The three passes of the paper through the frozen LLM (§3).

- `full_pass`: text and learned vectors together; what encoding runs.
- `frozen_prefix_pass`: the same states, but the text's keys and values are computed once without a graph. Text never
  sees what is appended to it and the LLM is frozen, so no gradient is lost, and only the appended vectors are in the
  graph: the backward pass costs `4N(m+n)` FLOP instead of `4N(q+m+n)`.
- `response_pass`: a soft prompt, then the response; the states that predict each response token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import TokenBatch


def full_pass(
    backbone: Backbone, batch: TokenBatch, tail: Float[Tensor, "tail hidden"]
) -> Float[Tensor, "batch tail hidden"]:
    """Run text and appended vectors in one go and return the last states of the appended ones."""
    batch, cache = behind_shared(backbone, batch, extra=len(tail))
    rows = batch.ids.shape[0]
    embeds = torch.cat([backbone.embed(batch.ids), _for_each_row(backbone, tail, rows)], dim=1)
    mask = visible(batch, extra=len(tail))
    states = backbone.run(embeds, mask, _positions(mask)[:, -embeds.shape[1] :], cache)
    return states[:, -len(tail) :]


def frozen_prefix_pass(
    backbone: Backbone, batch: TokenBatch, tail: Float[Tensor, "tail hidden"]
) -> Float[Tensor, "batch tail hidden"]:
    """Return the states of `full_pass` with a graph behind the appended vectors only.

    Families that are not known to be purely causal take the full pass.
    """
    if not backbone.family.causal_prefix:
        return full_pass(backbone, batch, tail)
    with torch.no_grad():
        batch, cache = behind_shared(backbone, batch, extra=len(tail))
        cache = cache if cache is not None else backbone.new_cache()
        mask = visible(batch)
        if batch.ids.shape[1]:
            positions = _positions(mask)[:, -batch.ids.shape[1] :]
            backbone.run(backbone.embed(batch.ids), mask, positions, cache)
    mask = visible(batch, extra=len(tail))
    embeds = _for_each_row(backbone, tail, batch.ids.shape[0])
    return backbone.run(embeds, mask, _positions(mask)[:, -len(tail) :], cache)


def response_pass(
    backbone: Backbone, soft_prompt: Float[Tensor, "batch soft hidden"], responses: Sequence[Sequence[int]]
) -> tuple[Float[Tensor, "tokens hidden"], Int[Tensor, " tokens"]]:
    """Run the second pass of training: the response behind its soft prompt, teacher-forced.

    Responses are padded on the right, where no real token can see the padding, so no mask is needed.

    Args:
        backbone: The frozen LLM.
        soft_prompt: What it decodes from. *Shape:* `(batch, n, hidden)`.
        responses: Token ids of each response, its end token included. None may be empty.

    Returns:
        For all tokens of all responses in order, the state that predicts it, and its id.
    """
    width = max(len(response) for response in responses)
    ids = torch.tensor([[*r, *[0] * (width - len(r))] for r in responses], device=backbone.device)
    start = behind_start(backbone, soft_prompt)
    embeds = torch.cat([start, backbone.embed(ids[:, :-1])], dim=1)
    positions = torch.arange(embeds.shape[1], device=backbone.device).expand(len(responses), -1)
    states = backbone.run(embeds, None, positions)[:, start.shape[1] - 1 :]
    lengths = torch.tensor([len(r) for r in responses], device=backbone.device)
    real = torch.arange(width, device=backbone.device) < lengths[:, None]
    return states[real], ids[real]


def behind_start(
    backbone: Backbone, soft_prompt: Float[Tensor, "batch soft hidden"]
) -> Float[Tensor, "batch time hidden"]:
    """Put the tokens that begin every text of this LLM, BOS or none, before a soft prompt.

    The paper's formula has no such token, and its Qwen models have none. A model that was trained with BOS before
    everything is lost without it: on Gemma 3 270M a soft prompt of the response's own first ten embeddings left 4.8
    nats a token without BOS, more than BOS alone with no soft prompt (4.0).
    """
    ids = torch.tensor([backbone.text.start_ids], dtype=torch.long, device=backbone.device)
    start = backbone.embed(ids).expand(soft_prompt.shape[0], -1, -1)
    return torch.cat([start, soft_prompt.to(backbone.dtype)], dim=1)


def behind_shared(backbone: Backbone, batch: TokenBatch, extra: int) -> tuple[TokenBatch, DynamicCache | None]:
    """Decide how the shared prefix of a batch is seen: from a cache, or written into each row.

    Padding stands between a cached prefix and shorter rows. Sliding-window layers would count it, so the cache is used
    only where all of it fits in the window.
    """
    if not batch.shared:
        return batch, None
    total = len(batch.shared) + batch.ids.shape[1] + extra
    fits = backbone.window is None or total <= backbone.window
    if not (fits and backbone.family.causal_prefix):
        return batch.unshared(), None
    return batch, backbone.shared_cache(batch.shared, batch.ids.shape[0])


def visible(batch: TokenBatch, extra: int = 0) -> Int[Tensor, "batch total"]:
    """Return the attention mask over shared prefix, rows, and `extra` tokens behind them."""
    rows = batch.mask.shape[0]
    before = batch.mask.new_ones(rows, len(batch.shared))
    return torch.cat([before, batch.mask, batch.mask.new_ones(rows, extra)], dim=1)


def _positions(mask: Int[Tensor, "batch total"]) -> Int[Tensor, "batch total"]:
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def _for_each_row(
    backbone: Backbone, tail: Float[Tensor, "tail hidden"], rows: int
) -> Float[Tensor, "batch tail hidden"]:
    return tail.to(device=backbone.device, dtype=backbone.dtype).expand(rows, -1, -1)
