"""The alignment loss (paper §3): the squared distance between an embedding and its target."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from afterword.training.settings import AlignReduction


def alignment_loss(
    embeddings: Float[Tensor, "batch d"], targets: Float[Tensor, "batch d"], unit: float
) -> Float[Tensor, " batch"]:
    """Return `‖e − ê‖² / unit` of each example."""
    return (embeddings - targets).square().sum(dim=1) / unit


def alignment_unit(targets: Float[Tensor, "N d"], reduction: AlignReduction) -> float:
    """Return what a squared distance is divided by.

    `sum`: 1, as the paper writes it. `mean`: the number of dimensions, as in the authors' code. `relative`: the mean
    squared distance of the targets from their mean, so that 1 is what a constant embedding reaches and 0 is perfect;
    then one weight fits a teacher of unit vectors and one whose vectors have a length of a hundred.
    """
    if reduction == "sum":
        return 1.0
    if reduction == "mean":
        return float(targets.shape[1])
    spread = (targets - targets.mean(dim=0)).square().sum(dim=1).mean()
    return float(spread.clamp(min=1e-12))
