"""Writing text with the frozen LLM: batched, with a key/value cache, from tokens or from a soft prompt.

One loop serves responding and decoding. Rows that have ended leave the batch, so a long answer does not keep the
finished ones busy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import TokenBatch
from afterword.backbone.passes import behind_shared, behind_start, visible
from afterword.errors import InputError


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        max_new_tokens: Most tokens of an answer, its end token not counted.
        temperature: 0 takes the likeliest token; more flattens the distribution.
        top_p: Smallest share of probability whose tokens may be drawn.
        min_new_tokens: Before so many tokens no answer ends.
        repetition_penalty: Above 1, tokens already written become less likely (the term and formula of transformers).
    """

    max_new_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    min_new_tokens: int = 0
    repetition_penalty: float = 1.0


@dataclass(frozen=True)
class Generated:
    """One answer: its token ids without the end token, and whether an end token came before the limit."""

    ids: list[int]
    ended: bool


@torch.inference_mode()
def generate(
    backbone: Backbone,
    start: TokenBatch | Float[Tensor, "batch soft hidden"],
    sampling: Sampling,
    stop_ids: Collection[int],
    seeds: Sequence[int] | None = None,
    begin: bool = True,
) -> list[Generated]:
    """Continue each row until a stop token or the limit.

    Args:
        backbone: The frozen LLM.
        start: Token rows, or soft prompts, which then stand behind the tokens that begin every text (BOS or none).
        sampling: How tokens are chosen.
        stop_ids: Tokens that end an answer; they are not part of it.
        seeds: One seed for each row, so that a drawn answer does not depend on its neighbours. Needed to sample.
        begin: Put the tokens that begin every text before soft prompts.

    Returns:
        One answer for each row, in order.
    """
    if isinstance(start, TokenBatch):
        start, cache = behind_shared(backbone, start, extra=sampling.max_new_tokens)
        embeds, mask = backbone.embed(start.ids), visible(start)
    else:
        embeds, cache = behind_start(backbone, start) if begin else start, None
        mask = torch.ones(embeds.shape[:2], dtype=torch.long, device=backbone.device)
    if not embeds.shape[1] and not (cache and cache.get_seq_length()):
        raise InputError("there is nothing to continue: the text has no token, and this LLM begins without one")
    rows = _Rows(backbone, mask, cache if cache is not None else backbone.new_cache(), seeds, sampling)
    states: Tensor | None = rows.advance(embeds)
    while states is not None:
        states = rows.step(states, set(stop_ids))
    return rows.answers


class _Rows:
    """The rows still being written: their cache, mask and origin."""

    def __init__(
        self, backbone: Backbone, mask: Tensor, cache: DynamicCache, seeds: Sequence[int] | None, sampling: Sampling
    ) -> None:
        self.backbone, self.mask, self.cache, self.sampling = backbone, mask, cache, sampling
        self.origin = list(range(mask.shape[0]))
        self.written: list[list[int]] = [[] for _ in self.origin]
        self.ended = [False] * len(self.origin)
        self.draws = None if seeds is None else [torch.Generator().manual_seed(seed) for seed in seeds]

    @property
    def answers(self) -> list[Generated]:
        return [Generated(ids, ended) for ids, ended in zip(self.written, self.ended, strict=True)]

    def advance(self, embeds: Float[Tensor, "batch time hidden"]) -> Float[Tensor, "batch hidden"]:
        """Feed vectors whose mask is already noted, and return the state behind the last one."""
        positions = (self.mask.cumsum(dim=1) - 1).clamp(min=0)[:, -embeds.shape[1] :]
        return self.backbone.run(embeds, self.mask, positions, self.cache)[:, -1]

    def step(self, states: Float[Tensor, "batch hidden"], stop_ids: set[int]) -> Float[Tensor, "alive hidden"] | None:
        """Choose a token for each row, drop the rows that end with it, and feed it to the others."""
        logits = self.backbone.logits(states)
        if len(self.written[self.origin[0]]) < self.sampling.min_new_tokens:  # all rows are equally far
            logits[:, sorted(stop_ids)] = -torch.inf
        if self.sampling.repetition_penalty != 1.0:
            self._penalise(logits)
        tokens = self._choose(logits).tolist()
        alive = []
        for row, token in enumerate(tokens):
            index = self.origin[row]
            if token in stop_ids:
                self.ended[index] = True
            elif len(self.written[index]) < self.sampling.max_new_tokens:
                self.written[index].append(token)
                alive.append(row)
        if not alive:
            return None
        if len(alive) < len(self.origin):
            self._keep(torch.tensor(alive, device=self.mask.device))
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(alive), 1)], dim=1)
        fed = torch.tensor([[tokens[row]] for row in alive], device=self.mask.device)
        return self.advance(self.backbone.embed(fed))

    def _keep(self, alive: Tensor) -> None:
        self.origin = [self.origin[row] for row in alive.tolist()]
        self.mask = self.mask[alive]
        self.cache.batch_select_indices(alive)

    def _penalise(self, logits: Float[Tensor, "batch vocabulary"]) -> None:
        for row, index in enumerate(self.origin):
            written = torch.tensor(sorted(set(self.written[index])), dtype=torch.long, device=logits.device)
            seen, penalty = logits[row, written], self.sampling.repetition_penalty
            logits[row, written] = torch.where(seen > 0, seen / penalty, seen * penalty)

    def _choose(self, logits: Float[Tensor, "batch vocabulary"]) -> Int[Tensor, " batch"]:
        if self.sampling.temperature <= 0:
            return logits.argmax(dim=-1)
        chances = _nucleus(torch.softmax(logits / self.sampling.temperature, dim=-1), self.sampling.top_p).cpu()
        draws = [self.draws[index] if self.draws else None for index in self.origin]
        return torch.stack(
            [torch.multinomial(row, 1, generator=draw)[0] for row, draw in zip(chances, draws, strict=True)]
        )


def _nucleus(chances: Float[Tensor, "batch vocabulary"], top_p: float) -> Float[Tensor, "batch vocabulary"]:
    """Set all but the likeliest tokens that together reach `top_p` to zero."""
    if top_p >= 1:
        return chances
    ordered, order = chances.sort(dim=-1, descending=True)
    beyond = ordered.cumsum(dim=-1) - ordered >= top_p
    return torch.zeros_like(chances).scatter(-1, order, ordered.masked_fill(beyond, 0.0))
