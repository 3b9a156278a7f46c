"""How far one step moves each parameter."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from afterword.model.heads import LearnedParts
from afterword.training.alignment import alignment_unit
from afterword.training.settings import TrainSettings


def step_sizes(parts: LearnedParts, targets: Float[Tensor, "N d"], settings: TrainSettings) -> dict[str, float]:
    """Return what the learning rate is multiplied by, for each parameter by name.

    Adam moves every weight by about the learning rate, whatever its size. With one number for all, a rate that moves a
    token by a thousandth moves the alignment head of a teacher of unit vectors by half of its weights, and a warm start
    is lost in a few steps. `relative` takes the root mean square of each parameter at the start; a bias, which starts
    at zero, is taken as large as what it is added to. Tokens and reconstruction head have rates of their own: every
    state stands on the tokens, so they had better move slowly, and the soft prompt has the longest way to go.
    """
    names = [name for name, _ in parts.named_parameters()]
    if settings.lr_scale == "absolute":
        return dict.fromkeys(names, 1.0)
    spread = (alignment_unit(targets, "relative") / targets.shape[1]) ** 0.5
    added = {"recon.bias": _rms(parts.tokens), "align.bias": spread}
    rates = {"tokens": settings.token_rate, "recon": settings.recon_rate}
    return {
        name: (added.get(name) or _rms(parameter)) * rates.get(name.partition(".")[0], 1.0)
        for name, parameter in parts.named_parameters()
    }


def _rms(tensor: Tensor) -> float:
    return max(float(tensor.detach().square().mean().sqrt()), 1e-8)
