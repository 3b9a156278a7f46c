"""A tiny saved model, and servers of it as real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from afterword.model.model import Afterword
from afterword.model.settings import ModelSettings
from tests.serving.processes import ServerProcess
from tests.teachers import save_sentence_transformer

LENGTH = 160
KEY = "key-of-the-tests"


@pytest.fixture(scope="session")
def model_folder(saved_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model on the tiny Llama, 24 wide, one token a byte; nobody writes there."""
    folder = tmp_path_factory.mktemp("run") / "tiny" / "model"
    settings = ModelSettings(n_thought=1, n_compression=3, max_length=LENGTH)
    backbone = str(saved_folders["llama"])
    model = Afterword.from_backbone(backbone, settings=settings, embedding_dimension=24, device="cpu", dtype="float32")
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model(model_folder: Path) -> Afterword:
    """The same model here, for vectors to compare with."""
    return Afterword.from_pretrained(model_folder, device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def teacher_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny SentenceTransformer, 24 wide; nobody writes there."""
    return save_sentence_transformer(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def server(model_folder: Path) -> Iterator[ServerProcess]:
    """An open server, with the limits that users get."""
    with ServerProcess(model_folder) as process:
        yield process


@pytest.fixture(scope="session")
def closed_server(model_folder: Path) -> Iterator[ServerProcess]:
    """A server with a key and low limits, which cuts long texts and marks them."""
    flags = ("--truncation", "mark", "--max-items", "40", "--max-queue", "64", "--max-body", "20000")
    with ServerProcess(model_folder, *flags, keys=KEY) as process:
        yield process
