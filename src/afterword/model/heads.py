"""The two heads, in series: states → soft prompt → aligned vectors (paper §3)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from afterword.space import TargetSpace


class LearnedParts(nn.Module):
    """All that training changes: the tokens and two linear heads, in float32.

    Attributes:
        tokens: Thought vectors, then compression vectors. *Shape:* `(m + n, hidden)`.
        recon: States to soft prompt, hidden → hidden.
        align: Soft prompt to the teacher's space, hidden → dimension.
        space: How the teacher's own vectors were brought into that space, kept for comparisons; not trained.
    """

    def __init__(
        self,
        tokens: Float[Tensor, "tokens hidden"],
        dimension: int,
        recon_scale: float = 1.0,
        space: TargetSpace | None = None,
    ) -> None:
        super().__init__()
        hidden = tokens.shape[1]
        self.tokens = nn.Parameter(tokens.detach().clone().float())
        self.recon = nn.Linear(hidden, hidden)
        self.align = nn.Linear(hidden, dimension)
        self.space = space
        with torch.no_grad():
            # States come out of the final norm, soft prompts go in where embeddings do: the identity, rescaled.
            self.recon.weight.copy_(torch.eye(hidden) * recon_scale)
            self.recon.bias.zero_()
            self.align.bias.zero_()

    def soft_prompt(self, states: Float[Tensor, "batch n hidden"]) -> Float[Tensor, "batch n hidden"]:
        """Map compression states to what the LLM decodes from."""
        return self.recon(states.float())  # type: ignore[no-any-return]

    def embedding(self, soft_prompt: Float[Tensor, "batch n hidden"]) -> Float[Tensor, "batch dimension"]:
        """Map a soft prompt to the embedding: the mean over the compression tokens of the aligned vectors."""
        return self.align(soft_prompt).mean(dim=1)  # type: ignore[no-any-return]


def random_heads(parts: LearnedParts, seed: int) -> None:
    """Draw both heads as the plain recipe of the paper does: torch's default for linear layers, seeded."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in (parts.recon, parts.align):
            bound = layer.in_features**-0.5
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.uniform_(-bound, bound, generator=generator)
