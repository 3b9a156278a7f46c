"""The encoder as the server sees it: what may be asked of it, and the work that the model's thread does."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from afterword.encoder import Encoder, fingerprint_of, name_of
from afterword.errors import AfterwordError, SettingError, WorkError
from afterword.prompts import resolve_prompt
from afterword.serving.reading import reader_of

Task = Literal["embed", "decode", "latents"]


@dataclass(frozen=True)
class Work:
    """What is to be done with a text. Texts with equal work may share a batch.

    Attributes:
        task: Embed it, decode it, or return its latents.
        prompt: What stands before it.
        max_new_tokens: Most tokens of a decoded answer.
        repetition_penalty: Of a decoded answer.
    """

    task: Task
    prompt: str
    max_new_tokens: int = 0
    repetition_penalty: float = 1.0


@dataclass(frozen=True)
class ItemLatents:
    """Latents of one text.

    Attributes:
        states: Last states of the compression tokens. *Shape:* `(n, hidden)`.
        soft_prompt: States after the reconstruction head. *Shape:* `(n, hidden)`.
        embedding: The embedding. *Shape:* `(d,)`.
    """

    states: NDArray[np.float32]
    soft_prompt: NDArray[np.float32]
    embedding: NDArray[np.float32]


class Served:
    """An encoder that is loaded and has embedded a first text.

    Args:
        encoder: Anything that turns texts into vectors.
        batch_size: Texts in one pass of the encoder.
        name: Name by which clients ask for it; its own by default.

    Raises:
        WorkError: It returns something else than one vector for one text.
    """

    def __init__(self, encoder: Encoder, batch_size: int = 32, name: str | None = None) -> None:
        self.encoder: Any = encoder
        self.batch_size = batch_size
        self.name = name or name_of(encoder)
        own = getattr(encoder, "prompts", None) or getattr(getattr(encoder, "config", None), "prompts", None) or {}
        default = getattr(encoder, "default_prompt_name", None)
        self.prompts: dict[str, str] = dict(own)
        self.default_prompt = default or getattr(getattr(encoder, "config", None), "default_prompt_name", None)
        self.decodes = hasattr(encoder, "latents") and hasattr(encoder, "decode")
        self.reader = reader_of(encoder)
        self._takes_prompt = "prompt" in inspect.signature(encoder.encode).parameters
        self.dimension = int(self.run(Work("embed", ""), ["A first text."])[0].shape[0])
        self.fingerprint = _fingerprint(encoder)

    def prompt(self, instruction: str | None, prompt_name: str | None) -> str:
        """Return what stands before a text: the words of an instruction, a prompt by its name, or the default one.

        Raises:
            SettingError: There is no prompt of that name, or both were given.
        """
        if instruction is not None and prompt_name is not None:
            raise SettingError("give an instruction or a prompt_name, not both")
        return resolve_prompt(self.prompts, instruction, prompt_name, self.default_prompt)

    def run(self, work: Work, texts: list[str]) -> list[Any]:
        """Do the work for texts, in order; called by one thread only.

        Returns:
            For `embed` a vector of shape `(d,)` for each text, for `decode` a string, for `latents` `ItemLatents`.
        """
        if work.task == "embed":
            return self._embed(work.prompt, texts)
        latents = self.encoder.latents(texts, work.prompt, self.batch_size)
        if work.task == "decode":
            limits = (work.max_new_tokens, self.batch_size, work.repetition_penalty)
            return self.encoder.decode(latents, *limits)  # type: ignore[no-any-return]
        parts = (latents.states, latents.soft_prompt, latents.embedding)
        return [ItemLatents(*rows) for rows in zip(*(part.float().cpu().numpy() for part in parts), strict=True)]

    def _embed(self, prompt: str, texts: list[str]) -> list[NDArray[np.float32]]:
        options: dict[str, Any] = {"batch_size": self.batch_size, "show_progress_bar": False}
        if self._takes_prompt:
            options["prompt"] = prompt
        else:
            texts = [prompt + text for text in texts]
        vectors = np.asarray(self.encoder.encode(texts, **options), dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise WorkError(f"the encoder returned shape {vectors.shape} for {len(texts)} texts")
        return list(vectors)


def short_name(model: str) -> str:
    """Return a name for clients: that of a folder without the way there, anything else as it is."""
    kind, colon, rest = model.partition(":")
    if kind not in ("hf", "teacher"):
        kind, colon, rest = "", "", model
    folder = Path(rest).expanduser()
    if not folder.is_dir():
        return model
    parts = [part for part in folder.resolve().parts if part not in ("model", "training")]
    return f"{kind}{colon}{parts[-1]}"


def _fingerprint(encoder: Encoder) -> str | None:
    try:
        return fingerprint_of(encoder)
    except AfterwordError:
        return None
