"""Masked next-token prediction (LLM2Vec, arXiv 2404.05961 §2.2): what teaches an LLM to use what stands behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import by_length
from afterword.backbone.passes import encoder_packs, encoder_pass
from afterword.errors import SettingError
from afterword.teacher.adapters import Adapter
from afterword.training.cross_entropy import head_cross_entropy
from afterword.training.noise import seeded_noise
from afterword.training.order import seeded
from afterword.training.teacher_settings import TeacherSettings

LOGIT_ROWS = 64


@dataclass(frozen=True)
class Masked:
    """A row with some of its tokens masked.

    Attributes:
        row: Tokens, masked ones replaced.
        places: Where they stood; never the first place, which no state predicts.
        tokens: What stood there.
    """

    row: list[int]
    places: list[int]
    tokens: list[int]


class MNTPObjective:
    """Predict each masked token from the state before it, as the LLM's vocabulary head is used to; LoRA learns.

    Args:
        backbone: The LLM, with the adapter in its layers.
        adapter: What is trained.
        train: Whole rows of token ids, BOS and all.
        held_out: Rows to measure on.
        settings: Share of masked tokens and the like.

    Raises:
        SettingError: The mask token is not one token of the LLM's vocabulary.
    """

    parts: tuple[str, ...] = ("mntp",)

    def __init__(
        self,
        backbone: Backbone,
        adapter: Adapter,
        train: Sequence[list[int]],
        held_out: Sequence[list[int]],
        settings: TeacherSettings,
    ) -> None:
        self.backbone, self.adapter, self.settings = backbone, adapter, settings
        self.rows = [row for row in train if len(row) > 1]
        self.held_out = [row for row in held_out if len(row) > 1]
        self.packed = encoder_packs(backbone, max(map(len, [*self.rows, *self.held_out]), default=0))
        self.mask = mask_id(backbone, settings.mask_token)

    def trainable(self) -> Adapter:
        """Return the adapter."""
        return self.adapter

    def __len__(self) -> int:
        return len(self.rows)

    def cost(self, index: int) -> int:
        """Return the tokens of a row."""
        return len(self.rows[index])

    def plan(self, indices: Sequence[int], step: int, passes: Sequence[Sequence[int]] = ()) -> tuple[int, int]:
        """Return the number of the step and how many tokens are masked in it."""
        return step, sum(self._count(self.rows[i]) for i in indices)

    def loss(self, indices: Sequence[int], plan: tuple[int, int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the cross entropy of the masked tokens of some rows, over all masked tokens of the step."""
        step, total = plan
        masked = [self._masked(self.rows[i], step, i) for i in indices]
        with self.adapter.dropping(), seeded_noise(self.backbone.device, self.settings.seed, "mntp", step, *indices):
            states, targets = self._predicting(masked)
        loss = head_cross_entropy(states, targets, self.backbone.head).sum() / total
        return loss, {"mntp": loss.detach()}

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Return nats a masked token, and the share that is predicted right, on the held-out rows."""
        if not self.held_out:
            return {}
        masked = [self._masked(row, -1, i) for i, row in enumerate(self.held_out)]
        lengths = [len(each.row) for each in masked]
        nats = right = total = 0.0
        for group in by_length(lengths, len(lengths), self.settings.tokens_per_pass, packed=self.packed):
            states, targets = self._predicting([masked[i] for i in group])
            nats += float(head_cross_entropy(states, targets, self.backbone.head).sum())
            for few, wanted in zip(torch.split(states, LOGIT_ROWS), torch.split(targets, LOGIT_ROWS), strict=True):
                right += float((self.backbone.logits(few).argmax(dim=1) == wanted).sum())
            total += len(targets)
        return {"mntp": nats / total, "accuracy": right / total}

    def _predicting(self, masked: Sequence[Masked]) -> tuple[Tensor, Tensor]:
        """Return the states before the masked tokens, and the tokens."""
        states = encoder_pass(self.backbone, [each.row for each in masked])
        places, start = [], 0
        for each in masked:
            places += [start + place - 1 for place in each.places]
            start += len(each.row)
        tokens = [token for each in masked for token in each.tokens]
        device = self.backbone.device
        return states[torch.tensor(places, device=device)], torch.tensor(tokens, device=device)

    def _count(self, row: Sequence[int]) -> int:
        return max(1, round(self.settings.mask_share * (len(row) - 1)))

    def _masked(self, row: Sequence[int], step: int, index: int) -> Masked:
        generator = seeded(self.settings.seed, "mask", step, index)
        order = torch.randperm(len(row) - 1, generator=generator)[: self._count(row)]
        places = sorted((order + 1).tolist())
        changed = list(row)
        for place in places:
            changed[place] = self._stand_in(row[place], generator)
        return Masked(changed, places, [row[place] for place in places])

    def _stand_in(self, token: int, generator: torch.Generator) -> int:
        if self.settings.mask_kind == "all":
            return self.mask
        draw = float(torch.rand((), generator=generator))
        if draw < 0.8:
            return self.mask
        size = len(self.backbone.text.tokenizer)
        return int(torch.randint(size, (), generator=generator)) if draw < 0.9 else token


def mask_id(backbone: Backbone, token: str) -> int:
    """Return the id of a mask token.

    Raises:
        SettingError: It is not one token.
    """
    vocabulary = backbone.text.tokenizer.get_vocab()
    ids = [vocabulary[token]] if token in vocabulary else backbone.text.plain([token])[0]
    if len(ids) != 1:
        raise SettingError(f"mask_token is {token!r}: {backbone.name} has no such token (it makes {len(ids)} of it)")
    return ids[0]
