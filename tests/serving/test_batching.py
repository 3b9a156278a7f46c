"""Batches: what goes into one, in which order, and what happens when something fails or leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from afterword.serving import batching
from afterword.serving.batching import Batch, Batcher, QueueFull


class Upper:
    """Turns texts into capitals, and keeps which came together; waits at the gate where there is one."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.asked: list[list[str]] = []
        self.gate = gate

    def __call__(self, work: str, texts: list[str]) -> Sequence[str]:
        self.asked.append(texts)
        if self.gate is not None:
            assert self.gate.wait(10)
        if "bad" in texts:
            raise ValueError("a bad text")
        return [f"{work}:{text.upper()}" for text in texts]


def together(
    upper: Callable[[str, list[str]], Sequence[str]],
    story: Callable[[Batcher[str]], Awaitable[Any]],
    items: int = 4,
    tokens: int = 100,
    queue: int = 50,
) -> Any:
    """Run a story with a batcher that works."""
    batches: list[Batch[str]] = []

    async def run() -> Any:
        batcher = Batcher(upper, items, tokens, queue, batches.append)
        working = asyncio.create_task(batcher.work())
        try:
            return await asyncio.wait_for(story(batcher), 20)
        finally:
            working.cancel()
            batcher.close()

    return asyncio.run(run())


async def behind_a_first(batcher: Batcher[str], gate: threading.Event, *asked: tuple[str, list[str], list[int]]) -> Any:
    """Hold the thread with a first request, ask the others, then let all go."""
    first = asyncio.create_task(batcher.submit("w", ["first"], [5]))
    await asyncio.sleep(0.05)
    others = [asyncio.create_task(batcher.submit(*one)) for one in asked]
    await asyncio.sleep(0)
    gate.set()
    await first
    return await asyncio.gather(*others, return_exceptions=True)


def test_requests_share_a_batch_and_each_gets_its_own() -> None:
    upper = Upper(gate := threading.Event())
    found = together(upper, lambda b: behind_a_first(b, gate, ("w", ["a"], [1]), ("w", ["b", "c"], [1, 1])))
    assert found == [["w:A"], ["w:B", "w:C"]]
    assert upper.asked == [["first"], ["a", "b", "c"]]


def test_every_request_in_turn_so_that_a_short_one_does_not_wait_for_a_long_one() -> None:
    upper = Upper(gate := threading.Event())
    long = [f"l{i}" for i in range(7)]
    found = together(upper, lambda b: behind_a_first(b, gate, ("w", long, [1] * 7), ("w", ["s"], [1])))
    assert found == [[f"w:L{i}" for i in range(7)], ["w:S"]]
    assert upper.asked == [["first"], ["l0", "s", "l1", "l2"], ["l3", "l4", "l5", "l6"]]


def test_a_batch_counts_each_text_as_long_as_its_longest() -> None:
    upper = Upper(gate := threading.Event())
    texts, sizes = ["a", "b", "c", "d", "e"], [10, 10, 40, 30, 200]
    found = together(upper, lambda b: behind_a_first(b, gate, ("w", texts, sizes)), items=10)
    assert found == [[f"w:{text.upper()}" for text in texts]]
    assert upper.asked == [["first"], ["a", "b"], ["c", "d"], ["e"]]  # 3 · 40 and 3 · 200 are more than 100


def test_other_work_has_a_batch_of_its_own_in_its_turn() -> None:
    upper = Upper(gate := threading.Event())
    asked = [("w", ["a"], [1]), ("v", ["b"], [1]), ("w", ["c"], [1])]
    found = together(upper, lambda b: behind_a_first(b, gate, *asked))
    assert found == [["w:A"], ["v:B"], ["w:C"]]
    assert upper.asked == [["first"], ["a", "c"], ["b"]]


def test_only_the_request_at_fault_fails() -> None:
    upper = Upper(gate := threading.Event())
    found = together(
        upper, lambda b: behind_a_first(b, gate, ("w", ["a"], [1]), ("w", ["bad"], [1]), ("w", ["c"], [1]))
    )
    assert (found[0], found[2]) == (["w:A"], ["w:C"])
    assert isinstance(found[1], ValueError)


def test_a_run_that_returns_too_little_is_an_error_and_no_hang() -> None:
    async def story(batcher: Batcher[str]) -> Any:
        with pytest.raises(ValueError, match="zip"):
            await batcher.submit("w", ["a", "b"], [1, 1])

    together(lambda work, texts: texts[:1], story)


def test_those_who_left_are_dropped() -> None:
    upper = Upper(gate := threading.Event())

    async def story(batcher: Batcher[str]) -> Any:
        first = asyncio.create_task(batcher.submit("w", ["first"], [1]))
        leaves = asyncio.create_task(batcher.submit("w", ["x", "y"], [1, 1]))
        stays = asyncio.create_task(batcher.submit("w", ["a"], [1]))
        await asyncio.sleep(0.05)
        leaves.cancel()
        await asyncio.sleep(0)
        gate.set()
        return await first, await stays

    assert together(upper, story, items=1) == (["w:FIRST"], ["w:A"])
    assert upper.asked == [["first"], ["a"]]


def test_who_leaves_while_the_model_works_does_not_disturb_the_others() -> None:
    upper = Upper(gate := threading.Event())

    async def story(batcher: Batcher[str]) -> Any:
        leaves = asyncio.create_task(batcher.submit("w", ["x"], [1]))
        await asyncio.sleep(0.05)
        stays = asyncio.create_task(batcher.submit("w", ["a"], [1]))
        leaves.cancel()
        gate.set()
        return await stays

    assert together(upper, story) == ["w:A"]


def test_places_are_bounded_and_come_back() -> None:
    async def story(batcher: Batcher[str]) -> None:
        with batcher.place(6):
            with batcher.place(4):
                assert batcher.places == 10
            with pytest.raises(QueueFull, match="6 texts are waiting, there is no place for 5 more: try again in 1 s"):
                batcher.place(5).__enter__()
            assert batcher.places == 6
        assert batcher.places == 0
        with pytest.raises(RuntimeError), batcher.place(10):
            raise RuntimeError
        assert batcher.places == 0

    together(Upper(), story, queue=10)


def test_many_at_once_all_get_their_own() -> None:
    async def one(batcher: Batcher[str], i: int) -> None:
        await asyncio.sleep(0.0003 * (i % 11))
        texts = [f"t{i}-{j}" for j in range(1 + i % 6)]
        assert await batcher.submit("wv"[i % 2], texts, [1 + i % 30] * len(texts)) == [
            f"{'wv'[i % 2]}:{text.upper()}" for text in texts
        ]

    async def story(batcher: Batcher[str]) -> None:
        await asyncio.gather(*(one(batcher, i) for i in range(300)))

    upper = Upper()
    together(upper, story, queue=2000)
    assert max(map(len, upper.asked)) == 4


def test_nothing_runs_while_nothing_is_asked() -> None:
    """No polling: the loop sleeps until a request comes."""

    async def story(batcher: Batcher[str]) -> int:
        await batcher.submit("w", ["a"], [1])
        loop: Any = asyncio.get_running_loop()
        steps, once = 0, loop._run_once

        def counted() -> None:
            nonlocal steps
            steps += 1
            once()

        loop._run_once = counted
        await asyncio.sleep(0.3)
        return steps

    assert together(Upper(), story) <= 3


def test_clients_that_come_again_share_a_batch_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were only the clients of the last batch waited for, one that was small would keep all others small."""
    monkeypatch.setattr(batching, "PATIENCE", 1e9)
    upper = Upper(gate := threading.Event())

    async def story(batcher: Batcher[str]) -> Any:
        async def client(number: int) -> None:
            while len(upper.asked) < 4:
                await batcher.submit("w", [str(number)], [1])
                await asyncio.sleep(0.002)

        early = [asyncio.create_task(client(number)) for number in range(3)]
        await asyncio.sleep(0.05)  # a batch of three is at the gate when the others come
        late = [asyncio.create_task(client(number)) for number in range(3, 8)]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*early, *late)

    together(upper, story, items=16)
    assert [len(texts) for texts in upper.asked] == [3, 8, 8, 8]


def test_requests_that_fill_the_batches_wait_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []
    arrival = Batcher._arrival

    async def watched(self: Batcher[str], seconds: float | None) -> None:
        waits.append(seconds)
        await arrival(self, seconds)

    monkeypatch.setattr(Batcher, "_arrival", watched)

    async def story(batcher: Batcher[str]) -> Any:
        await asyncio.gather(*(batcher.submit("w", [f"t{i}" for i in range(12)], [1] * 12) for _ in range(2)))

    upper = Upper()
    together(upper, story)
    assert [len(texts) for texts in upper.asked] == [4] * 6
    assert [seconds for seconds in waits if seconds is not None] == []
