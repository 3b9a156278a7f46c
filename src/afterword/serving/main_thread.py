"""The model's work in the main thread of a process, the event loop in another.

OpenMP's threads spin for a moment when a part of their work is done, so that the next part begins at once, unless
OpenMP counts more threads than there are cores. A model in a thread of its own makes it count one too many: each
parallel part then ends in sleep, and encoding takes a tenth longer (Gemma 3 270M, bfloat16, two cores).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from typing_extensions import ParamSpec

P = ParamSpec("P")
T = TypeVar("T")

LOOK_UP = 0.5
"""Seconds between two moments at which a system that lets nothing interrupt a waiting thread can deliver a signal."""


class HereExecutor(Executor):
    """Does what is submitted in the thread that calls `run_while`, one after the other."""

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    def submit(self, fn: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> Future[T]:
        """Put a call in the queue."""
        future: Future[T] = Future()
        self._work.put((future, partial(fn, *arguments, **options)))
        return future

    def run_while(self, other: Callable[[], T]) -> T:
        """Start `other` in a thread, work here until it has returned, and return or raise what it did."""
        outcome: Future[T] = Future()

        def run() -> None:
            try:
                outcome.set_result(other())
            except BaseException as error:
                outcome.set_exception(error)
            finally:
                self._work.put(None)

        thread = threading.Thread(target=run, name="event loop")
        thread.start()
        while (item := self._next()) is not None:
            _do(*item)
        thread.join()
        return outcome.result()

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        while True:
            try:
                return self._work.get(timeout=LOOK_UP)
            except Empty:
                continue


def _do(future: Future[Any], call: Callable[[], Any]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)
