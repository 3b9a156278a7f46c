"""A small corpus with counted targets, and the paper's losses written down plainly.

The reference runs each example alone, in float64, by full passes with all logits: no cache, no padding, no chunks.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterword.corpus.records import Response
from afterword.corpus.targets import Targets, TargetSettings, embed_targets, open_targets
from afterword.model.settings import ModelSettings
from afterword.training.settings import TrainSettings
from tests.teachers import VowelTeacher, vowels
from tests.world import BOS, EOS, byte_ids, embedded

SHAPE = ModelSettings(n_thought=2, n_compression=3, max_length=60)
LIMIT = 24

ANSWERS = (
    "The sky is blue",
    "four",
    "a river in France is the Loire, and it is long",
    "I cannot help",
    "café ☃",
    "yes",
    "Ouagadougou",
    "eerie",
    "no idea at all",
    "it is an otter",
    "a e i o u",
    "under the moon",
    "queue",
    "banana",
    "ninety nine",
    "why",
)


def corpus(count: int = 16) -> list[Response]:
    """Responses of different lengths; every third was cut."""
    return [
        Response(f"q{i}", f"question {'very ' * (i % 4)}number {i}?", ANSWERS[i], len(ANSWERS[i]), cut=i % 3 == 2)
        for i in range(count)
    ]


def counted_targets(responses: Sequence[Response], folder: Path, scale: float = 1.0) -> Targets:
    """Targets whose dimensions are counts of vowels."""
    embed_targets(VowelTeacher(scale=scale), responses, folder, TargetSettings(teacher="vowels"))
    return open_targets(folder)


def quick(**changes: Any) -> TrainSettings:
    """Settings of a training of few steps: 12 examples to train on, 4 held out, 3 steps an epoch."""
    values: dict[str, Any] = {
        "lr": 1e-2,
        "lr_scale": "absolute",
        "w_recon": 1.0,
        "w_align": 1.0,
        "batch_size": 4,
        "warmup_steps": 0,
        "validation": 4,
        "eval_every": 1000,
        "save_every": 1000,
        "max_response_tokens": LIMIT,
        "warm_start": False,
        "align_reduction": "mean",
        "document_share": 0.0,
        "refit": False,
    }
    return TrainSettings(**{**values, **changes})


def response_ids(response: Response) -> list[int]:
    ids = byte_ids(response.text)
    return ids[:LIMIT] if response.cut or len(ids) >= LIMIT else [*ids, EOS]


@dataclass
class Reference:
    """The paper's model on a copy of a backbone, in float64, over weights given by name."""

    model: PreTrainedModel
    weights: dict[str, Tensor]
    start: list[int]  # what begins every text, a soft prompt too: BOS or nothing

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        weights: Mapping[str, Tensor],
        bos: bool = True,
        dtype: torch.dtype = torch.float64,
    ) -> Reference:
        precise = {name: tensor.detach().to(dtype).requires_grad_() for name, tensor in weights.items()}
        return cls(copy.deepcopy(model).to(dtype), precise, [BOS] if bos else [])  # type: ignore[arg-type]

    def soft_prompt(self, query: str) -> Tensor:
        row = [*self.start, *byte_ids(query)][: SHAPE.max_length - 5]
        embeds = torch.cat([embedded(self.model, row), self.weights["tokens"][None]], dim=1)
        states = self.model.base_model(inputs_embeds=embeds, use_cache=False).last_hidden_state[0, -3:]
        return states @ self.weights["recon.weight"].T + self.weights["recon.bias"]

    def embedding(self, soft_prompt: Tensor) -> Tensor:
        return (soft_prompt @ self.weights["align.weight"].T + self.weights["align.bias"]).mean(dim=0)

    def nats(self, soft_prompt: Tensor, ids: Sequence[int]) -> Tensor:
        """`−Σ log P(r_j | p, r_<j)` over one response."""
        embeds = torch.cat([embedded(self.model, self.start), soft_prompt[None], embedded(self.model, ids[:-1])], dim=1)
        logits = self.model(inputs_embeds=embeds, use_cache=False).logits[0, -len(ids) :]
        chances = torch.log_softmax(logits, dim=-1)
        return -chances[torch.arange(len(ids)), torch.tensor(ids)].sum()

    def losses(
        self, batch: Sequence[Response], rebuilt: Collection[str], settings: TrainSettings, spread: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Reconstruction and alignment loss of a step; `spread` is the variance that a relative loss is over."""
        unit = {"sum": 1.0, "mean": 5.0, "relative": spread}[settings.align_reduction]
        nats, squares, tokens = torch.zeros(()).double(), torch.zeros(()).double(), 0
        for response in batch:
            soft_prompt = self.soft_prompt(response.query)
            error = self.embedding(soft_prompt) - torch.from_numpy(vowels([response.text])[0]).double()
            squares = squares + error.square().sum() / unit
            if response.id in rebuilt:
                ids = response_ids(response)
                nats, tokens = nats + self.nats(soft_prompt, ids), tokens + len(ids)
        divisor = tokens if settings.recon_reduction == "mean" else len(rebuilt)
        return nats / divisor, squares / len(batch)
