"""The frozen LLM as its own teacher: the paper's "full JEPA" (§6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import by_length, token_batch
from afterword.backbone.frames import make_frame
from afterword.backbone.passes import text_pass
from afterword.encoder import hash_tensors
from afterword.prompts import SUMMARISE


class LLMTeacher:
    """Embeds a text as the mean of the LLM's last states over it, under a summarising prompt.

    The prompt's own states are left out of the mean. Targets of this teacher are standardised over the corpus (a few
    dimensions of an LLM's states are a hundred times larger than the rest and would be all that a squared error sees).

    Args:
        backbone: The frozen LLM.
        prompt: What stands before a text.
        max_seq_length: Most tokens of a text; the rest is cut.
    """

    def __init__(self, backbone: Backbone, prompt: str = SUMMARISE, max_seq_length: int = 512) -> None:
        self.backbone = backbone
        self.prompt = prompt
        self.max_seq_length = max_seq_length
        start = make_frame(backbone.text, "raw").before
        self._shared = (*start, *backbone.text.plain([prompt.rstrip()])[0])
        self._glue = prompt[len(prompt.rstrip()) :]

    @property
    def name(self) -> str:
        """A name for reports."""
        return f"LLM({self.backbone.name})"

    @property
    def fingerprint(self) -> str:
        """A hash of the LLM, the prompt and the length."""
        return hash_tensors([(f"{self.backbone.fingerprint}{self.prompt}{self.max_seq_length}", torch.empty(0))])

    def get_embedding_dimension(self) -> int:
        """Return the width of the LLM's states."""
        return self.backbone.hidden_size

    @torch.inference_mode()
    def encode(
        self, inputs: Sequence[str], *, batch_size: int = 32, show_progress_bar: bool | None = None
    ) -> NDArray[np.float32]:
        """Encode texts. An empty text, which has no state of its own, gets the last state of the prompt.

        Returns:
            Float32, `(N, hidden)`.
        """
        rows = [ids[: self.max_seq_length] for ids in self.backbone.text.plain([self._glue + text for text in inputs])]
        vectors = torch.empty(len(rows), self.backbone.hidden_size)
        for group in by_length([len(row) for row in rows], batch_size):
            vectors[group] = self._mean_states([rows[i] for i in group]).cpu()
        return vectors.numpy()

    def _mean_states(self, rows: Sequence[Sequence[int]]) -> Float[Tensor, "batch hidden"]:
        own = [len(row) for row in rows]
        shared = self._shared
        if not all(rows):  # the state that an empty text gets must be among those of this pass, not behind them
            shared, rows = (), [[*shared, *row] or [self.backbone.end_ids[0]] for row in rows]
        states = text_pass(self.backbone, token_batch(rows, self.backbone.device, shared))[0].float()
        parts = torch.split(states, [len(row) for row in rows])
        return torch.stack([part[-max(1, count) :].mean(dim=0) for part, count in zip(parts, own, strict=True)])
