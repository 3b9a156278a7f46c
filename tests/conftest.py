"""Shared fixtures."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import settings

from afterword.backbone.backbone import Backbone
from tests.world import QWEN_TEMPLATE, make_backbone, make_model, make_tokenizer

# Tiny tensors: a second thread only waits, and with two test processes on two cores it makes all of them wait.
torch.set_num_threads(1)
settings.register_profile("tests", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("tests")


@pytest.fixture
def backbone() -> Backbone:
    """A tiny Llama with BOS and without chat template, for tests that do not care which family it is."""
    return make_backbone("llama")


@pytest.fixture(scope="session")
def saved_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny backbones on disk, to be loaded as users do; nobody writes there."""
    folders = {}
    for kind, bos, template in (("llama", True, None), ("qwen3", False, QWEN_TEMPLATE)):
        folders[kind] = tmp_path_factory.mktemp(kind)
        make_model(kind).save_pretrained(folders[kind])
        make_tokenizer(bos, template).save_pretrained(folders[kind])
    return folders
