"""An LLM's states as embeddings: the LLM as its own teacher, and LLM2Vec, which sees both ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import by_length, token_batch
from afterword.backbone.frames import make_frame, user_turn
from afterword.backbone.passes import encoder_pass, text_pass
from afterword.encoder import hash_text
from afterword.errors import SettingError
from afterword.teacher.pooling import pool
from afterword.teacher.settings import PoolingSettings


class LLMTeacher:
    """Embeds a text by pooling the LLM's states over it.

    By default the mean of the last states under a summarising prompt, with causal attention: the frozen LLM as its own
    teacher (the paper's "full JEPA", §6). With `attention="bidirectional"` and adapted weights it is LLM2Vec (arXiv
    2404.05961). What stands before a text (BOS, prompt, head of a chat turn) is left out of the pooling unless asked
    for. Targets of a frozen LLM are standardised over the corpus: a few dimensions of its states are a hundred times
    larger than the rest and would be all that a squared error sees.

    Args:
        backbone: The LLM, frozen or with merged adapters.
        settings: How its states become an embedding.
        name: A name for reports; by default it says which LLM.
        identity: A hash of the weights; by default that of the LLM as it is.
        changes: Single settings by name, over `settings`.

    Raises:
        SettingError: The LLM has fewer layers than asked for, or cannot see both ways.
    """

    def __init__(
        self,
        backbone: Backbone,
        settings: PoolingSettings | None = None,
        *,
        name: str | None = None,
        identity: str | None = None,
        **changes: Any,
    ) -> None:
        self.backbone = backbone
        self._identity = identity
        self.settings = replace(settings or PoolingSettings(), **changes)
        self.name = name or f"LLM({backbone.name})"
        prompt = self.settings.prompt
        before, after = _around(backbone, self.settings)
        self._shared = (*before, *backbone.text.plain([prompt.rstrip()])[0])
        self._glue = prompt[len(prompt.rstrip()) :]
        self._after = after
        _check_layer(backbone, self.settings.layer)
        if self.settings.both_ways:
            check_both_ways(backbone)

    @property
    def max_seq_length(self) -> int:
        """Most tokens of a text."""
        return self.settings.max_seq_length

    @property
    def fingerprint(self) -> str:
        """A hash of the LLM's weights and the settings."""
        return hash_text(f"{self._identity or self.backbone.fingerprint}{self.settings}")

    def get_embedding_dimension(self) -> int:
        """Return the width of the LLM's states."""
        return self.backbone.hidden_size

    @torch.inference_mode()
    def encode(
        self, inputs: Sequence[str], *, batch_size: int = 32, show_progress_bar: bool | None = None
    ) -> NDArray[np.float32]:
        """Encode texts. An empty text, which has no state of its own, gets the last state of what stands before it.

        Returns:
            Float32, `(N, hidden)`.
        """
        rows = self.rows(inputs)
        vectors = torch.empty(len(rows), self.backbone.hidden_size)
        for group in by_length([len(row) for row in rows], batch_size):
            vectors[group] = self._embed([rows[i] for i in group]).cpu()
        return vectors.numpy()

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of texts, cut to length, with what stands behind them and without what stands before."""
        ids = self.backbone.text.plain([self._glue + text for text in texts])
        return [[*row[: self.settings.max_seq_length], *self._after] for row in ids]

    def whole(self, row: Sequence[int]) -> list[int]:
        """Return a row with what stands before it; a row of nothing at all becomes the end token."""
        return [*self._shared, *row] or [self.backbone.end_ids[0]]

    def embed_rows(self, rows: Sequence[Sequence[int]], dropout: float = 0.0) -> Float[Tensor, "rows hidden"]:
        """Embed rows of `rows`, with a graph where weights are trained.

        Args:
            rows: Tokens of each text.
            dropout: Share of the input embeddings' values that are dropped.
        """
        whole = [self.whole(row) for row in rows]
        states = encoder_pass(
            self.backbone,
            whole,
            both_ways=self.settings.both_ways,
            layer=self.settings.layer,
            dropout=dropout,
        )
        return self._pool(states, [len(row) for row in whole], rows)

    def _embed(self, rows: Sequence[Sequence[int]]) -> Float[Tensor, "rows hidden"]:
        """Embed rows without a graph; a causal LLM runs what stands before all of them once."""
        alone = self.settings.attention == "causal" and not self.settings.pool_prompt and all(rows)
        if not alone:  # the state that an empty text gets must be among those of this pass, not behind them
            return self.embed_rows(rows)
        batch = token_batch(rows, self.backbone.device, self._shared)
        return self._pool(text_pass(self.backbone, batch, self.settings.layer)[0], batch.lengths, rows)

    def _pool(self, states: Tensor, lengths: Sequence[int], rows: Sequence[Sequence[int]]) -> Tensor:
        pooled = lengths if self.settings.pool_prompt else [max(1, len(row)) for row in rows]
        return pool(states, lengths, pooled, self.settings.pooling)


@torch.inference_mode()
def check_both_ways(backbone: Backbone) -> None:
    """Make sure that a later token moves an earlier state.

    Raises:
        SettingError: It does not: this LLM has no such switch.
    """
    first, *others = range(min(4, len(backbone.embedding_matrix)))
    states = [encoder_pass(backbone, [[first, *seen]], both_ways=True)[0] for seen in (others, others[::-1])]
    if torch.equal(*states):
        raise SettingError(
            f"models of type {backbone.config.model_type} do not see both ways in this version of transformers: "
            "take attention = 'causal'"
        )


def _around(backbone: Backbone, settings: PoolingSettings) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids before and behind a text."""
    text = backbone.text
    end = (backbone.end_ids[0],) if settings.pooling == "eos" else ()
    frame = make_frame(text, "raw") if settings.around == "raw" else user_turn(text)
    return frame.before, (*frame.after, *end)


def _check_layer(backbone: Backbone, layer: int | None) -> None:
    layers = int(backbone.config.num_hidden_layers)
    if layer is not None and not 0 <= layer <= layers:
        raise SettingError(f"layer is {layer}: {backbone.name} has {layers} layers; 0 is its input embeddings")
