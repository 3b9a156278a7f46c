"""What the loop needs to know about what it trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn


@runtime_checkable
class Objective(Protocol):
    """Something to minimise over numbered examples.

    The loss of a step is the sum of the losses of its parts: `plan` says what the whole step is divided by, so that a
    step comes out the same however it is split over passes and processes.
    """

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the parts of the loss."""
        ...

    @property
    def packed(self) -> bool:
        """Whether the examples of a pass run end to end, so that no padding has to be counted."""
        ...

    def trainable(self) -> nn.Module:
        """Return the module whose parameters are trained, and nothing else."""
        ...

    def __len__(self) -> int:
        """Return the number of examples."""
        ...

    def cost(self, index: int) -> int:
        """Return the tokens that an example puts through the LLM."""
        ...

    def plan(self, indices: Sequence[int], step: int, passes: Sequence[Sequence[int]]) -> Any:
        """Decide what holds for a whole step: what its sums are divided by, and anything that is drawn.

        Args:
            indices: The examples of the step, over all processes.
            step: Its number, from 0.
            passes: The groups of them that this process will ask the loss of, in order.
        """
        ...

    def loss(self, indices: Sequence[int], plan: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the share of the step's loss that some of its examples have, and its named parts, detached."""
        ...

    def validate(self) -> dict[str, float]:
        """Return measures on held-out examples."""
        ...
