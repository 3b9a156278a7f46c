"""The server under load, and against offline encoding.

    python benchmarks/serving.py load [MODEL] [--clients 200] [--seconds 60]
    python benchmarks/serving.py throughput MODEL [--clients 32] [--texts 640] [--tokens 40]

MODEL is what `afterword serve` takes; without one, `load` makes a tiny random model. The server is the real command in
a process of its own, on the loopback address. `load` compares every answer with the offline vector, looks at `/health`
ten times a second and at the server's memory, and at the end sends SIGTERM while all clients are still asking.
`throughput` encodes the same texts offline, by one call of `encode`, and through the server, where each client has one
request with one text on its way; offline again, so that a machine that slows down is seen.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from afterword.bench.report import markdown_table
from afterword.encoder import Encoder
from afterword.flow.open_encoder import open_encoder

ROOT = Path(__file__).parents[1]
BROKEN = (httpx2.ConnectError, httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)


class Server:
    """`afterword serve` in a process of its own."""

    def __init__(self, model: str, *flags: str) -> None:
        command = [sys.executable, "-m", "afterword", "serve", model, "--port", "0", "--name", "served", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip().rpartition(" ")[2].removesuffix("/v1")
        if not self.process.stdout.readline().startswith("ready"):
            sys.exit("the server did not start")

    def stop(self) -> tuple[int, int]:
        """Wait for the end, and return how many requests it says it accepted and answered."""
        out, _ = self.process.communicate(timeout=600)
        accepted, answered = map(int, re.findall(r"\d+", out.splitlines()[-1]))
        return accepted, answered


class Crowd:
    """Clients that ask again and again.

    Attributes:
        seen: How often each kind of answer came.
        worst: Largest difference of any number from the offline vector.
    """

    def __init__(self, url: str, texts: list[str], vectors: np.ndarray) -> None:
        self.url, self.texts = url, texts
        self.vectors = vectors / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        self.seen: Counter[str] = Counter()
        self.worst = 0.0
        self.over = False

    async def ask(self, client: httpx2.AsyncClient, draw: random.Random) -> None:
        """Ask until it is over or the server is gone."""
        while not self.over:
            chosen = [draw.randrange(len(self.texts)) for _ in range(draw.choice((1, 1, 1, 2, 4, 16)))]
            try:
                self.check(await post(client, [self.texts[i] for i in chosen]), chosen)
            except BROKEN as error:
                self.seen[type(error).__name__] += 1
                return

    def check(self, answer: httpx2.Response, chosen: list[int]) -> None:
        """Compare an answer with the offline vectors."""
        self.seen[str(answer.status_code)] += 1
        if answer.status_code == 200:
            self.worst = max(self.worst, float(np.abs(vectors_of(answer) - self.vectors[chosen]).max()))


class Watch:
    """Looks at health and memory of a server, from a process of its own.

    Attributes:
        health: Seconds of each look at `/health`.
        memory: MB of the server at each look.
    """

    def __init__(self, url: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name("serving_watch.py")), url]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stop(self) -> None:
        """End it and take what it has seen."""
        out, _ = self.process.communicate("\n", timeout=120)
        seen = json.loads(out)
        self.health, self.memory = seen["health"], seen["memory"]

    def row(self) -> dict[str, object]:
        """Return what a table says of it."""
        later = self.memory[len(self.memory) // 4 :]
        return {
            "looks at health": len(self.health),
            "health, ms (median, 99 %, largest)": milliseconds(self.health),
            "memory, MB (after a quarter of the time, largest, last)": [later[0], max(later), later[-1]],
        }


async def post(client: httpx2.AsyncClient, texts: list[str]) -> httpx2.Response:
    """Ask for the vectors of texts."""
    return await client.post("/v1/embeddings", json={"input": texts, "encoding_format": "base64"})


def vectors_of(answer: httpx2.Response) -> np.ndarray:
    """Return the vectors of an answer, in the order of their indices."""
    items = sorted(answer.json()["data"], key=lambda item: item["index"])
    return np.stack([np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in items])


def connect(url: str, clients: int) -> httpx2.AsyncClient:
    """Return a client with one connection for each of so many, and two more."""
    limits = httpx2.Limits(max_connections=clients + 2, max_keepalive_connections=clients + 2)
    return httpx2.AsyncClient(base_url=url, limits=limits, timeout=600)


def load(model: str, clients: int, seconds: float, dtype: str) -> dict[str, object]:
    """Let a crowd ask for a while, then stop the server under it."""
    texts = [f"text {i}: " + "and more words " * (i * 7 % 12) for i in range(400)]
    vectors = np.asarray(open_encoder(model, dtype=dtype).encode(texts, batch_size=32))
    server = Server(model, "--dtype", dtype)
    crowd = Crowd(server.url, texts, vectors)

    async def run() -> None:
        async with connect(server.url, clients) as client:
            watching = Watch(server.url)
            tasks = [asyncio.create_task(crowd.ask(client, random.Random(i))) for i in range(clients)]
            await asyncio.sleep(seconds)
            crowd.over = True
            await asyncio.gather(*tasks)
            watching.stop()
            found.update({"answers": dict(crowd.seen), **watching.row()})
            crowd.over = False
            tasks = [asyncio.create_task(crowd.ask(client, random.Random(i))) for i in range(clients)]
            await asyncio.sleep(2)
            server.process.send_signal(signal.SIGTERM)
            await asyncio.gather(*tasks)
            found["accepted besides"] = len(watching.health) + len(watching.memory)

    found: dict[str, Any] = {"clients": clients, "seconds": seconds}
    asyncio.run(run())
    accepted, answered = server.stop()
    besides = found.pop("accepted besides")
    return {
        **found,
        "largest difference": f"{crowd.worst:.1e}",
        "stopped under load: accepted, answered, received": [accepted, answered, crowd.seen["200"] + besides],
    }


def throughput(model: str, clients: int, count: int, tokens: int, dtype: str) -> dict[str, object]:
    """Encode the same texts offline and through the server."""
    encoder = open_encoder(model, dtype=dtype)
    texts = make_texts(encoder, count, tokens)
    encoder.encode(texts[:32], batch_size=32)
    offline = [timed_offline(encoder, texts)]
    server = Server(model, "--dtype", dtype)
    crowd = Crowd(server.url, texts, offline[0][1])
    waiting = iter(range(count))

    async def one(client: httpx2.AsyncClient) -> None:
        for i in waiting:
            crowd.check(await post(client, [texts[i]]), [i])

    async def run() -> tuple[float, Watch]:
        async with connect(server.url, clients) as client:
            await asyncio.gather(*(post(client, [texts[i]]) for i in range(clients)))
            watching = Watch(server.url)
            began = time.perf_counter()
            await asyncio.gather(*(one(client) for _ in range(clients)))
            spent = time.perf_counter() - began
            watching.stop()
            return spent, watching

    online, watching = asyncio.run(run())
    batches = texts_a_batch(server.url)
    server.process.send_signal(signal.SIGTERM)
    server.stop()
    offline.append(timed_offline(encoder, texts))
    rates = [count / seconds for seconds, _ in offline]
    return {
        "clients": clients,
        "texts": count,
        "tokens of a text": tokens,
        "offline, texts/s (before, after)": [round(rate, 2) for rate in rates],
        "server, texts/s": round(count / online, 2),
        "server : offline": round(count / online / (sum(rates) / 2), 3),
        "texts a batch": batches,
        "answers": dict(crowd.seen),
        "largest difference": f"{crowd.worst:.1e}",
        **watching.row(),
    }


def texts_a_batch(url: str) -> float:
    """Ask a server how many texts shared a batch, on average."""
    lines = httpx2.get(f"{url}/metrics").text.splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if line.startswith("afterword_batch_texts_"))
    return round(float(found["afterword_batch_texts_sum"]) / float(found["afterword_batch_texts_count"]), 1)


def timed_offline(encoder: Encoder, texts: list[str]) -> tuple[float, np.ndarray]:
    """Return how long one call of `encode` takes, and its vectors."""
    began = time.perf_counter()
    vectors = np.asarray(encoder.encode(texts, batch_size=32))
    return time.perf_counter() - began, vectors


def make_texts(encoder: Encoder, count: int, tokens: int) -> list[str]:
    """Cut texts of about so many tokens from the demo's."""
    from afterword.bench.work import cut_texts

    return cut_texts(encoder.backbone.text, count, tokens, seed=0)  # type: ignore[attr-defined]


def milliseconds(seconds: list[float]) -> list[float]:
    """Return median, 99th percentile and maximum in milliseconds."""
    return [round(1000 * float(np.percentile(seconds, share)), 1) for share in (50, 99, 100)]


def tiny_model(folder: Path) -> str:
    """Save a tiny random model, from what the tests have."""
    sys.path.insert(0, str(ROOT))
    from tests.world import make_model, make_tokenizer

    from afterword import Afterword, ModelSettings

    make_model("llama").save_pretrained(folder / "llm")
    make_tokenizer().save_pretrained(folder / "llm")
    model = Afterword.from_backbone(str(folder / "llm"), settings=ModelSettings(n_compression=4))
    model.save_pretrained(folder / "model")
    return str(folder / "model")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("load", "throughput"))
    parser.add_argument("model", nargs="?")
    parser.add_argument("--clients", type=int)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--texts", type=int, default=640)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="float32")
    asked = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with tempfile.TemporaryDirectory() as folder:
        model = asked.model or tiny_model(Path(folder))
        if asked.what == "load":
            found = load(model, asked.clients or 200, asked.seconds, asked.dtype)
        else:
            found = throughput(model, asked.clients or 32, asked.texts, asked.tokens, asked.dtype)
    print(markdown_table([{"measure": name, "value": json.dumps(value)} for name, value in found.items()]))


if __name__ == "__main__":
    main()
