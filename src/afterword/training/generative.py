"""The paper's objective (§3): reconstruct the response from the soft prompt, land on the teacher's embedding of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from afterword.backbone.passes import frozen_prefix_pass, response_pass
from afterword.model.heads import LearnedParts
from afterword.model.model import Afterword
from afterword.training.alignment import alignment_loss, alignment_unit
from afterword.training.cross_entropy import head_cross_entropy
from afterword.training.examples import Examples
from afterword.training.order import seeded
from afterword.training.settings import TrainSettings
from afterword.training.validation import validate


@dataclass(frozen=True)
class StepPlan:
    """What holds for a whole step.

    Attributes:
        step: Number of the step; what is drawn depends on it.
        rebuilt: Examples whose response is reconstructed.
        examples: Number of examples.
        recon_units: What the summed reconstruction loss is divided by: tokens, or responses.
    """

    step: int
    rebuilt: frozenset[int]
    examples: int
    recon_units: int


class GenerativeObjective:
    """`w_r · L_recon + w_a · L_align` over tokens and heads; the LLM stays as it is.

    Args:
        model: The model that is trained.
        train: What it is trained on.
        held_out: What it is measured on.
        settings: Weights, reductions, shares.
    """

    parts: tuple[str, ...] = ("align", "recon")

    def __init__(self, model: Afterword, train: Examples, held_out: Examples, settings: TrainSettings) -> None:
        self.model = model
        self.train = train
        self.held_out = held_out
        self.settings = settings
        self.packed = model.backbone.packs
        self.unit = alignment_unit(train.targets, settings.align_reduction)

    def trainable(self) -> LearnedParts:
        """Return tokens and heads."""
        return self.model.parts

    def __len__(self) -> int:
        return len(self.train)

    def cost(self, index: int) -> int:
        """Return query, learned, soft-prompt and response tokens of an example."""
        n = self.model.config.n_tokens + self.model.config.n_compression
        return len(self.train.rows[index]) + len(self.train.responses[index]) + n

    def plan(self, indices: Sequence[int], step: int, passes: Sequence[Sequence[int]] = ()) -> StepPlan:
        """Draw the examples of a step that are reconstructed (at least one), and count what its sums are divided by."""
        if step % self.settings.recon_every or not self.settings.w_recon:
            return StepPlan(step, frozenset(), len(indices), 1)
        count = max(1, round(self.settings.recon_share * len(indices)))
        order = torch.randperm(len(indices), generator=seeded(self.settings.seed, "recon", step)).tolist()
        rebuilt = frozenset(indices[i] for i in order[:count])
        lengths = [len(self.train.responses[i]) for i in indices if i in rebuilt]
        units = sum(lengths) if self.settings.recon_reduction == "mean" else len(lengths)
        return StepPlan(step, rebuilt, len(indices), units)

    def loss(self, indices: Sequence[int], plan: StepPlan) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of some examples of a step, over the totals of the step."""
        parts = self.model.parts
        batch = self.model.inputs.pad([self.train.rows[i] for i in indices])
        states = frozen_prefix_pass(self.model.backbone, batch, parts.tokens)
        soft_prompt = parts.soft_prompt(states[:, self.model.config.n_thought :])
        targets = self.train.targets[list(indices)].to(soft_prompt.device)
        align = alignment_loss(parts.embedding(soft_prompt), targets, self.unit).sum() / plan.examples
        loss, named = self.settings.w_align * align, {"align": align.detach()}
        places = [place for place, index in enumerate(indices) if index in plan.rebuilt]
        if places:
            recon = self._reconstruction(soft_prompt[places], [indices[place] for place in places], plan)
            weight = self.settings.w_recon * self.settings.recon_every
            loss, named["recon"] = loss + weight * recon, recon.detach()
        return loss, named

    def validate(self) -> dict[str, float]:
        """Return losses, cosine and retrieval accuracy on the held-out examples."""
        return validate(self.model, self.held_out, self.settings, self.unit) if len(self.held_out) else {}

    def _reconstruction(self, soft_prompt: Tensor, indices: Sequence[int], plan: StepPlan) -> Tensor:
        """Return the share of the step's reconstruction loss that some examples have."""
        backbone, responses = self.model.backbone, [self.train.responses[i] for i in indices]
        states, ids = response_pass(backbone, soft_prompt, responses)
        if self.settings.position_share == 1:
            return head_cross_entropy(states, ids, backbone.head).sum() / plan.recon_units
        rows, weights = self._positions(indices, plan.step)
        losses = head_cross_entropy(states[rows.to(states.device)], ids[rows.to(ids.device)], backbone.head)
        return losses @ weights.to(losses) / plan.recon_units

    def _positions(self, indices: Sequence[int], step: int) -> tuple[Tensor, Tensor]:
        """Draw tokens of each response, at least one, and the weight that makes up for those left out."""
        rows, weights, start = [], [], 0
        for index in indices:
            length = len(self.train.responses[index])
            count = max(1, round(self.settings.position_share * length))
            order = torch.randperm(length, generator=seeded(self.settings.seed, "positions", step, index))
            rows.append(start + order[:count].sort().values)
            weights.append(torch.full((count,), length / count))
            start += length
        return torch.cat(rows), torch.cat(weights)
