"""What the real server refuses, and that it always says so in the form of OpenAI."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx2
import openai
import pytest

from tests.serving.conftest import KEY
from tests.serving.processes import ServerProcess


def error_of(answer: httpx2.Response) -> dict[str, Any]:
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert answer.headers["content-type"] == "application/json"
    return body["error"]


@pytest.mark.parametrize(
    ("body", "words", "param"),
    [
        ({}, "input: Field required", "input"),
        (
            {"input": 3},
            "input is a number: it must be a text, a list of texts, token ids, or lists of token ids",
            "input",
        ),
        ({"input": None}, "input is null", "input"),
        ({"input": {"text": "a"}}, "input is an object", "input"),
        ({"input": ["a", 3]}, "item 1 is a number and item 0 is a text: all items must be of one kind", "input"),
        ({"input": ["a", None]}, "item 1 is null and item 0 is a text", "input"),
        ({"input": [3, "a"]}, "item 1 is a text and item 0 is a number", "input"),
        ({"input": [True]}, "item 0 is true or false: it must be a text or token ids", "input"),
        ({"input": [1.5]}, "item 0 is a fraction: it must be a text or token ids", "input"),
        ({"input": [[65], [66, 1.5]]}, "item 1 holds a fraction among its token ids", "input"),
        ({"input": [[65], [None]]}, "item 1 holds null among its token ids", "input"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format: Input should be 'float' or 'base64'", None),
        ({"input": "a", "dimensions": 0}, "dimensions: Input should be greater than or equal to 1", "dimensions"),
        ({"input": "a", "dimensions": "4"}, "dimensions: Input should be a valid integer", "dimensions"),
        ({"input": "a", "dimension": 4}, "there is no field 'dimension' here", "dimension"),
        (["a"], "the body must be a JSON object", None),
    ],
)
def test_wrong_bodies(body: Any, words: str, param: str | None, server: ServerProcess) -> None:
    answer = server.post("/v1/embeddings", body)
    error = error_of(answer)
    assert answer.status_code == 400
    assert words in error["message"]
    assert error["type"] == "invalid_request_error"
    assert param is None or error["param"] == param


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b'{"input": "a"', b"\xff\xfe", b'{"input": NaN}', b"[" * 100_000, b'{"input": 1' + b"0" * 9000 + b"}"],
    ids=["nothing", "brace", "cut", "bytes", "nan", "deep", "huge number"],
)
def test_what_is_no_json(content: bytes, server: ServerProcess) -> None:
    headers = {"Content-Type": "application/json"}
    answer = httpx2.post(f"{server.url}/v1/embeddings", content=content, headers=headers)
    assert answer.status_code == 400
    assert error_of(answer)["message"]


def test_a_form_is_no_json(server: ServerProcess) -> None:
    answer = httpx2.post(f"{server.url}/v1/embeddings", data={"input": "a"})
    assert answer.status_code == 400
    assert "sent as Content-Type: application/json" in error_of(answer)["message"]


@pytest.mark.parametrize("place", ["input", "prompt_name", "model", "instruction", "\ud800"])
def test_a_lone_surrogate_is_refused_wherever_it_stands(place: str, server: ServerProcess) -> None:
    content = json.dumps({"input": "a", place: "\ud800"}).encode()
    headers = {"Content-Type": "application/json"}
    answer = httpx2.post(f"{server.url}/v1/embeddings", content=content, headers=headers)
    assert answer.status_code in (400, 404)
    assert error_of(answer)["message"]


def test_unknown_paths_and_methods(server: ServerProcess) -> None:
    answer = server.post("/v1/embedding", {"input": "a"})
    assert (answer.status_code, error_of(answer)["code"]) == (404, "not_found")
    assert "there is no POST /v1/embedding" in error_of(answer)["message"]
    assert server.post("/v1/embeddings/", {"input": "a"}).status_code == 404
    answer = server.get("/v1/embeddings")
    assert (answer.status_code, error_of(answer)["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


def test_too_many_items(closed_server: ServerProcess, server: ServerProcess) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        closed_server.client(KEY).embeddings.create(model="tiny", input=["a"] * 41)
    assert "input has 41 items, the most is 40" in refused.value.message
    answer = server.post("/v1/embeddings", {"input": ["a"] * 2049})
    assert error_of(answer)["message"] == "input has 2049 items, the most is 2048"
    assert len(server.post("/v1/embeddings", {"input": ["a"] * 2048}).json()["data"]) == 2048


@pytest.mark.parametrize("size", [20_001, 300_000, 3_000_000])
def test_a_body_that_is_too_large(size: int, closed_server: ServerProcess) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        closed_server.client(KEY).embeddings.create(model="tiny", input="a" * size)
    assert refused.value.status_code == 413
    assert "the body has more than 20000 bytes" in refused.value.message


def test_a_body_that_does_not_say_how_large_it_is(closed_server: ServerProcess) -> None:
    def pieces() -> Any:
        yield b'{"input": "'
        for _ in range(60):
            yield b"a" * 1000
        yield b'"}'

    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}".encode()}
    answer = httpx2.post(f"{closed_server.url}/v1/embeddings", content=pieces(), headers=headers)
    assert answer.status_code == 413
    assert error_of(answer)["code"] == "too_large"


def test_only_those_with_a_key_get_in(closed_server: ServerProcess) -> None:
    assert closed_server.client(KEY).embeddings.create(model="tiny", input="a").data
    for key in ("wrong", KEY[:-1], KEY + "x", KEY.upper(), "none"):
        with pytest.raises(openai.AuthenticationError) as refused:
            closed_server.client(key).embeddings.create(model="tiny", input="a")
        assert refused.value.code == "invalid_api_key"
        assert key not in refused.value.message


@pytest.mark.parametrize(
    "path", ["/v1/embeddings", "/v1/decode", "/v1/models", "/metrics", "/openapi.json", "/nothing"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD"])
def test_nothing_is_told_without_a_key(path: str, method: str, closed_server: ServerProcess) -> None:
    answers = [
        httpx2.request(method, f"{closed_server.url}{path}", headers=headers)
        for headers in (
            {},
            {"Authorization": KEY.encode()},
            {"Authorization": b"Basic " + KEY.encode()},
            {"api-key": "x"},
        )
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert answers[0].headers["www-authenticate"] == "Bearer"


def test_those_who_look_after_it_need_no_key(closed_server: ServerProcess) -> None:
    for path in ("/health", "/ready"):
        answer = closed_server.get(path)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_what_is_no_http_does_no_harm(server: ServerProcess) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    for content in (
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/9\r\n\r\n",
        b"POST /v1/embeddings HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(content)
    assert server.get("/health").status_code == 200


def test_metrics(server: ServerProcess) -> None:
    def value(name: str) -> float:
        text = server.get("/metrics").text
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))

    texts, tokens = 'afterword_texts_total{task="embed"}', 'afterword_tokens_total{task="embed"}'
    done = 'afterword_requests_total{route="/v1/embeddings",status="200"}'
    before = [value(name) for name in (texts, tokens, done)]
    server.client().embeddings.create(model="tiny", input=["four", "seven77"])
    assert [value(name) for name in (texts, tokens, done)] == [before[0] + 2, before[1] + 11, before[2] + 1]
    assert value('afterword_requests_total{route="other",status="404"}') >= 0
    assert value("afterword_queue_texts") == 0
    assert value("process_resident_memory_bytes") > 1e7
