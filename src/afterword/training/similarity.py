"""What is measured of an embedding space while a teacher is trained."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from afterword.corpus.pairs import StsPairs
from afterword.encoder import Encoder, encode_array


def alignment(first: Float[Tensor, "N d"], second: Float[Tensor, "N d"]) -> float:
    """Return the mean squared distance of the two unit embeddings of each text (arXiv 2005.10242): low is good."""
    return float((first - second).square().sum(dim=1).mean())


def uniformity(embeddings: Float[Tensor, "N d"]) -> float:
    """Return the log of the mean `exp(−2·squared distance)` of unit embeddings (arXiv 2005.10242): low is good."""
    return float(torch.pdist(embeddings.double()).square().mul(-2).exp().mean().log()) if len(embeddings) > 1 else 0.0


def spearman(encoder: Encoder, pairs: StsPairs) -> float:
    """Return the rank correlation, times 100, of cosines with the scores of people."""
    texts = [*pairs.first, *pairs.second]
    vectors = encode_array(encoder, texts)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    half = len(pairs.first)
    cosines = (vectors[:half] * vectors[half:]).sum(axis=1)
    return 100 * float(np.corrcoef(ranks(cosines), ranks(np.asarray(pairs.scores)))[0, 1])


def ranks(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the rank of each value; equal ones share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: NDArray[np.float64] = (ends - (counts - 1) / 2.0)[inverse]
    return means
