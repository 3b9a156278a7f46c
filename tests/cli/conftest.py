"""What commands need: a tiny teacher, and a trained model on a tiny backbone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers.utils import logging

from afterword.cli.main import main
from tests.teachers import save_sentence_transformer

TEXTS = [f"question {'very ' * (i % 3)}number {i}? café ☃ 👩‍👩‍👧" for i in range(12)]


@pytest.fixture(scope="session")
def teacher_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny SentenceTransformer, 24 wide; nobody writes there."""
    return save_sentence_transformer(tmp_path_factory.mktemp("teacher"))


@pytest.fixture(autouse=True)
def verbosity() -> Iterator[None]:
    """Commands quieten transformers for the whole process; give it its voice back."""
    before = logging.get_verbosity()
    yield
    logging.set_verbosity(before)
    logging.enable_progress_bar()


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    path = tmp_path / "queries.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    return path


@pytest.fixture
def backbone_flags(saved_folders: dict[str, Path]) -> list[str]:
    return ["--backbone", str(saved_folders["qwen3"]), "--dtype", "float32", "--device", "cpu"]


def done(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command here and return what it printed."""
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert left.value.code == 0, err
    return out
