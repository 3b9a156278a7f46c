"""Many clients at once, and the end of a server under load. `benchmarks/serving.py` does the same for longer."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from pathlib import Path

import httpx2
import numpy as np

from afterword.model.model import Afterword
from tests.serving.processes import ServerProcess

CLIENTS = 40
TEXTS = [f"text {i}: " + "and more " * (i * 5 % 12) for i in range(60)]


class Crowd:
    """Clients that ask and ask again; every answer is compared with the vectors of the model here.

    Attributes:
        seen: How often each kind of answer came: a status, or the name of a broken connection.
        slowest: Longest time of `/health` in seconds.
    """

    def __init__(self, url: str, model: Afterword) -> None:
        self.url = url
        vectors = model.encode(TEXTS).astype(np.float64)
        self.expected = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        self.seen: Counter[str] = Counter()
        self.slowest = 0.0
        self.over = False

    async def ask(self, client: httpx2.AsyncClient, draw: random.Random) -> None:
        while not self.over:
            chosen = [draw.randrange(len(TEXTS)) for _ in range(draw.choice((1, 1, 2, 5)))]
            try:
                answer = await client.post("/v1/embeddings", json={"input": [TEXTS[i] for i in chosen]})
            except (httpx2.ConnectError, httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError) as error:
                self.seen[type(error).__name__] += 1
                return
            self.seen[str(answer.status_code)] += 1
            if answer.status_code == 200:
                found = [item["embedding"] for item in answer.json()["data"]]
                np.testing.assert_allclose(found, self.expected[chosen], atol=1e-5)

    async def look(self, client: httpx2.AsyncClient) -> None:
        while not self.over:
            began = time.perf_counter()
            assert (await client.get("/health")).status_code == 200
            self.slowest = max(self.slowest, time.perf_counter() - began)
            self.seen["health"] += 1
            await asyncio.sleep(0.1)

    async def come(
        self, seconds: float, then: signal.Signals | None = None, process: ServerProcess | None = None
    ) -> None:
        """Ask for a while; then stop asking, or send the server a signal and go on until it has ended."""
        limits = httpx2.Limits(max_connections=CLIENTS + 1)
        async with httpx2.AsyncClient(base_url=self.url, limits=limits, timeout=60) as client:
            tasks = [asyncio.create_task(self.ask(client, random.Random(i))) for i in range(CLIENTS)]
            if process is None:
                tasks.append(asyncio.create_task(self.look(client)))
            await asyncio.sleep(seconds)
            if process is not None and then is not None:
                process.process.send_signal(then)
            else:
                self.over = True
            await asyncio.gather(*tasks)


def test_no_answer_is_lost_or_swapped(server: ServerProcess, model: Afterword) -> None:
    crowd = Crowd(server.url, model)
    asyncio.run(crowd.come(3))
    assert set(crowd.seen) == {"200", "health"}
    assert crowd.seen["200"] > CLIENTS
    assert crowd.seen["health"] > 3


def test_stopped_under_load_it_answers_what_it_accepted(model_folder: Path, model: Afterword) -> None:
    with ServerProcess(model_folder) as process:
        crowd = Crowd(process.url, model)
        asyncio.run(crowd.come(1, signal.SIGTERM, process))
        assert process.wait() == 0
        answered = crowd.seen["200"]
        assert answered > 0
        assert set(crowd.seen) <= {"200", "ConnectError", "RemoteProtocolError", "ReadError", "WriteError"}
        assert process.said[-1] == f"stopped: {answered} requests accepted, {answered} answered"
