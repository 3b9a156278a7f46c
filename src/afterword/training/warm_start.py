"""Heads in closed form: where gradient training starts from when it need not start from nothing.

Both heads are linear. With the tokens held still, the best alignment head is a ridge regression of the targets on the
mean soft prompts. What a soft prompt should be is not known, but the gist of the response is a good one: the
reconstruction head starts as a ridge regression of gists on mean states, scaled so that soft prompts are as long as the
embedded tokens that the LLM is used to.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from afterword.model.model import Afterword
from afterword.training.examples import Examples, draw
from afterword.training.gist import gists, token_norm
from afterword.training.settings import TrainSettings
from afterword.training.validation import passes

STRENGTHS = tuple(10.0**power for power in range(-6, 4))
KEPT = 0.01
"""Share of the scaled identity that stays: the ridge alone may drop directions that alignment needs."""


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


@dataclass(frozen=True)
class Seen:
    """Compression states of some examples, in the moments that both fits need.

    Attributes:
        mean: Mean over the tokens of each example. *Shape:* `(N, hidden)`.
        second: Mean of `h·hᵀ` over all tokens. *Shape:* `(hidden, hidden)`.
    """

    mean: Float[Tensor, "N hidden"]
    second: Float[Tensor, "hidden hidden"]


def fit_heads(model: Afterword, examples: Examples, settings: TrainSettings) -> tuple[Ridge, Ridge]:
    """Set both heads of a model in closed form, on its tokens as they are.

    Args:
        model: Fresh from its backbone; its heads are overwritten.
        examples: What it is trained on.
        settings: `warm_start_samples` bounds the examples looked at; they are chosen by seed.

    Returns:
        The fits of the reconstruction head (before scaling) and of the alignment head.
    """
    chosen = examples.subset(draw(examples, settings.warm_start_samples, settings.seed))
    seen = _states(model, chosen, settings)
    recon = fit_ridge(seen.mean.double(), gists(model.backbone, chosen.responses).double())
    scale = token_norm(model.backbone, chosen.responses) / max(_predicted_norm(recon, seen), 1e-12)
    with torch.no_grad():
        model.parts.recon.weight.mul_(KEPT).add_((scale * recon.weight).to(model.device, torch.float32))
        model.parts.recon.bias.copy_(scale * recon.bias)
    return recon, _fit_alignment(model, chosen, seen)


def fit_alignment(model: Afterword, examples: Examples, settings: TrainSettings) -> Ridge:
    """Set the alignment head alone in closed form, on tokens and reconstruction head as they are.

    It can be the end of training as well: gradient steps move the states under the head, and the head that fits them
    best need not be searched for.

    Args:
        model: Its alignment head is overwritten.
        examples: What it is trained on.
        settings: `warm_start_samples` bounds the examples looked at; they are chosen by seed.
    """
    chosen = examples.subset(draw(examples, settings.warm_start_samples, settings.seed))
    return _fit_alignment(model, chosen, _states(model, chosen, settings))


def _fit_alignment(model: Afterword, chosen: Examples, seen: Seen) -> Ridge:
    with torch.no_grad():  # the head is linear: the soft prompt of the mean state is the mean soft prompt
        features = model.parts.soft_prompt(seen.mean[:, None].to(model.device))[:, 0].cpu()
    ridge = fit_ridge(features.double(), chosen.targets.double())
    with torch.no_grad():
        model.parts.align.weight.copy_(ridge.weight.float())
        model.parts.align.bias.copy_(ridge.bias.float())
    return ridge


@torch.no_grad()
def _states(model: Afterword, examples: Examples, settings: TrainSettings) -> Seen:
    hidden, n = model.config.hidden_size, model.config.n_compression
    mean, second = torch.empty(len(examples), hidden), torch.zeros(hidden, hidden, dtype=torch.float64)
    for group in passes(model, examples, settings):
        states = model.states(model.inputs.pad([examples.rows[i] for i in group])).cpu()
        mean[group] = states.mean(dim=1)
        flat = states.flatten(0, 1)
        second += (flat.T @ flat).double()
    return Seen(mean, second / (n * len(examples)))


def _predicted_norm(ridge: Ridge, seen: Seen) -> float:
    """Return the root mean squared norm of `W·h + b` over all states, from their moments."""
    mean = ridge.weight @ seen.mean.double().mean(dim=0)
    square = torch.einsum("ij,jk,ik->", ridge.weight, seen.second, ridge.weight)
    return float((square + 2 * ridge.bias @ mean + ridge.bias @ ridge.bias).clamp(min=0).sqrt())


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
