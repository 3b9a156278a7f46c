"""What the model knows of a batch of texts, before and after its heads."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Latents:
    """States, soft prompt and embedding of a batch.

    Attributes:
        states: Last states of the compression tokens. *Shape:* `(batch, n, hidden)`.
        soft_prompt: States after the reconstruction head. *Shape:* `(batch, n, hidden)`.
        embedding: Mean of the aligned soft prompt. *Shape:* `(batch, dimension)`.
    """

    states: Float[Tensor, "batch n hidden"]
    soft_prompt: Float[Tensor, "batch n hidden"]
    embedding: Float[Tensor, "batch dimension"]

    def __len__(self) -> int:
        return self.states.shape[0]

    def __getitem__(self, rows: slice) -> Latents:
        return Latents(self.states[rows], self.soft_prompt[rows], self.embedding[rows])
