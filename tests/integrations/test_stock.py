"""A stock export: plain sentence-transformers gives the vectors of `Afterword.encode`, without our package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from afterword.errors import SettingError
from afterword.integrations.stock import export_stock
from afterword.model.model import Afterword
from tests.integrations.conftest import LLMS, PROMPTS, TEXTS, Save
from tests.model.embedders import COMPRESSION, DIMENSION, THOUGHT, make_embedder
from tests.world import TOKENIZER_SIZE, VOCABULARY, make_backbone, make_model, make_tokenizer, with_tokenizer

CLOSE = {"atol": 1e-5, "rtol": 0}
SEPARATE = """
import json, sys

class Nobody:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "afterword":
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)

sys.meta_path.insert(0, Nobody())
import numpy as np
from sentence_transformers import SentenceTransformer

folder, texts, out = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
model = SentenceTransformer(folder, device="cpu")
np.savez(out, plain=model.encode(texts), query=model.encode_query(texts), document=model.encode_document(texts))
assert not [name for name in sys.modules if name.partition(".")[0] == "afterword"]
"""


def ours(folder: Path) -> Afterword:
    return Afterword.from_pretrained(folder, device="cpu", dtype="float32")


def theirs(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize("placement", ["query", "answer"])
@pytest.mark.parametrize("llm", LLMS)
def test_vectors_are_those_of_afterword(llm: str, placement: str, save: Save, tmp_path: Path) -> None:
    """Truncation, BOS, frames, thought tokens, prompts, typed control tokens, texts beyond the window: all of it."""
    folder = save(llm, placement, None, 512 if placement == "query" else 1024)
    model = ours(folder)
    export_stock(model, tmp_path / "stock")
    opened = theirs(tmp_path / "stock")
    assert {type(module).__module__.partition(".")[0] for module in opened} == {"sentence_transformers"}
    for batch_size in (1, 4, 32):
        np.testing.assert_allclose(opened.encode(TEXTS, batch_size=batch_size), model.encode(TEXTS), **CLOSE)
    for method in ("encode_query", "encode_document"):
        np.testing.assert_allclose(getattr(opened, method)(TEXTS), getattr(model, method)(TEXTS), **CLOSE)
    found, wanted = opened.encode(TEXTS, prompt_name="ask"), model.encode(TEXTS, prompt_name="ask")
    np.testing.assert_allclose(found, wanted, **CLOSE)
    explicit = model.inputs.frame.glue + "Read: "
    np.testing.assert_allclose(opened.encode(TEXTS, prompt=explicit), model.encode(TEXTS, prompt="Read: "), **CLOSE)
    assert found.dtype == np.float32
    assert np.linalg.norm(wanted, axis=1).min() > 0.1
    assert opened.get_embedding_dimension() == DIMENSION
    assert opened.max_seq_length == model.config.max_length
