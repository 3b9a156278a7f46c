"""A tiny teacher, beside the tiny backbones of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.teachers import save_sentence_transformer


@pytest.fixture(scope="session")
def teacher_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny SentenceTransformer, 24 wide; nobody writes there."""
    return save_sentence_transformer(tmp_path_factory.mktemp("teacher"))
