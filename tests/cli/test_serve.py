"""`afterword serve`: what it says, and what it refuses before it serves."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from afterword.cli.main import main
from afterword.serving.keys import VARIABLE
from afterword.serving.served import short_name
from afterword.serving.server import is_public
from tests.serving.processes import ServerProcess


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def failed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Run the command, which ends before it is ready, and return its exit code and what it says on stderr."""
    with pytest.raises(SystemExit) as left:
        main(["serve", *map(str, arguments)])
    return int(left.value.code or 0), capsys.readouterr().err


def test_a_sentence_transformer_by_its_folder(teacher_folder: Path) -> None:
    """Its own length, its own ids; it cannot decode. Ctrl-C stops it as SIGTERM does."""
    teacher = SentenceTransformer(str(teacher_folder), device="cpu")
    texts = ["What is it?", "é ☃"]
    with ServerProcess(teacher_folder, "--no-normalize", "--name", "mine") as server:
        client = server.client()
        answer = client.embeddings.create(model="mine", input=texts)
        np.testing.assert_allclose([item.embedding for item in answer.data], teacher.encode(texts), atol=1e-5)
        ids = teacher.tokenizer(texts)["input_ids"]
        assert client.embeddings.create(model="mine", input=ids).data == answer.data
        assert answer.usage.prompt_tokens == sum(len(text.encode()) for text in texts)
        assert server.post("/v1/decode", {"input": "a"}).status_code == 404
        assert client.embeddings.create(model="mine", input="a" * 63).usage.prompt_tokens == 63
        long = server.post("/v1/embeddings", {"input": "a" * 64}).json()["error"]["message"]
        assert "item 0: it has 64 tokens with its prompt, the model reads 63" in long
        assert server.said == [f"loading {teacher_folder} for {server.url}/v1", "ready: mine"]
        assert server.stop(signal.SIGINT) == 0
    assert server.said[-1] == "stopped: 5 requests accepted, 5 answered"


def test_a_model_that_is_not_there_open_to_everybody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = failed(capsys, tmp_path / "nowhere", "--host", "0.0.0.0", "--port", "0")
    assert code == 3
    warning, error = err.splitlines()
    assert warning.startswith("warning: 0.0.0.0 can be reached from other machines and there are no API keys")
    assert error.startswith(f"afterword: no folder {tmp_path / 'nowhere'}")


def test_with_a_key_nothing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "secret-key")
    code, err = failed(capsys, tmp_path / "nowhere", "--host", "0.0.0.0", "--port", "0")
    assert code == 3
    assert "warning" not in err and "secret" not in err


def test_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, err = failed(capsys, tmp_path, "--port", port)
    assert code == 2
    assert f"afterword: cannot listen at 127.0.0.1, port {port}" in err
    code, err = failed(capsys, tmp_path, "--port", 70000)
    assert (code, "port is 70000: it goes from 1 to 65535" in err) == (2, True)


@pytest.mark.parametrize(
    ("host", "public"),
    [("127.0.0.1", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("::", True), ("10.0.0.3", True)],
)
def test_what_other_machines_can_reach(host: str, public: bool) -> None:
    assert is_public(host) is public


def test_names_for_clients(tmp_path: Path) -> None:
    (tmp_path / "first" / "training" / "model").mkdir(parents=True)
    assert short_name(str(tmp_path / "first" / "training" / "model")) == "first"
    assert short_name(f"hf:{tmp_path / 'first'}") == "hf:first"
    for name in ("hf:demo", "teacher:demo", "org/model", "org/model@bfloat16"):
        assert short_name(name) == name
