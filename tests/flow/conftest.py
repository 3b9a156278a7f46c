"""A tiny teacher and a short recipe, beside the tiny backbones of all tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.teachers import save_sentence_transformer


@pytest.fixture(scope="session")
def teacher_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny SentenceTransformer, 24 wide; nobody writes there."""
    return save_sentence_transformer(tmp_path_factory.mktemp("teacher"))


TEXTS = [f"question {'very ' * (i % 3)}number {i}? café ☃" for i in range(12)]


class Watched:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.now = ""
        self.counts: dict[str, int] = {}
        self.totals: dict[str, int | None] = {}
        self.notes: dict[str, str] = {}
        self.said: list[str] = []

    def stage(self, name: str, total: int | None = None) -> None:
        if name not in self.stages:
            self.stages.append(name)
        self.now, self.totals[name] = name, total

    def advance(self, count: int, note: str = "") -> None:
        self.counts[self.now] = self.counts.get(self.now, 0) + count

    def say(self, text: str) -> None:
        self.said.append(text)

    def done(self, note: str) -> None:
        self.notes[self.now] = note


@pytest.fixture
def values(tmp_path: Path, saved_folders: dict[str, Path], teacher_folder: Path) -> dict[str, Any]:
    """A recipe of few and small steps."""
    queries = tmp_path / "queries.jsonl"
    rows = [*TEXTS, TEXTS[0], "  "]
    queries.write_text("".join(json.dumps({"text": text}) + "\n" for text in rows), encoding="utf-8")
    return {
        "backbone": str(saved_folders["qwen3"]),
        "dtype": "float32",
        "device": "cpu",
        "queries": str(queries),
        "teacher": str(teacher_folder),
        "max_new_tokens": 8,
        "respond_batch": 5,
        "n_compression": 3,
        "max_length": 128,
        "batch_size": 4,
        "epochs": 1.0,
        "document_share": 0.0,
        "validation": 4,
        "eval_every": 1,
    }


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
