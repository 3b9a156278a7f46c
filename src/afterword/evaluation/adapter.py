"""Any encoder in the form that mteb wants."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.abs_encoder import AbsEncoder
from mteb.types import PromptType
from numpy.typing import NDArray

from afterword.encoder import Encoder
from afterword.errors import WorkError
from afterword.evaluation.instructions import Prompter, takes_prompt
from afterword.evaluation.meta import count_tokens, facts_of, model_meta

CHUNK = 1024


@dataclass
class Work:
    """What was encoded for a task.

    Attributes:
        texts: Number of texts.
        tokens: Tokens of the texts as far as the encoder reads them, prompts not counted; None without a tokenizer.
        seconds: Time in `encode`.
        prompts: What stood before the texts, by side.
    """

    texts: int = 0
    tokens: int | None = 0
    seconds: float = 0.0
    prompts: dict[str, str] = field(default_factory=dict)


class MtebEncoder(AbsEncoder):
    """mteb's encoder over an `Encoder`; it keeps count of what it does.

    Texts are handed over by the thousand, so that an encoder that sorts by length can, and progress is seen.

    Args:
        encoder: Anything that turns texts into vectors.
        name: Name in reports and in the folders of results; a `/` is put in front where it has none.
        prompter: Chooses the prompts.
        batch_size: Texts in one pass.
    """

    def __init__(self, encoder: Encoder, name: str, prompter: Prompter, batch_size: int = 32) -> None:
        self.encoder = encoder
        self.prompter = prompter
        self.batch_size = batch_size
        self.work = Work()
        self.progress: Callable[[int, int], None] | None = None
        self.facts = facts_of(encoder, batch_size, prompter)
        self.meta = model_meta(encoder, name, prompter, self.facts)
        self.mteb_model_meta = self.meta
        self._takes_prompt = takes_prompt(encoder)

    @property
    def revision(self) -> str:
        """Fingerprint of weights, prompts, type and length: two checkpoints never share a result."""
        return str(self.meta.revision)

    def encode(
        self,
        inputs: Any,
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        prompt_type: PromptType | None = None,
        **options: Any,
    ) -> NDArray[np.float32]:
        """Encode the texts of a side of a task.

        Args:
            inputs: mteb's batches: dictionaries with a list under `text`.
            task_metadata: The task; its name and type choose the prompt.
            hf_split: Not used.
            hf_subset: Not used.
            prompt_type: The side.
            options: mteb's own; the batch size is that of this encoder.

        Returns:
            *Shape:* `(N, d)`, float32.

        Raises:
            WorkError: The encoder gave another shape, or a value that is not finite. The text itself is not shown.
        """
        texts = [text for batch in inputs for text in batch["text"]]
        side = None if prompt_type is None else str(prompt_type.value)
        prompt = self.prompter.prompt(task_metadata.name, task_metadata.type, side)
        began = time.perf_counter()
        vectors = self._vectors(texts, prompt)
        self.work.seconds += time.perf_counter() - began
        self.work.texts += len(texts)
        self.work.prompts[side or "text"] = prompt
        count = count_tokens(self.encoder, texts)
        self.work.tokens = None if count is None or self.work.tokens is None else self.work.tokens + count
        expected = (len(texts), self.encoder.get_embedding_dimension())
        if vectors.shape != expected:
            raise WorkError(f"{task_metadata.name}: the encoder returned shape {vectors.shape}, expected {expected}")
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if bad.size:
            raise WorkError(f"{task_metadata.name}: NaN or infinity in the vector of item {bad[0]} of side {side}")
        return vectors

    def _vectors(self, texts: Sequence[str], prompt: str) -> NDArray[np.float32]:
        options: dict[str, Any] = {"batch_size": self.batch_size, "show_progress_bar": False}
        if self._takes_prompt:
            options["prompt"] = prompt
        else:
            texts = [prompt + text for text in texts]
        parts = []
        for start in range(0, len(texts), CHUNK):
            if self.progress:
                self.progress(start, len(texts))
            found = self.encoder.encode(list(texts[start : start + CHUNK]), **options)
            parts.append(np.asarray(found, dtype=np.float32))
        return (
            np.concatenate(parts) if parts else np.zeros((0, self.encoder.get_embedding_dimension() or 0), np.float32)
        )
