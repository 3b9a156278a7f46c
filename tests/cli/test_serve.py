"""`afterword serve`: what it says, and what it refuses before it serves."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from afterword.serving.served import short_name
from afterword.serving.server import is_public
from tests.serving.processes import ServerProcess


def test_a_sentence_transformer_by_its_folder(teacher_folder: Path) -> None:
    """Its own prompts and its own length; it cannot decode."""
    teacher = SentenceTransformer(str(teacher_folder), device="cpu")
    texts = ["What is it?", "é ☃"]
    with ServerProcess(teacher_folder, "--no-normalize", "--name", "mine") as server:
        answer = server.client().embeddings.create(model="mine", input=texts)
        np.testing.assert_allclose([item.embedding for item in answer.data], teacher.encode(texts), atol=1e-5)
        ids = teacher.tokenizer(texts)["input_ids"]
        assert server.client().embeddings.create(model="mine", input=ids).data == answer.data
        assert answer.usage.prompt_tokens == sum(len(text.encode()) for text in texts)
        assert server.post("/v1/decode", {"input": "a"}).status_code == 404
        long = server.post("/v1/embeddings", {"input": "a" * 64}).json()["error"]["message"]
        assert "item 0: it has 64 tokens with its prompt, the model reads 63" in long
        assert server.said == [f"loading {teacher_folder} for {server.url}/v1", "ready: mine"]


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    process = ServerProcess(tmp_path / "nowhere")
    assert process.wait() == 3
    assert process.complaints().startswith("afterword: no folder")


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = ServerProcess(tmp_path, "--port", str(port))
        assert process.wait() == 2
    assert f"afterword: cannot listen at 127.0.0.1, port {port}" in process.complaints()


@pytest.mark.parametrize(
    ("host", "public"),
    [("127.0.0.1", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("::", True), ("10.0.0.3", True)],
)
def test_what_other_machines_can_reach(host: str, public: bool) -> None:
    assert is_public(host) is public


def test_open_to_everybody_is_said(teacher_folder: Path) -> None:
    for keys, said in ((None, True), ("secret-key", False)):
        process = ServerProcess(teacher_folder, "--host", "0.0.0.0", keys=keys).opened()
        assert process.url.startswith("http://0.0.0.0:")
        process.stop()
        assert ("0.0.0.0 can be reached from other machines and there are no API keys" in process.complaints()) is said
        assert "secret" not in process.complaints() + "".join(process.said)


def test_names_for_clients(tmp_path: Path) -> None:
    (tmp_path / "first" / "training" / "model").mkdir(parents=True)
    assert short_name(str(tmp_path / "first" / "training" / "model")) == "first"
    assert short_name(f"hf:{tmp_path / 'first'}") == "hf:first"
    for name in ("hf:demo", "teacher:demo", "org/model", "org/model@bfloat16"):
        assert short_name(name) == name
