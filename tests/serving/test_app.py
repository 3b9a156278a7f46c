"""The app in this process, with encoders that are slow, broken or strange; no socket between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import numpy as np
import pytest
from fastapi import FastAPI
from numpy.typing import NDArray

from afterword import ServeSettings, create_app
from afterword.encoder import Encoder
from afterword.errors import MissingPartError, SettingError
from afterword.teacher.llm import LLMTeacher
from tests.teachers import VowelTeacher, vowels
from tests.world import as_users_run_it, byte_ids, make_backbone


class Slow(VowelTeacher):
    """Waits at a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def encode(self, inputs: Sequence[str], **options: Any) -> NDArray[np.float32]:
        if self.asked:  # the first text is that of loading
            assert self.gate.wait(20)
        return super().encode(inputs, **options)


class Broken(VowelTeacher):
    """Returns NaN for a text with an x, infinity for one with a y, too few vectors for a z, and fails for a w."""

    def encode(self, inputs: Sequence[str], **options: Any) -> NDArray[np.float32]:
        vectors = super().encode(inputs, **options)
        for row, text in zip(vectors, inputs, strict=True):
            row[1] = np.nan if "x" in text else np.inf if "y" in text else row[1]
        if any("w" in text for text in inputs):
            raise RuntimeError("CUDA out of memory")
        return vectors[1:] if any("z" in text for text in inputs) else vectors


@asynccontextmanager
async def served(app: FastAPI, wait: bool = True) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a running app."""
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://here") as client,
    ):
        if wait:
            assert await asyncio.wait_for(app.state.service.loaded(), 20)
        yield client


def told(
    encoder: Encoder | Callable[[], Encoder],
    story: Callable[[httpx2.AsyncClient, FastAPI], Awaitable[Any]],
    wait: bool = True,
    **settings: Any,
) -> Any:
    """Run a story with a client of an app."""

    async def run() -> Any:
        app = create_app(encoder, ServeSettings(**settings))
        async with served(app, wait) as client:
            return await asyncio.wait_for(story(client, app), 20)

    return asyncio.run(run())


async def embed(client: httpx2.AsyncClient, *texts: str, **more: Any) -> httpx2.Response:
    return await client.post("/v1/embeddings", json={"input": list(texts), **more})


def test_any_encoder_is_served() -> None:
    async def story(client: httpx2.AsyncClient, app: FastAPI) -> None:
        answer = await embed(client, "aeei", "bcd", "uu", instruction="oo ")
        body = answer.json()
        assert body["model"] == "VowelTeacher"
        expected = vowels(["oo aeei", "oo bcd", "oo uu"])
        lengths = np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose([item["embedding"] for item in body["data"]], expected / lengths, atol=1e-6)
        assert body["usage"] == {"prompt_tokens": 0, "total_tokens": 0}  # it has no tokenizer
        zero = (await embed(client, "bcd")).json()["data"][0]["embedding"]
        assert zero == [0.0] * 5
        for path in ("/v1/decode", "/v1/latents"):
            answer = await client.post(path, json={"input": "a"})
            assert answer.status_code == 404
            assert "VowelTeacher only embeds: decode and latents need an Afterword model" in answer.text
        answer = await client.post("/v1/embeddings", json={"input": [1, 2, 3]})
        assert (answer.status_code, answer.json()["error"]["message"]) == (
            400,
            "this model takes no token ids: send text",
        )
        answer = await embed(client, "a", prompt_name="query")
        assert "no prompt is named 'query'; this model has: none" in answer.text

    told(VowelTeacher(), story)


def test_vectors_as_they_are() -> None:
    async def story(client: httpx2.AsyncClient, app: FastAPI) -> None:
        body = (await embed(client, "aaee")).json()
        assert body["data"][0]["embedding"] == [2.0, 2.0, 0.0, 0.0, 0.0]
        cut = (await embed(client, "aaee", dimensions=2)).json()["data"][0]["embedding"]
        assert cut == pytest.approx([0.5**0.5] * 2)

    told(VowelTeacher(), story, normalize=False)


def test_a_bare_llm_reads_ids_and_says_how_long_texts_may_be() -> None:
    teacher = LLMTeacher(make_backbone("llama"), prompt="", max_seq_length=20)

    async def story(client: httpx2.AsyncClient, app: FastAPI) -> None:
        body = (await embed(client, "abc", "é")).json()
        assert body["usage"]["prompt_tokens"] == 5
        ids = (await client.post("/v1/embeddings", json={"input": [byte_ids("abc"), byte_ids("é")]})).json()
        assert ids["data"] == body["data"]
        expected = teacher.encode(["abc", "é"])
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose([item["embedding"] for item in body["data"]], expected, atol=1e-5)
        assert (await embed(client, "a" * 15, instruction="say: ")).status_code == 200
        assert "item 0: it has 21 tokens" in (await embed(client, "a" * 16, instruction="say: ")).text

    told(teacher, story)


@pytest.mark.parametrize(("text", "what"), [("x", "NaN or infinity"), ("y", "NaN or infinity")])
@pytest.mark.parametrize("form", ["float", "base64"])
def test_a_vector_that_is_not_finite_is_an_error_that_names_the_item(text: str, what: str, form: str) -> None:  # C42
    async def story(client: httpx2.AsyncClient, app: FastAPI) -> None:
        answer = await embed(client, "a", "b", text, "c", encoding_format=form)
        error = answer.json()["error"]
        assert answer.status_code == 500
        assert (error["message"], error["type"]) == (f"item 2: the model's vector holds {what}", "server_error")
        assert (await embed(client, "a")).status_code == 200

    told(Broken(), story)


@pytest.mark.parametrize("text", ["z", "w"])
def test_an_encoder_that_fails_is_an_error_and_the_next_request_works(text: str) -> None:
    async def story(client: httpx2.AsyncClient, app: FastAPI) -> None:
        answers = await asyncio.gather(*(embed(client, one) for one in ("a", text, "e", text, "i")))
        assert [answer.status_code for answer in answers] == [200, 500, 200, 500, 200]
        assert set(answers[1].json()["error"]) == {"message", "type", "param", "code"}
        assert "CUDA" not in answers[1].text
        assert (await embed(client, "a")).status_code == 200
        assert app.state.service.batcher.places == 0

    told(Broken(), story)


def test_a_full_queue_is_429_with_a_time_to_come_back() -> None:
    slow = Slow()

    async def story(client: httpx2.AsyncClient, app: FastAPI) -> None:
        waiting = [asyncio.create_task(embed(client, "a", "e", "i")) for _ in range(3)]
        await asyncio.sleep(0.2)
        answer = await embed(client, "o", "u")
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["type"]) == (429, "queue_full", "rate_limit_error")
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        last = asyncio.create_task(embed(client, "o"))
        health = await client.get("/health")
        assert health.status_code == 200
        slow.gate.set()
        answers = [await one for one in [*waiting, last]]
        assert [answer.status_code for answer in answers] == [200] * 4
        assert [item["embedding"].index(1.0) for item in answers[0].json()["data"]] == [0, 1, 2]
        assert (await embed(client, "a", "a")).status_code == 200

    told(slow, story, max_queue=10, max_items=4)


def test_while_the_model_loads_it_lives_and_is_not_ready() -> None:
    gate = threading.Event()

    def load() -> Encoder:
        assert gate.wait(20)
        return VowelTeacher()

    async def story(client: httpx2.AsyncClient, app: FastAPI) -> None:
        assert (await client.get("/health")).status_code == 200
        for answer in (await client.get("/ready"), await embed(client, "a"), await client.get("/v1/models")):
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "loading")
            assert answer.headers["retry-after"] == "2"
        assert (await client.get("/metrics")).status_code == 200
        gate.set()
        await app.state.service.loaded()
        assert (await client.get("/ready")).status_code == 200
        assert (await embed(client, "a")).status_code == 200

    told(load, story, wait=False)


def test_why_it_could_not_load_is_kept() -> None:
    def load() -> Encoder:
        raise MissingPartError("there is no such folder")

    async def story(client: httpx2.AsyncClient, app: FastAPI) -> None:
        assert await app.state.service.loaded() is None
        assert isinstance(app.state.service.failure, MissingPartError)

    told(load, story, wait=False)


def test_a_client_that_leaves_is_forgotten() -> None:
    """Straight ASGI: what the server sees when a connection breaks."""
    slow = Slow()

    async def story(client: httpx2.AsyncClient, app: FastAPI) -> None:
        left, first = asyncio.Event(), True
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            nonlocal first
            if first:
                first = False
                return {"type": "http.request", "body": b'{"input": ["bye", "bye"]}', "more_body": False}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        holds = asyncio.create_task(embed(client, "a"))
        await asyncio.sleep(0.1)
        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/embeddings", "headers": headers, "query_string": b""}
        scope |= {"raw_path": b"/v1/embeddings", "root_path": "", "scheme": "http", "http_version": "1.1"}
        leaving = asyncio.create_task(app(scope, receive, send))
        await asyncio.sleep(0.1)
        assert app.state.service.batcher.places == 3
        left.set()
        await asyncio.wait_for(leaving, 5)
        assert app.state.service.batcher.places == 1
        slow.gate.set()
        assert (await holds).status_code == 200
        assert (await embed(client, "e")).status_code == 200
        assert "afterword_requests_gone_total 1.0" in (await client.get("/metrics")).text

    told(slow, story)
    assert ["bye", "bye"] not in slow.asked and all("bye" not in texts for texts in slow.asked)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_items": 0}, "max_items is 0: it must be at least 1"),
        ({"max_queue": 100}, "max_queue is 100, less than max_items 2048"),
        ({"truncation": "cut"}, "truncation is 'cut': it is 'refuse' or 'mark'"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], words: str) -> None:
    with as_users_run_it(), pytest.raises(SettingError, match=words):
        ServeSettings(**settings)


def test_too_many_tokens() -> None:
    teacher = LLMTeacher(make_backbone("llama"), prompt="")

    async def story(client: httpx2.AsyncClient, app: FastAPI) -> None:
        assert (await embed(client, "a" * 50, "b" * 50)).status_code == 200
        answer = await embed(client, "a" * 50, "b" * 51)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "too_many_tokens")
        assert "input has 101 tokens, the most of a request is 100" in answer.text

    told(teacher, story, max_tokens=100)
