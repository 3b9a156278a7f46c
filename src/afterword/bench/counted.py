"""The operations of a training, from the lengths of its examples and the shares that its settings ask for."""

from __future__ import annotations

from afterword.backbone.cost import Cost
from afterword.model.model import Afterword
from afterword.training.examples import Examples
from afterword.training.settings import TrainSettings


def sample_flops(model: Afterword, examples: Examples, settings: TrainSettings) -> float:
    """Return the mean operations of one sample by the floor formula (`Cost.training`)."""
    cost, k, n = Cost.of(model.backbone.model), model.config.n_tokens, model.config.n_compression
    share = settings.recon_share / settings.recon_every if settings.w_recon else 0.0
    queries, responses = (sum(map(len, part)) / len(examples) for part in (examples.rows, examples.responses))
    body = cost.training(queries, k, n * share, 0) + 2 * cost.forward(responses * share)
    return float(body + 4 * cost.head * responses * share * settings.position_share)
