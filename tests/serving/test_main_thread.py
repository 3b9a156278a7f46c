"""The executor that works in the thread of its caller."""

from __future__ import annotations

import asyncio
import threading

import pytest

from afterword.serving.main_thread import HereExecutor


def test_work_is_done_here_and_the_event_loop_is_elsewhere() -> None:
    here = HereExecutor()
    seen: list[threading.Thread] = []

    def work(number: int, *, plus: int) -> int:
        seen.append(threading.current_thread())
        return number + plus

    async def ask() -> list[int]:
        seen.append(threading.current_thread())
        return [await asyncio.get_running_loop().run_in_executor(here, lambda n=n: work(n, plus=10)) for n in range(3)]

    assert here.run_while(lambda: asyncio.run(ask())) == [10, 11, 12]
    assert seen[0] is not threading.current_thread()
    assert seen[1:] == [threading.current_thread()] * 3


def test_an_error_reaches_who_asked_and_the_next_is_done() -> None:
    here = HereExecutor()

    def ask() -> int:
        with pytest.raises(ZeroDivisionError):
            here.submit(lambda: 1 // 0).result(timeout=10)
        return here.submit(pow, 2, 5).result(timeout=10)

    assert here.run_while(ask) == 32


def test_what_was_cancelled_is_not_done() -> None:
    here, done = HereExecutor(), []

    def ask() -> None:
        begun, gate = threading.Event(), threading.Event()
        first = here.submit(lambda: (begun.set(), gate.wait(10)))
        begun.wait(10)
        assert here.submit(done.append, 1).cancel()
        gate.set()
        first.result(timeout=10)

    here.run_while(ask)
    assert done == []


def test_an_error_of_the_other_thread_is_raised_here() -> None:
    def fail() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit, match="3"):
        HereExecutor().run_while(fail)
