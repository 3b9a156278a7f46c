"""The space that targets live in: a teacher's own, or one brought to unit spread over a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from afterword.encoder import Encoder, encode_array, fingerprint_of, hash_tensors, name_of

Spread = Literal["standardise", "whiten"]

SHRINK = 0.1
"""Share of the mean variance that each direction's variance is drawn towards before whitening: what a small corpus says
about the directions in which it hardly varies is noise."""
SMALLEST = 1e-6


class TargetSpace(nn.Module):
    """A linear map of a teacher's vectors: `(x − mean) · transform`.

    Args:
        mean: *Shape:* `(d,)`.
        transform: A factor for each dimension, `(d,)`, or a matrix, `(d, d)`.
    """

    mean: Tensor
    transform: Tensor

    def __init__(self, mean: Float[Tensor, " d"], transform: Float[Tensor, " d"] | Float[Tensor, "d d"]) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("transform", transform)

    def forward(self, vectors: Float[Tensor, "N d"]) -> Float[Tensor, "N d"]:
        """Bring vectors into the space."""
        centred = vectors - self.mean
        return centred * self.transform if self.transform.dim() == 1 else centred @ self.transform


def spread_space(vectors: NDArray[np.floating], spread: Spread) -> TargetSpace:
    """Return the space in which a corpus has mean 0 and unit spread.

    Args:
        vectors: The corpus in the teacher's own space, `(N, d)`.
        spread: `standardise` gives each dimension deviation 1; `whiten` also takes the correlations between them away,
            and turns nothing that need not be turned (ZCA).
    """
    wide = np.asarray(vectors, np.float64)
    mean = wide.mean(axis=0)
    if spread == "standardise":
        transform = 1 / np.maximum(wide.std(axis=0), SMALLEST)
    else:
        centred = wide - mean
        variances, directions = np.linalg.eigh(centred.T @ centred / len(wide))
        variances = (1 - SHRINK) * np.maximum(variances, 0) + SHRINK * variances.mean()
        transform = directions / np.sqrt(np.maximum(variances, SMALLEST**2)) @ directions.T
    return TargetSpace(torch.from_numpy(mean.astype(np.float32)), torch.from_numpy(transform.astype(np.float32)))


class InSpace:
    """A teacher whose vectors are brought into a space: what a student trained on such targets is compared with.

    Args:
        encoder: The teacher.
        space: The space.
        prompt: Text put before each text.
    """

    def __init__(self, encoder: Encoder, space: TargetSpace | None, prompt: str = "") -> None:
        self.encoder, self.space, self.prompt = encoder, space, prompt

    @property
    def name(self) -> str:
        """A name for reports."""
        return f"{name_of(self.encoder)} in its targets' space"

    @property
    def fingerprint(self) -> str:
        """A hash of the teacher, the prompt and the space."""
        tensors = list(self.space.state_dict().items()) if self.space else []
        return hash_tensors([*tensors, (f"{fingerprint_of(self.encoder)}{self.prompt}", torch.empty(0))])

    def get_embedding_dimension(self) -> int | None:
        """Return the width of the space."""
        return self.encoder.get_embedding_dimension()

    def encode(self, inputs: Sequence[str], *, batch_size: int = 32, show_progress_bar: bool | None = None) -> Any:
        """Encode texts. Float32, `(N, d)`."""
        vectors = encode_array(self.encoder, [self.prompt + text for text in inputs], batch_size)
        return vectors if self.space is None else self.space.cpu()(torch.from_numpy(vectors)).numpy()
