"""Between the routes and the model: what is asked is checked, and has a place in the queue until it is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from afterword.encoder import Encoder
from afterword.errors import InputError, SettingError
from afterword.serving.batching import Batcher, QueueFull
from afterword.serving.errors import ApiError
from afterword.serving.metrics import Metrics
from afterword.serving.schemas import Asked
from afterword.serving.served import Served, Work
from afterword.serving.settings import ServeSettings


@dataclass(frozen=True)
class Texts:
    """The texts of a request, as the model will read them.

    Attributes:
        texts: The texts.
        prompt: What stands before each.
        sizes: Tokens of prompt and text that are read, of each.
        cut: Whether a text is longer than that.
    """

    texts: list[str]
    prompt: str
    sizes: list[int]
    cut: list[bool]

    @property
    def usage(self) -> dict[str, int]:
        """Tokens that are read, in OpenAI's words."""
        return {"prompt_tokens": sum(self.sizes), "total_tokens": sum(self.sizes)}


class Service:
    """Serves one encoder: loads it, reads requests for it, and keeps the queue.

    Args:
        encoder: The encoder, or a function that loads it.
        settings: Limits and batches.
    """

    def __init__(self, encoder: Encoder | Callable[[], Encoder], settings: ServeSettings) -> None:
        self.settings = settings
        self.created = int(time.time())
        self.failure: Exception | None = None
        self._settled = asyncio.Event()
        self._encoder = encoder
        self._served: Served | None = None
        self.batcher: Batcher[Work] = Batcher(
            lambda work, texts: self.served.run(work, texts),
            settings.batch_items,
            settings.batch_tokens,
            settings.max_queue,
            lambda batch: self.metrics.batch(batch),
        )
        self.metrics = Metrics(lambda: self.batcher.places)
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="reader")

    @property
    def served(self) -> Served:
        """The encoder.

        Raises:
            ApiError: It is still loading.
        """
        if self._served is None:
            raise ApiError(503, "the model is loading: try again soon", code="loading", headers={"Retry-After": "2"})
        return self._served

    async def open(self) -> None:
        """Load the encoder, then work until cancelled. Why it could not be loaded is kept in `failure`."""
        try:
            self._served = await asyncio.get_running_loop().run_in_executor(self.batcher.executor, self._load)
        except Exception as error:
            self.failure = error
            return
        finally:
            self._settled.set()
        await self.batcher.work()

    async def loaded(self) -> str | None:
        """Wait until loading is over, and return the name of the model, or None where it failed."""
        await self._settled.wait()
        return self._served.name if self._served is not None else None

    def close(self) -> None:
        """Let the threads end."""
        self.batcher.close()
        self._reading.shutdown(wait=True)

    def check_ready(self) -> None:
        """Raise a 503 while the encoder is loading."""
        _ = self.served

    def check_model(self, name: str) -> None:
        """Raise a 404 for a model that is not served: a vector of another space would be worse than none."""
        if name != self.served.name:
            message = f"there is no model {name!r} here; this server has {self.served.name!r}"
            raise ApiError(404, message, param="model", code="model_not_found")

    def check_decodes(self) -> None:
        """Raise a 404 for an encoder that has no latents."""
        if not self.served.decodes:
            message = f"{self.served.name} only embeds: decode and latents need an Afterword model"
            raise ApiError(404, message, code="not_supported")

    @asynccontextmanager
    async def read(self, asked: Asked, most: int) -> AsyncIterator[Texts]:
        """Check the texts of a request, and hold places in the queue for them as long as it lasts.

        Args:
            asked: The request.
            most: Most texts of it.

        Raises:
            ApiError: Another model is asked for, a limit is passed, a text is empty or too long, or the queue is full.
        """
        served, items = self.served, cast("list[Any]", asked.input)
        if asked.model is not None:
            self.check_model(asked.model)
        if len(items) > most:
            raise ApiError(
                400, f"input has {len(items)} items, the most is {most}", param="input", code="too_many_items"
            )
        try:
            with self.batcher.place(len(items)):
                work = asyncio.get_running_loop().run_in_executor(self._reading, self._read, served, asked)
                yield await work
        except QueueFull as full:
            headers = {"Retry-After": str(full.seconds)}
            raise ApiError(429, str(full), code="queue_full", headers=headers) from None

    def _load(self) -> Served:
        encoder = self._encoder if isinstance(self._encoder, Encoder) else self._encoder()
        return Served(encoder, self.settings.batch_items, self.settings.name)

    def _read(self, served: Served, asked: Asked) -> Texts:
        try:
            prompt = served.prompt(asked.instruction, asked.prompt_name)
        except SettingError as error:
            param = "instruction" if asked.prompt_name is None else "prompt_name"
            raise ApiError(400, str(error), param=param, code="no_such_prompt") from None
        items = cast("list[Any]", asked.input)
        texts = items if isinstance(items[0], str) else served.reader.texts(items)
        for index, text in enumerate(texts):
            if not text.strip():
                raise InputError("it holds no text: there is nothing to embed", index)
        most = served.reader.most
        if most is not None and prompt and served.reader.count([""], prompt)[0] >= most:
            message = f"the prompt alone fills the {most} tokens that the model reads: shorten it"
            raise ApiError(400, message, param="instruction", code="too_long")
        counts = served.reader.count(texts, prompt)
        read = self._fit(counts, most)
        return Texts(texts, prompt, read, [count > size for count, size in zip(counts, read, strict=True)])

    def _fit(self, counts: Sequence[int], most: int | None) -> list[int]:
        """Return how many tokens of each text are read.

        Raises:
            ApiError: A text is longer than the encoder reads, and texts are not cut here; or all are too long together.
        """
        if most is not None and self.settings.truncation == "refuse" and max(counts) > most:
            index = next(i for i, count in enumerate(counts) if count > most)
            message = (
                f"item {index}: it has {counts[index]} tokens with its prompt, the model reads {most}: shorten it, or "
                "start the server with --truncation mark"
            )
            raise ApiError(400, message, param="input", code="too_long")
        read = [count if most is None else min(count, most) for count in counts]
        if sum(read) > self.settings.max_tokens:
            message = f"input has {sum(read)} tokens, the most of a request is {self.settings.max_tokens}"
            raise ApiError(400, message, param="input", code="too_many_tokens")
        return read


def shaped(vectors: Sequence[NDArray[np.float32]], dimensions: int | None, normalize: bool) -> NDArray[np.float32]:
    """Put vectors together, keep their first dimensions, and scale them to length 1.

    Args:
        vectors: One for each item, each of shape `(d,)`.
        dimensions: How many to keep; what is cut is scaled to length 1 in any case.
        normalize: Whether to scale what is not cut.

    Returns:
        *Shape:* `(N, dimensions)`.

    Raises:
        ApiError: A vector holds NaN or infinity; its item is named.
    """
    matrix = np.stack(vectors)
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if bad.size:
        raise ApiError(500, f"item {bad[0]}: the model's vector holds NaN or infinity", code="not_finite")
    matrix = matrix[:, :dimensions]
    if normalize or dimensions is not None:
        lengths = np.linalg.norm(matrix.astype(np.float64), axis=1, keepdims=True)
        matrix = (matrix / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return matrix
