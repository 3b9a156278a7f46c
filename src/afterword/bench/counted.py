"""The operations of training, encoding and writing, from the lengths of what goes through."""

from __future__ import annotations

from collections.abc import Sequence

from afterword.backbone.backbone import Backbone
from afterword.backbone.cost import Cost
from afterword.model.model import Afterword
from afterword.training.examples import Examples
from afterword.training.settings import TrainSettings


def sample_flops(model: Afterword, examples: Examples, settings: TrainSettings) -> float:
    """Return the mean operations of one sample by the floor formula (`Cost.training`), with its attention."""
    cost, k, n = Cost.of(model.backbone.model), model.config.n_tokens, model.config.n_compression
    share = settings.recon_share / settings.recon_every if settings.w_recon else 0.0
    shared, flops = len(model.inputs.frame.before), 0.0
    for row, response in zip(examples.rows, examples.responses, strict=True):
        q, r = len(row), len(response)
        flops += cost.training(q, k, 0, 0) + cost.training_attention(q, k, 0, 0, shared)
        rebuilt = 2 * cost.forward(n + r) + cost.training_attention(0, 0, n, r)
        flops += share * (rebuilt + 4 * cost.head * r * settings.position_share)
    return flops / len(examples)


def shared_flops(model: Afterword) -> float:
    """Return the operations of the frame's prefix, which runs once for all samples."""
    cost, shared = Cost.of(model.backbone.model), len(model.inputs.frame.before)
    return float(cost.forward(shared) + cost.attending(shared, shared))


def encoding_flops(model: Afterword, texts: Sequence[str], prompt: str = "") -> float:
    """Return the operations of encoding texts: their tokens, the learned ones, and attention to all that is seen.

    The frame's prefix and the prompt, which all texts share, run once and are not counted.
    """
    cost, k, flops = Cost.of(model.backbone.model), model.config.n_tokens, 0.0
    for _, batch in model.inputs.batches(texts, prompt, len(texts)):
        for n in batch.lengths:
            flops += cost.encoding(n, k) + cost.attending(n + k, len(batch.shared) + n + k)
    return flops


def writing_flops(backbone: Backbone, prompts: Sequence[int], written: Sequence[int], shared: int) -> float:
    """Return the operations of writing responses of some lengths behind prompts of some lengths and a prefix."""
    cost, flops = Cost.of(backbone.model), 0.0
    for prompt, length in zip(prompts, written, strict=True):
        together = prompt + length
        flops += cost.writing(prompt, length) + cost.attending(together, shared + together)
    return flops
