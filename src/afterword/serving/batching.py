"""Requests share batches: a bounded number of texts, served in turn, by one thread.

Why not a library: the one that fits asyncio (`batched`) has no bound on its queue, counts a batch by the sum of its
lengths and not by its padded size, polls every few milliseconds while nothing is asked, and lets one request that
fails take its neighbours with it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

W = TypeVar("W", bound=Hashable)

PATIENCE = 0.1
"""A batch waits for the next companion at most this share of the time that it will take, and at most so many seconds;
twice that for all of them."""


class QueueFull(Exception):
    """There is no place for the texts of a request.

    Args:
        items: How many texts there were.
        waiting: How many are waiting.
        seconds: When there may be a place.
    """

    def __init__(self, items: int, waiting: int, seconds: int) -> None:
        super().__init__(f"{waiting} texts are waiting, there is no place for {items} more: try again in {seconds} s")
        self.seconds = seconds


@dataclass(frozen=True)
class Batch(Generic[W]):
    """A batch that was done, for those who count.

    Attributes:
        work: What was done.
        items: Texts in it.
        tokens: Tokens in it, without padding.
        seconds: How long it took.
        requests: How many requests shared it.
    """

    work: W | None = None
    items: int = 0
    tokens: int = 0
    seconds: float = 0.0
    requests: int = 0


@dataclass(eq=False)
class _Request(Generic[W]):
    """A request in the queue. Its answer is cancelled when the client leaves; then it is passed over."""

    work: W
    texts: Sequence[str]
    sizes: Sequence[int]
    answer: asyncio.Future[list[Any]]
    results: list[Any] = field(default_factory=list)
    taken: int = 0
    given: int = 0

    def __post_init__(self) -> None:
        self.results = [None] * len(self.texts)

    def give(self, index: int, result: Any) -> None:
        self.results[index] = result
        self.given += 1
        if self.given == len(self.texts) and not self.answer.done():
            self.answer.set_result(self.results)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Batcher(Generic[W]):
    """Collects texts of equal work into batches. All methods are for the event loop; `run` is called in a thread.

    Each batch takes one text of every waiting request in turn, so a short request does not wait for a long one, and a
    long one is split. It is as large as what waits, up to the limits, and starts at once when the thread is free; only
    after a batch that several requests shared does the next one wait a moment for their clients to come again.

    Args:
        run: Does the work for texts and returns a result for each, in order.
        max_items: Most texts in a batch.
        max_tokens: Most tokens in a batch, each text counted as long as the longest; a longer text stands alone.
        max_queue: Most texts that have a place.
        report: Called with each batch that was done.

    Attributes:
        executor: What does the work, one batch after the other: a thread, unless another is put here.
    """

    def __init__(
        self,
        run: Callable[[W, list[str]], Sequence[Any]],
        max_items: int,
        max_tokens: int,
        max_queue: int,
        report: Callable[[Batch[W]], None] = lambda batch: None,
    ) -> None:
        self._run, self._report = run, report
        self.max_items, self.max_tokens, self.max_queue = max_items, max_tokens, max_queue
        self.places = 0
        self._requests: deque[_Request[W]] = deque()
        self._arrived = asyncio.Event()
        self._last: Batch[W] = Batch()
        self._expected = 0
        self.executor: Executor = ThreadPoolExecutor(1, thread_name_prefix="model")

    @contextmanager
    def place(self, items: int) -> Iterator[None]:
        """Hold places for the texts of a request, from when it is accepted until it is answered.

        Raises:
            QueueFull: There are not enough.
        """
        if self.places + items > self.max_queue:
            raise QueueFull(items, self.places, self._wait_for(items))
        self.places += items
        try:
            yield
        finally:
            self.places -= items

    async def submit(self, work: W, texts: Sequence[str], sizes: Sequence[int]) -> list[Any]:
        """Wait for the results of texts, in order. Cancelled, the texts that are in no batch yet are dropped.

        Args:
            work: What to do with them.
            texts: At least one text.
            sizes: Tokens of each.
        """
        request = _Request(work, texts, sizes, asyncio.get_running_loop().create_future())
        self._requests.append(request)
        self._arrived.set()
        return await request.answer

    async def work(self) -> None:
        """Do batch after batch, until cancelled."""
        while True:
            await self._company()
            batch = self._next()
            if batch:
                await self._do(batch)

    def close(self) -> None:
        """Let the thread end."""
        self.executor.shutdown(wait=True)

    async def _company(self) -> None:
        while not self._requests:
            await self._arrival(None)
        if self._last.requests < 2:
            return
        patience = PATIENCE * min(self._last.seconds / self._last.items * min(self._expected, self.max_items), 1.0)
        until = time.monotonic() + 2 * patience
        with suppress(asyncio.TimeoutError):
            while self._may_grow() and (left := until - time.monotonic()) > 0:
                await self._arrival(min(patience, left))

    def _may_grow(self) -> bool:
        waiting = sum(len(request.texts) - request.taken for request in self._requests)
        return len(self._requests) < self._expected and waiting < self.max_items

    async def _arrival(self, seconds: float | None) -> None:
        self._arrived.clear()
        await asyncio.wait_for(self._arrived.wait(), seconds)

    def _next(self) -> list[tuple[_Request[W], int]]:
        """Take the texts of the next batch, each with its request and its index there."""
        batch: list[tuple[_Request[W], int]] = []
        others: list[_Request[W]] = []
        longest = 0
        while self._requests and len(batch) < self.max_items:
            request = self._requests.popleft()
            if request.answer.done():
                continue
            if batch and request.work != batch[0][0].work:
                others.append(request)
                continue
            longest = max(longest, request.sizes[request.taken])
            if batch and longest * (len(batch) + 1) > self.max_tokens:
                self._requests.appendleft(request)
                break
            batch.append((request, request.taken))
            request.taken += 1
            if request.taken < len(request.texts):
                self._requests.append(request)
        self._requests.extendleft(reversed(others))
        return batch

    async def _do(self, batch: list[tuple[_Request[W], int]]) -> None:
        began = time.monotonic()
        requests = {request for request, _ in batch}
        try:
            await self._give(batch)
        except Exception as error:
            if len(requests) == 1:
                requests.pop().fail(error)
            else:
                await self._apart(batch)
            return
        tokens = sum(request.sizes[index] for request, index in batch)
        self._last = Batch(batch[0][0].work, len(batch), tokens, time.monotonic() - began, len(requests))
        # Those who were answered may come again. Without those who wait, batches would stay as small as one was.
        self._expected = sum(request.answer.done() for request in requests) + len(self._requests)
        self._report(self._last)

    async def _give(self, batch: list[tuple[_Request[W], int]]) -> None:
        texts = [request.texts[index] for request, index in batch]
        loop = asyncio.get_running_loop()
        results = await loop.run_in_executor(self.executor, self._run, batch[0][0].work, texts)
        for (request, index), result in zip(batch, results, strict=True):
            request.give(index, result)

    async def _apart(self, batch: list[tuple[_Request[W], int]]) -> None:
        """Do a batch that failed once more, request by request, so that only the one at fault fails."""
        for request in dict.fromkeys(request for request, _ in batch):
            try:
                await self._give([(one, index) for one, index in batch if one is request])
            except Exception as error:
                request.fail(error)

    def _wait_for(self, items: int) -> int:
        """Return in how many whole seconds there may be places, from how long the last batch took."""
        too_many = self.places + items - self.max_queue
        each = self._last.seconds / self._last.items if self._last.items else 0.0
        return max(1, min(60, math.ceil(too_many * each)))
