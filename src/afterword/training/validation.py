"""Measures on held-out examples."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from afterword.backbone.batch import by_length
from afterword.backbone.passes import response_pass
from afterword.model.model import Afterword
from afterword.training.alignment import alignment_loss
from afterword.training.cross_entropy import head_cross_entropy
from afterword.training.examples import Examples
from afterword.training.settings import TrainSettings


@torch.no_grad()
def validate(model: Afterword, held_out: Examples, settings: TrainSettings, unit: float) -> dict[str, float]:
    """Measure a model on examples it is not trained on.

    Args:
        model: The model.
        held_out: The examples.
        settings: Budget of tokens.
        unit: What the alignment loss is divided by.

    Returns:
        `recon`: nats a token of the response behind its soft prompt. `align`: squared distance to the target
        over `unit`. `cosine`: mean cosine with the target. `retrieval`: share of examples whose
        embedding is nearest (by cosine) to their own target among all targets held out.
    """
    embeddings = torch.empty_like(held_out.targets)
    loss, tokens = 0.0, 0
    for group in passes(model, held_out, settings):
        soft_prompt = model.parts.soft_prompt(model.states(model.inputs.pad([held_out.rows[i] for i in group])))
        embeddings[group] = model.parts.embedding(soft_prompt).cpu()
        responses = [held_out.responses[i] for i in group]
        loss += float(
            head_cross_entropy(*response_pass(model.backbone, soft_prompt, responses), model.backbone.head).sum()
        )
        tokens += sum(map(len, responses))
    return {
        "recon": loss / tokens,
        "align": float(alignment_loss(embeddings, held_out.targets, unit).mean()),
        "cosine": float(cosine_similarity(embeddings, held_out.targets).mean()),
        "retrieval": retrieval_accuracy(embeddings, held_out.targets),
    }


def retrieval_accuracy(embeddings: Float[Tensor, "N d"], targets: Float[Tensor, "N d"]) -> float:
    """Return the share of rows whose own target is the nearest by cosine; equal targets count as the same one."""
    scores = normalize(embeddings, dim=1) @ normalize(targets, dim=1).T
    own = scores.diagonal()
    return float((own >= scores.max(dim=1).values - 1e-6).float().mean())


def passes(model: Afterword, examples: Examples, settings: TrainSettings) -> Iterator[list[int]]:
    """Split examples into groups of similar length that fit the budget of tokens."""
    own = zip(examples.rows, examples.responses, strict=True)
    lengths = [len(row) + model.config.n_tokens + len(response) for row, response in own]
    yield from by_length(lengths, len(lengths), settings.tokens_per_pass, packed=model.backbone.packs)
