"""Heads in closed form: where gradient training starts from when it need not start from nothing.

The alignment head is linear and its mean is taken over tokens, so with the tokens held still the embedding is linear in
the mean state: the best head is a ridge regression of the targets on the mean states. The reconstruction head starts as
the identity, scaled from the norm of states to that of embedded tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from afterword.model.model import Afterword
from afterword.training.examples import Examples, draw
from afterword.training.settings import TrainSettings
from afterword.training.validation import passes

STRENGTHS = tuple(10.0**power for power in range(-6, 4))


@dataclass(frozen=True)
class Ridge:
    """A fitted ridge regression `y = x · weightᵀ + bias`.

    Attributes:
        weight: *Shape:* `(d, features)`.
        bias: *Shape:* `(d,)`.
        strength: The penalty chosen, relative to the mean eigenvalue of the features' covariance.
        error: Mean squared error of leaving one out, at that strength.
    """

    weight: Float[Tensor, "d features"]
    bias: Float[Tensor, " d"]
    strength: float
    error: float


def fit_alignment(model: Afterword, examples: Examples, settings: TrainSettings) -> Ridge:
    """Set the alignment head of a model in closed form, on its tokens and reconstruction head as they are.

    It is the start of training, and once more its end: gradient steps move the states under the head, and the head that
    fits them best need not be searched for.

    Args:
        model: Its alignment head is overwritten.
        examples: What it is trained on.
        settings: `warm_start_samples` bounds the examples looked at; they are chosen by seed.
    """
    chosen = examples.subset(draw(examples, settings.warm_start_samples, settings.seed))
    features = mean_soft_prompts(model, chosen, settings)
    ridge = fit_ridge(features.double(), chosen.targets.double())
    with torch.no_grad():
        model.parts.align.weight.copy_(ridge.weight.float())
        model.parts.align.bias.copy_(ridge.bias.float())
    return ridge


@torch.no_grad()
def mean_soft_prompts(model: Afterword, examples: Examples, settings: TrainSettings) -> Float[Tensor, "N hidden"]:
    """Return the mean soft prompt of each example: all that the alignment head sees of it."""
    features = torch.empty(len(examples), model.config.hidden_size)
    for group in passes(examples, range(len(examples)), model.config.n_tokens, settings):
        states = model.states(model.inputs.pad([examples.rows[i] for i in group]))
        features[group] = model.parts.soft_prompt(states).mean(dim=1).cpu()
    return features


def fit_ridge(features: Float[Tensor, "N features"], targets: Float[Tensor, "N d"]) -> Ridge:
    """Fit a ridge regression, its strength chosen by exact leave-one-out error.

    With the singular value decomposition of the centred features, the residual of leaving row `i` out is
    `(y − ŷ)_i / (1 − h_ii − 1/N)`, where `h` is the hat matrix of the penalised fit; so all strengths cost one
    decomposition.

    Args:
        features: Float64.
        targets: Float64.
    """
    x_mean, y_mean = features.mean(dim=0), targets.mean(dim=0)
    u, s, vt = torch.linalg.svd(features - x_mean, full_matrices=False)
    projected = u.T @ (targets - y_mean)
    scale = s.square().mean().clamp(min=torch.finfo(s.dtype).tiny)
    fits = []
    for strength in STRENGTHS:
        shrink = s.square() / (s.square() + strength * scale)
        leverage = (u.square() @ shrink) + 1.0 / len(features)
        residual = (targets - y_mean - u @ (shrink[:, None] * projected)) / (1 - leverage).clamp(min=1e-9)[:, None]
        fits.append((float(residual.square().mean()), strength))
    error, strength = min(fits)
    inverse = s / (s.square() + strength * scale)
    weight = (vt.T @ (inverse[:, None] * projected)).T
    return Ridge(weight, y_mean - weight @ x_mean, strength, error)
