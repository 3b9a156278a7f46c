"""Unsupervised SimCSE (arXiv 2104.08821; LLM2Vec §2.3): two noisy passes over a text agree, other texts stay away."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from accelerate.utils import gather_object
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from afterword.backbone.batch import by_length
from afterword.backbone.dropout import attention_dropout
from afterword.backbone.passes import encoder_packs
from afterword.corpus.pairs import StsPairs
from afterword.teacher.adapters import Adapter
from afterword.teacher.llm import LLMTeacher
from afterword.training.noise import seeded_noise
from afterword.training.order import seeded
from afterword.training.similarity import alignment, spearman, uniformity
from afterword.training.teacher_settings import TeacherSettings

CROP_LEAST = 16
Pairs = Float[Tensor, "2 rows hidden"]


@dataclass(frozen=True)
class SimCSEPlan:
    """What holds for a whole step.

    Attributes:
        step: Its number; what is dropped depends on it.
        loss: The loss of the step, if it was worked out before the gradients (see `SimCSEObjective`).
        gradients: What comes back to both embeddings of each example then.
        share: Share of the step's examples that this process runs.
    """

    step: int
    loss: float = 0.0
    gradients: dict[int, Tensor] | None = None
    share: float = 1.0


class SimCSEObjective:
    """InfoNCE between two noisy embeddings of each text, all other texts of the step being negatives; LoRA learns.

    The loss of a text depends on the whole step. Where the step does not fit in one pass, gradients are cached (arXiv
    2101.06983): all embeddings are computed without a graph, the loss is differentiated with respect to them, and each
    pass is run again, with the same noise, to carry its share of the gradient on. So memory does not grow with the
    batch, and the result is the same.

    Args:
        teacher: The encoder that is trained, with the adapter in its LLM's layers.
        adapter: What is trained.
        train: Rows of the teacher's `rows`.
        held_out: Rows to measure on.
        settings: Temperature, dropout and the like.
        sts: Pairs with a similarity, to measure on.
        processes: How many processes share a step.
    """

    parts: tuple[str, ...] = ("simcse",)

    def __init__(
        self,
        teacher: LLMTeacher,
        adapter: Adapter,
        train: Sequence[list[int]],
        held_out: Sequence[list[int]],
        settings: TeacherSettings,
        sts: StsPairs | None = None,
        processes: int = 1,
    ) -> None:
        self.teacher, self.adapter, self.settings, self.sts = teacher, adapter, settings, sts
        self.rows, self.held_out = list(train), list(held_out)
        self.processes = processes
        longest = max((len(teacher.whole(row)) for row in [*train, *held_out]), default=0)
        self.packed = encoder_packs(teacher.backbone, longest, teacher.settings.both_ways)

    def trainable(self) -> Adapter:
        """Return the adapter."""
        return self.adapter

    def __len__(self) -> int:
        return len(self.rows)

    def cost(self, index: int) -> int:
        """Return the tokens of both passes over a row."""
        return 2 * len(self.teacher.whole(self.rows[index]))

    def plan(self, indices: Sequence[int], step: int, passes: Sequence[Sequence[int]]) -> SimCSEPlan:
        """Work out the loss of the step, and what comes back to its embeddings, where it is more than one pass."""
        if self.processes == 1 and len(passes) == 1:
            return SimCSEPlan(step)
        with torch.no_grad():
            own = {i: pair for part in passes for i, pair in zip(part, self._pairs(part, step).unbind(1), strict=True)}
        everywhere = own
        if self.processes > 1:
            parts = gather_object([{i: pair.cpu() for i, pair in own.items()}])
            everywhere = {i: pair for part in parts for i, pair in part.items()}
        pairs = torch.stack([everywhere[i] for i in indices], dim=1).requires_grad_()
        loss = info_nce(pairs, self.settings.temperature)
        (gradients,) = torch.autograd.grad(loss, pairs)
        back = {i: gradient for i, gradient in zip(indices, gradients.unbind(1), strict=True) if i in own}
        return SimCSEPlan(step, float(loss.detach()), back, len(own) / len(indices))

    def loss(self, indices: Sequence[int], plan: SimCSEPlan) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a step, or the share of some of its examples."""
        pairs = self._pairs(indices, plan.step)
        if plan.gradients is None:
            loss = info_nce(pairs, self.settings.temperature)
            return loss, {"simcse": loss.detach()}
        back = torch.stack([plan.gradients[i] for i in indices], dim=1).to(pairs)
        carried = (pairs * back).sum()  # its gradient is that of the loss; its value is put right
        share = plan.loss * plan.share * len(indices) / len(plan.gradients)
        loss = carried - carried.detach() + share
        return loss, {"simcse": loss.detach()}

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Return alignment and uniformity (arXiv 2005.10242) of the held-out rows, and Spearman on pairs if given."""
        measures = {}
        if self.held_out:
            lengths = [2 * len(self.teacher.whole(row)) for row in self.held_out]
            noisy, clean = [], []
            for group in by_length(lengths, len(lengths), self.settings.tokens_per_pass, packed=self.packed):
                rows = [self.held_out[i] for i in group]
                noisy.append(self._noisy(rows, "held out", *group))
                clean.append(self.teacher.embed_rows(rows))
            pairs = normalize(torch.cat(noisy, dim=1), dim=-1)
            measures = {
                "alignment": alignment(pairs[0], pairs[1]),
                "uniformity": uniformity(normalize(torch.cat(clean), dim=-1)),
            }
        return {**measures, **({"sts": spearman(self.teacher, self.sts)} if self.sts else {})}

    def _pairs(self, indices: Sequence[int], step: int) -> Pairs:
        rows = [self._view(self.rows[i], step, i, view) for view in (0, 1) for i in indices]
        return self._noisy_rows(rows, "simcse", step, *indices)

    def _noisy(self, rows: Sequence[Sequence[int]], *parts: int | str) -> Pairs:
        return self._noisy_rows([*rows, *rows], *parts)

    def _noisy_rows(self, rows: Sequence[Sequence[int]], *parts: int | str) -> Pairs:
        """Embed both halves of rows in one pass: dropout is drawn for each token anew, so equal rows differ."""
        settings, device = self.settings, self.teacher.backbone.device
        with ExitStack() as stack:
            stack.enter_context(self.adapter.dropping())
            stack.enter_context(attention_dropout(self.teacher.backbone.body, settings.attention_dropout))
            stack.enter_context(seeded_noise(device, settings.seed, *parts))
            embedded = self.teacher.embed_rows(rows, settings.embedding_dropout)
        return embedded.view(2, len(rows) // 2, -1)

    def _view(self, row: Sequence[int], step: int, index: int, view: int) -> list[int]:
        """Return one view of a row: a run of its tokens, with some of them left out, but never all."""
        settings = self.settings
        if len(row) < 2 or not (settings.token_dropout or settings.crop):
            return list(row)
        generator = seeded(settings.seed, "tokens", step, index, view)
        run = _run_of(row, settings.crop, generator)
        keep = torch.rand(len(run), generator=generator) >= settings.token_dropout
        keep[: settings.kept_tokens] = True
        keep[int(torch.randint(len(run), (), generator=generator))] = True
        return [token for token, kept in zip(run, keep.tolist(), strict=True) if kept]


def _run_of(row: Sequence[int], crop: float, generator: torch.Generator) -> Sequence[int]:
    """Cut up to a share of a row off its ends, but leave `CROP_LEAST` tokens: a short text is a whole as it is."""
    if not crop or len(row) <= CROP_LEAST:
        return row
    share = 1 - crop * float(torch.rand((), generator=generator))
    length = max(CROP_LEAST, round(share * len(row)))
    start = int(torch.randint(len(row) - length + 1, (), generator=generator))
    return row[start : start + length]


def info_nce(pairs: Pairs, temperature: float) -> Tensor:
    """Return the mean cross entropy of finding each first embedding's second one among all second ones, by cosine.

    Args:
        pairs: Two embeddings of each text.
        temperature: Cosines are divided by it.
    """
    first, second = normalize(pairs, dim=-1).unbind(0)
    own = torch.arange(len(first), device=pairs.device)
    return cross_entropy(first @ second.T / temperature, own)
