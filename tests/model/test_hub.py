"""The card, saving to the hub (faked where its client begins), and a cached model where there is no network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import ModelCard

from afterword.errors import SettingError, WorkError
from afterword.model.card import is_hub_name, render_card
from afterword.model.model import Afterword
from tests.model.embedders import COMPRESSION, TEXTS, THOUGHT, make_embedder
from tests.world import make_backbone

TRAINING = {
    "recipe": {"lr": 0.01, "lr_scale": "relative", "warm_start": True},
    "data": {"examples": 40, "held_out": 8},
    "measures": [
        {"step": 0, "recon": 3.4, "align": 0.8, "cosine": 0.5, "retrieval": 0.75},
        {"step": 53, "recon": 1.9512345, "align": 0.79, "cosine": 0.48, "retrieval": 0.8},
    ],
}


class Hub:
    """Stands where `HfApi` does, and keeps what it was asked for."""

    calls: dict[str, Any]
    error: Exception | None = None

    def __init__(self, token: str | None) -> None:
        Hub.calls = {"token": token}

    def create_repo(self, repo_id: str, private: bool | None, exist_ok: bool) -> None:
        Hub.calls["repo"] = (repo_id, private, exist_ok)
        if Hub.error:
            raise Hub.error

    def create_branch(self, repo_id: str, branch: str, exist_ok: bool) -> None:
        Hub.calls["branch"] = (repo_id, branch, exist_ok)

    def upload_folder(self, *, repo_id: str, folder_path: str, **options: Any) -> SimpleNamespace:
        Hub.calls["uploaded"] = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}
        Hub.calls["upload"] = (repo_id, options)
        return SimpleNamespace(repo_url=f"https://hub/{repo_id}", pr_url=f"https://hub/{repo_id}/discussions/1")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> type[Hub]:
    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    monkeypatch.setattr(Hub, "error", None)
    return Hub


def front_matter(card: str) -> dict[str, Any]:
    return ModelCard(card).data.to_dict()


def test_the_card_says_what_it_stands_on() -> None:
    prompts = {"query": "", "document": "Summarise | `this`: "}
    config = make_embedder(
        teacher={"name": "some/teacher"}, placement="answer", max_length=1024, prompts=prompts
    ).config
    card = render_card(config)
    assert front_matter(card)["base_model"] == "tiny/llama"
    for fact in (config.backbone_fingerprint, "some/teacher", f"{THOUGHT} thought and {COMPRESSION} compression"):
        assert fact in card
    assert "where the answer would start" in card
    assert "| prompt of queries | none |\n| prompt of documents | `Summarise / 'this':` |" in card
    assert "after the query" in render_card(make_embedder().config)


def test_the_card_has_the_recipe_and_the_measures() -> None:
    card = render_card(make_embedder(training=TRAINING).config)
    assert "40 training examples, 8 responses held out." in card
    assert '```toml\nlr = 0.01\nlr_scale = "relative"\nwarm_start = true\n```' in card
    assert "| | step 0 | step 53 |\n|---|---|---|\n" in card
    assert "| nats a token of the response, from the soft prompt | 3.4 | 1.951 |" in card
    plain = render_card(make_embedder().config)
    assert "## Recipe" not in plain and "## Measures" not in plain


def test_a_report_is_put_one_level_lower() -> None:
    report = "# Evaluation: x\n\n## Means\n\n```\n# not a heading\n```\n"
    card = render_card(make_embedder().config, evaluation=report)
    assert card.endswith("\n\n## Evaluation: x\n\n### Means\n\n```\n# not a heading\n```\n")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("Qwen/Qwen3-0.6B", True),
        ("demo", False),
        ("/home/me/llm", False),
        ("./a/b", False),
        ("../b", False),
        ("~/llm", False),
        ("a/b/c", False),
        ("a b/c", False),
    ],
)
def test_a_folder_of_this_machine_is_no_base_model(name: str, is_one: bool) -> None:
    """The hub refuses a card whose base_model cannot be a name on the hub."""
    assert is_hub_name(name) is is_one


def test_a_backbone_from_a_folder_is_said_so(tmp_path: Path) -> None:
    backbone = make_backbone("llama")
    backbone.name = str(tmp_path)
    card = render_card(make_embedder(backbone).config)
    assert "base_model" not in front_matter(card)
    assert "Its backbone was loaded from a folder" in card


def test_a_folder_that_looks_like_a_hub_name_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert not is_hub_name("runs/model")


def test_pushing_uploads_the_folder_with_a_card_that_works(
    hub: type[Hub], saved_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The snippet of the card is run as it stands, with the hub's answer being what was uploaded."""
    model = Afterword.from_backbone(str(saved_folders["qwen3"]), 1, 2, device="cpu", dtype="float32")
    assert model.push_to_hub("me/model", token="secret", private=True) == "https://hub/me/model"
    assert hub.calls["token"] == "secret"
    assert hub.calls["repo"] == ("me/model", True, True)
    assert hub.calls["upload"] == (
        "me/model",
        {"commit_message": "Afterword model", "revision": None, "create_pr": False},
    )
    assert "branch" not in hub.calls
    model.save_pretrained(tmp_path / "saved")
    uploaded = hub.calls["uploaded"]
    assert sorted(uploaded) == sorted(path.name for path in (tmp_path / "saved").iterdir())
    for name, content in uploaded.items():
        assert name == "README.md" or content == (tmp_path / "saved" / name).read_bytes()

    card = uploaded["README.md"].decode()
    snippet, in_their_library = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert 'from_pretrained("me/model")' in snippet
    assert 'load("me/model")' in in_their_library
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path / "saved"))
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "card", "exec"), {})
    exec(compile(in_their_library, "card", "exec"), {})
    assert "tensor([[" in capsys.readouterr().out


def test_pushing_to_a_branch_or_as_a_proposal(hub: type[Hub], tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("# Scores\n", encoding="utf-8")
    model = make_embedder(training=TRAINING)
    model.push_to_hub("me/model", revision="v2", commit_message="second", evaluation=tmp_path / "report.md")
    assert hub.calls["branch"] == ("me/model", "v2", True)
    assert hub.calls["upload"][1] == {"commit_message": "second", "revision": "v2", "create_pr": False}
    card = hub.calls["uploaded"]["README.md"].decode()
    assert "\n## Scores\n" in card and "## Recipe" in card
    assert json.loads(hub.calls["uploaded"]["afterword.json"])["training"] == TRAINING
    assert model.push_to_hub("me/model", create_pr=True) == "https://hub/me/model/discussions/1"
    assert "branch" not in hub.calls


class Refusal(OSError):
    def __init__(self, status: int) -> None:
        super().__init__(f"{status} said the hub")
        self.response = SimpleNamespace(status_code=status)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            Refusal(401),
            SettingError,
            "does not let you write to me/model: log in with `hf auth login`, or give a token",
        ),
        (Refusal(403), SettingError, "401|403 said the hub"),
        (Refusal(404), SettingError, "does not take me/model: 404"),
        (ValueError("Repo id must be"), SettingError, "does not take me/model: Repo id must be"),
        (Refusal(500), WorkError, "failed, nothing was lost here: 500"),
        (huggingface_hub.errors.OfflineModeIsEnabled("offline mode"), WorkError, "offline mode"),
        (ConnectionError(), WorkError, "ConnectionError"),
    ],
)
def test_what_the_hub_refuses_is_said_in_our_words(
    error: Exception, kind: type[Exception], words: str, hub: type[Hub], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hub, "error", error)
    with pytest.raises(kind, match=words):
        make_embedder().push_to_hub("me/model")


CACHED = """
import socket, sys
asked = []
def refuse(*a, **k):
    if "HF_HUB_OFFLINE=1" in sys.argv:
        raise AssertionError("reached for the network")
    asked.append(a)
    raise socket.gaierror(-3, "no network")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
import numpy as np
from afterword import Afterword, open_encoder
model = Afterword.from_pretrained("me/model", device="cpu", dtype="float32")
assert type(open_encoder("me/model", "cpu", "float32")).__name__ == "Afterword"
np.save(sys.argv[1], model.encode(["Why is the sky blue?", "a", "café ☃"]))
print(model.config.backbone, model.decode(["a"], 3))
assert len(asked) <= 4, asked  # a name and its addresses: one question, not the dozens of the hub's client
"""


@pytest.mark.parametrize("offline", ["1", "0"], ids=["said", "found out"])
def test_once_cached_everything_works_without_a_network(
    offline: str, saved_folders: dict[str, Path], tmp_path: Path
) -> None:
    """Model and backbone by their names on the hub, in a process that may not open a connection."""
    cache = tmp_path / "hub"

    def keep(name: str, folder: Path) -> None:
        place = cache / f"models--{name.replace('/', '--')}"
        (place / "refs").mkdir(parents=True)
        (place / "refs" / "main").write_text("0" * 40)
        shutil.copytree(folder, place / "snapshots" / ("0" * 40))

    backbone = make_backbone("llama")
    backbone.name = "they/llm"
    model = make_embedder(backbone)
    model.save_pretrained(tmp_path / "model")
    keep("me/model", tmp_path / "model")
    keep("they/llm", saved_folders["llama"])
    environment = {**os.environ, "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": offline, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CACHED, str(tmp_path / "out.npy"), f"HF_HUB_OFFLINE={offline}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("they/llm ['")
    texts = [TEXTS[0], "a", "café ☃"]
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), model.encode(texts), atol=1e-5)
