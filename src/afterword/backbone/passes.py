"""The three passes of the paper through the frozen LLM (§3).

- `full_pass`: text and learned vectors together; what encoding runs.
- `frozen_prefix_pass`: the same states, but the text's keys and values are computed once without a graph. Text never
  sees what is appended to it and the LLM is frozen, so no gradient is lost, and only the appended vectors are in the
  graph: the backward pass costs `4N(m+n)` FLOP instead of `4N(q+m+n)`.
- `response_pass`: a soft prompt, then the response; the states that predict each response token.

And two over text alone: `text_pass`, causal and without a graph, and `encoder_pass`, for teachers.

Rows run end to end, without padding (`packed`). An LLM of a family that we do not know, or whose attention is not
torch's, takes the plain way: padded, the whole text in the graph, no shared prefix; slower, the same result.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import dropout as dropped
from transformers import DynamicCache

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import TokenBatch, token_batch
from afterword.backbone.packed import Kept, Packing

FEW = 8


def full_pass(
    backbone: Backbone, batch: TokenBatch, tail: Float[Tensor, "tail hidden"]
) -> Float[Tensor, "batch tail hidden"]:
    """Run text and appended vectors in one go and return the last states of the appended ones."""
    if not backbone.packs:
        return _padded_pass(backbone, batch, tail)
    batch = worth_sharing(batch)
    lengths, k = batch.lengths, len(tail)
    packing = Packing([n + k for n in lengths], backbone.device, backbone.kept(batch.shared))
    pieces = torch.cat([backbone.embed(batch.flat[None])[0], tail.to(device=backbone.device, dtype=backbone.dtype)])
    # Where each packed token comes from: the row's own ids, then the tail, which stands behind all ids.
    order: list[int] = []
    ends: list[int] = []
    start, total = 0, sum(lengths)
    for n in lengths:
        order += [*range(start, start + n), *range(total, total + k)]
        ends += range(len(order) - k, len(order))
        start += n
    states = backbone.run_packed(pieces[_index(order, backbone)], packing)
    return states[_index(ends, backbone)].view(len(batch), k, -1)


def frozen_prefix_pass(
    backbone: Backbone, batch: TokenBatch, tail: Float[Tensor, "tail hidden"]
) -> Float[Tensor, "batch tail hidden"]:
    """Return the states of `full_pass` with a graph behind the appended vectors only."""
    if not backbone.packs:
        return _padded_pass(backbone, batch, tail)
    batch = worth_sharing(batch)
    shared = backbone.kept(batch.shared)
    before = text_pass(backbone, batch)[1]
    packing = Packing([len(tail)] * len(batch), backbone.device, shared, before)
    rows = tail.to(device=backbone.device, dtype=backbone.dtype).expand(len(batch), -1, -1)
    return backbone.run_packed(rows.flatten(0, 1), packing).view(len(batch), len(tail), -1)


def worth_sharing(batch: TokenBatch) -> TokenBatch:
    """Write a short shared prefix, such as BOS alone, into each row.

    Behind a cached prefix attention needs a mask; without one it takes a faster way, which pays for a few tokens.
    """
    return batch if len(batch.shared) >= FEW else batch.unshared()


@torch.no_grad()
def text_pass(
    backbone: Backbone, batch: TokenBatch, layer: int | None = None
) -> tuple[Float[Tensor, "tokens hidden"], Kept | None]:
    """Run the rows alone, without a graph; return their states end to end, and their keys and values where packed.

    Args:
        backbone: The frozen LLM.
        batch: The rows.
        layer: Return the states behind so many layers instead of the last ones.
    """
    if not backbone.packs:
        return _padded_states(backbone, batch, layer=layer), None
    packing = Packing(batch.lengths, backbone.device, backbone.kept(batch.shared), keep=True)
    embeds = backbone.embed(batch.flat[None])[0]
    states = backbone.run_packed(embeds, packing, layer) if len(embeds) else embeds
    return states, packing.kept if len(embeds) else None


def encoder_pass(
    backbone: Backbone,
    rows: Sequence[Sequence[int]],
    *,
    both_ways: bool = True,
    layer: int | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "tokens hidden"]:
    """Run whole rows as an encoder does, with a graph behind whatever in the LLM is trained.

    Args:
        backbone: The LLM, with or without adapters.
        rows: Token ids of each row; none may be empty.
        both_ways: Let each token see what stands behind it too (LLM2Vec, arXiv 2404.05961 §2.1).
        layer: Return the states behind so many layers instead of the last ones.
        dropout: Share of the values of the input embeddings that are set to 0, the others scaled up.

    Returns:
        The states of all rows, end to end.
    """
    batch = token_batch(rows, backbone.device)
    if not encoder_packs(backbone, max(batch.lengths), both_ways):
        return _padded_states(backbone, batch, both_ways, layer, dropout)
    embeds = dropped(backbone.embed(batch.flat[None])[0], dropout)
    return backbone.run_packed(embeds, Packing(batch.lengths, backbone.device, both_ways=both_ways), layer)


def encoder_packs(backbone: Backbone, width: int, both_ways: bool = True) -> bool:
    """Say whether `encoder_pass` runs rows of up to `width` tokens end to end: both ways, they must fit in a window."""
    return backbone.packs and not (both_ways and backbone.window is not None and width > backbone.window)


def response_pass(
    backbone: Backbone, soft_prompt: Float[Tensor, "batch soft hidden"], responses: Sequence[Sequence[int]]
) -> tuple[Float[Tensor, "tokens hidden"], Int[Tensor, " tokens"]]:
    """Run the second pass of training: the response behind its soft prompt, teacher-forced.

    Args:
        backbone: The frozen LLM.
        soft_prompt: What it decodes from. *Shape:* `(batch, n, hidden)`.
        responses: Token ids of each response, its end token included. None may be empty.

    Returns:
        For all tokens of all responses in order, the state that predicts it, and its id.
    """
    ids = torch.tensor([i for response in responses for i in response], device=backbone.device)
    start = behind_start(backbone, soft_prompt)
    if not backbone.packs:
        return _padded_response_states(backbone, start, responses), ids
    head, lengths = start.shape[1], [len(response) - 1 for response in responses]  # the last token predicts nothing
    given = [i for response in responses for i in response[:-1]]
    embedded = backbone.embed(torch.tensor([given], dtype=torch.long, device=backbone.device))[0]
    order: list[int] = []
    predicting: list[int] = []
    begin = len(responses) * head
    for row, n in enumerate(lengths):
        order += [*range(row * head, (row + 1) * head), *range(begin, begin + n)]
        predicting += range(len(order) - n - 1, len(order))
        begin += n
    embeds = torch.cat([start.flatten(0, 1), embedded])[_index(order, backbone)]
    states = backbone.run_packed(embeds, Packing([head + n for n in lengths], backbone.device))
    return states[_index(predicting, backbone)], ids


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
    """Decide how the shared prefix of a padded batch is seen: from a cache, or written into each row.

    Padding stands between a cached prefix and shorter rows. Sliding-window layers would count it, so the cache is used
    only where all of it fits in the window.
    """
    if not batch.shared:
        return batch, None
    total = len(batch.shared) + batch.ids.shape[1] + extra
    fits = backbone.window is None or total <= backbone.window
    if not (fits and backbone.packs):
        return batch.unshared(), None
    return batch, backbone.shared_cache(batch.shared, len(batch))


def visible(batch: TokenBatch, extra: int = 0) -> Int[Tensor, "batch total"]:
    """Return the attention mask over shared prefix, rows, and `extra` tokens behind them."""
    rows = batch.mask.shape[0]
    before = batch.mask.new_ones(rows, len(batch.shared))
    return torch.cat([before, batch.mask, batch.mask.new_ones(rows, extra)], dim=1)


def _positions(mask: Int[Tensor, "batch total"]) -> Int[Tensor, "batch total"]:
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def _index(places: list[int], backbone: Backbone) -> Tensor:
    return torch.tensor(places, dtype=torch.long, device=backbone.device)


def _padded_states(
    backbone: Backbone, batch: TokenBatch, both_ways: bool = False, layer: int | None = None, dropout: float = 0.0
) -> Tensor:
    """Run rows side by side and return the states of their own tokens, end to end."""
    whole = batch.unshared()
    embeds = dropped(backbone.embed(whole.ids), dropout)
    states = backbone.run(embeds, whole.mask, _positions(whole.mask), both_ways=both_ways, layer=layer)
    lengths = torch.tensor(batch.lengths, device=backbone.device)[:, None]
    return states[torch.arange(states.shape[1], 0, -1, device=backbone.device) <= lengths]


def _padded_pass(backbone: Backbone, batch: TokenBatch, tail: Tensor) -> Tensor:
    batch = batch.unshared()
    rows = tail.to(device=backbone.device, dtype=backbone.dtype).expand(len(batch), -1, -1)
    embeds = torch.cat([backbone.embed(batch.ids), rows], dim=1)
    mask = visible(batch, extra=len(tail))
    return backbone.run(embeds, mask, _positions(mask))[:, -len(tail) :]


def _padded_response_states(backbone: Backbone, start: Tensor, responses: Sequence[Sequence[int]]) -> Tensor:
    """Pad on the right, where no real token can see the padding, so that no mask is needed."""
    width = max(len(response) for response in responses)
    ids = torch.tensor([[*r, *[0] * (width - len(r))] for r in responses], device=backbone.device)
    embeds = torch.cat([start, backbone.embed(ids[:, :-1])], dim=1)
    positions = torch.arange(embeds.shape[1], device=backbone.device).expand(len(responses), -1)
    states = backbone.run(embeds, None, positions)[:, start.shape[1] - 1 :]
    lengths = torch.tensor([len(r) for r in responses], device=backbone.device)
    return states[torch.arange(width, device=backbone.device) < lengths[:, None]]
