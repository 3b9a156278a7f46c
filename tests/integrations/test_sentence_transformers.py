"""A saved model in the real library: the same vectors as `Afterword.encode`."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.quantization import quantize_embeddings

from afterword.errors import CorruptError, InputError, SettingError
from afterword.integrations.sentence_transformers import AfterwordModule, as_sentence_transformer, load
from afterword.model.model import Afterword
from tests.integrations.conftest import TEXTS, Save
from tests.model.embedders import COMPRESSION, DIMENSION, make_embedder
from tests.world import make_backbone

CLOSE = {"atol": 1e-5, "rtol": 0}
CASES = [
    ("llama", "query", None),
    ("llama", "answer", "ask"),
    ("qwen3", "answer", None),
    ("gemma3-short", "answer", "document"),
    ("gemma3", "query", None),
]


def ours(folder: Path) -> Afterword:
    return Afterword.from_pretrained(folder, device="cpu", dtype="float32")


def theirs(folder: Path, **options: Any) -> SentenceTransformer:
    """As anybody opens a model of the hub."""
    return SentenceTransformer(
        str(folder), device="cpu", trust_remote_code=True, model_kwargs={"dtype": "float32"}, **options
    )


@pytest.mark.parametrize(("llm", "placement", "default"), CASES)
def test_vectors_are_those_of_afterword(llm: str, placement: str, default: str | None, save: Save) -> None:
    folder = save(llm, placement, default, 512 if placement == "query" else 1024)
    model = ours(folder)
    for opened in (theirs(folder), load(folder, device="cpu", dtype="float32")):
        for options in ({}, {"prompt": "Read this. "}, {"prompt_name": "ask"}, {"batch_size": 3}):
            found, wanted = opened.encode(TEXTS, **options), model.encode(TEXTS, **options)
            assert (found.dtype, found.shape) == (np.dtype("float32"), (len(TEXTS), DIMENSION))
            np.testing.assert_allclose(found, wanted, **CLOSE)
        np.testing.assert_allclose(opened.encode_query(TEXTS), model.encode_query(TEXTS), **CLOSE)
        np.testing.assert_allclose(opened.encode_document(TEXTS), model.encode_document(TEXTS), **CLOSE)
        np.testing.assert_allclose(opened.encode(TEXTS[0]), model.encode(TEXTS[0]), **CLOSE)
    assert not np.allclose(model.encode_query(TEXTS), model.encode_document(TEXTS), atol=1e-3)


def test_a_side_without_a_prompt_takes_the_default_one(tmp_path: Path) -> None:
    backbone = make_backbone("llama")
    for prompts, default in (({"p": "Say: "}, "p"), ({"passage": "P: "}, None), ({}, None)):
        model = make_embedder(backbone, prompts=prompts, default_prompt_name=default)
        opened = as_sentence_transformer(model)
        for method in ("encode", "encode_query", "encode_document"):
            np.testing.assert_allclose(getattr(opened, method)(TEXTS), getattr(model, method)(TEXTS), **CLOSE)


def test_without_the_flag_sentence_transformers_refuses_and_load_does_not(save: Save) -> None:
    folder = save("llama")
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(folder), device="cpu")
    assert load(folder, device="cpu").get_embedding_dimension() == DIMENSION


def test_no_code_lies_in_the_folder_and_writing_it_needs_no_sentence_transformers(save: Save, tmp_path: Path) -> None:
    folder = save("llama")
    assert {path.suffix for path in folder.iterdir()} == {".json", ".md", ".safetensors"}
    program = f"""
import sys
sys.modules["sentence_transformers"] = None
from afterword import Afterword
Afterword.from_pretrained({str(folder)!r}, device="cpu").save_pretrained({str(tmp_path)!r})
try:
    import afterword.integrations.sentence_transformers
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "pip install 'afterword[sentence-transformers]'" in done.stdout
    for name in ("modules.json", "config_sentence_transformers.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_fewer_dimensions_are_given_with_a_warning(save: Save) -> None:
    folder = save("llama")
    wanted = ours(folder).encode(TEXTS)[:, :5]
    opened = load(folder, device="cpu", dtype="float32")
    with pytest.warns(UserWarning, match="was not trained for fewer dimensions"):
        np.testing.assert_allclose(opened.encode(TEXTS, truncate_dim=5), wanted, **CLOSE)
    with pytest.warns(UserWarning, match="was not trained for fewer dimensions"):
        np.testing.assert_allclose(opened.encode_query(TEXTS, truncate_dim=5), wanted, **CLOSE)
    for how in (partial(load, device="cpu", dtype="float32"), theirs):
        with pytest.warns(UserWarning, match="was not trained for fewer dimensions"):
            shorter = how(folder, truncate_dim=5)
        assert shorter.get_embedding_dimension() == 5
        np.testing.assert_allclose(shorter.encode(TEXTS), wanted, **CLOSE)


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_smaller_numbers_are_those_of_the_same_vectors(precision: str, save: Save) -> None:
    folder = save("qwen3")
    texts = [f"text number {i}" for i in range(101)]  # int8 asks for 100 to find its ranges
    found = load(folder, device="cpu", dtype="float32").encode(texts, precision=precision)
    wanted = quantize_embeddings(ours(folder).encode(texts), precision=precision)
    assert found.dtype == wanted.dtype
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= (0 if "binary" in precision else 1)


def test_the_library_s_other_outputs(save: Save) -> None:
    folder = save("qwen3")
    model, opened = ours(folder), load(folder, device="cpu", dtype="float32")
    found = opened.encode(TEXTS, output_value="token_embeddings")
    wanted = model.encode(TEXTS, output_value="token_embeddings")
    assert [vectors.shape for vectors in found] == [(COMPRESSION, DIMENSION)] * len(TEXTS)
    np.testing.assert_allclose(np.stack([vectors.numpy() for vectors in found]), wanted, **CLOSE)
    np.testing.assert_allclose(
        opened.encode(TEXTS, convert_to_tensor=True, normalize_embeddings=True).numpy(),
        model.encode(TEXTS, normalize_embeddings=True),
        **CLOSE,
    )
    everything = opened.encode(TEXTS[:2], output_value=None)
    np.testing.assert_allclose(everything[1]["sentence_embedding"].numpy(), model.encode(TEXTS[1]), **CLOSE)
    assert opened.encode([]).shape[0] == 0
    np.testing.assert_allclose(
        opened.similarity(opened.encode(TEXTS), opened.encode(TEXTS)),
        model.similarity(model.encode(TEXTS), model.encode(TEXTS)),
        atol=1e-5,
    )


def test_a_length_set_on_the_library_s_model_is_where_texts_are_cut(save: Save) -> None:
    folder = save("llama")
    opened = load(folder, device="cpu", dtype="float32")
    assert opened.max_seq_length == 512
    opened.max_seq_length = 40
    shorter = make_like(ours(folder), max_length=40)
    np.testing.assert_allclose(opened.encode(TEXTS), shorter.encode(TEXTS), **CLOSE)
    assert not np.allclose(opened.encode(TEXTS[-1]), ours(folder).encode(TEXTS[-1]), atol=1e-3)


def make_like(model: Afterword, **changes: Any) -> Afterword:
    from dataclasses import replace

    return Afterword(model.backbone, model.parts, replace(model.config, **changes))


def test_what_the_library_saves_is_a_model_of_ours_again(save: Save, tmp_path: Path) -> None:
    opened = load(save("llama"), device="cpu", dtype="float32")
    wanted = opened.encode(TEXTS)
    opened.save_pretrained(str(tmp_path))
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".py", ".bin", ".pt")]
    np.testing.assert_allclose(ours(tmp_path).encode(TEXTS), wanted, **CLOSE)
    np.testing.assert_allclose(theirs(tmp_path).encode(TEXTS), wanted, **CLOSE)
    np.testing.assert_allclose(load(tmp_path, device="cpu", dtype="float32").encode(TEXTS), wanted, **CLOSE)


def test_prompts_changed_in_the_library_are_saved_with_the_model(save: Save, tmp_path: Path) -> None:
    opened = load(save("llama"), device="cpu", dtype="float32")
    opened.prompts = {**opened.prompts, "query": "Which passage answers this? "}
    opened.save_pretrained(str(tmp_path))
    for again in (ours(tmp_path), theirs(tmp_path), load(tmp_path, device="cpu", dtype="float32")):
        np.testing.assert_allclose(again.encode_query(TEXTS), opened.encode_query(TEXTS), **CLOSE)


def test_the_type_of_the_llm_may_change_and_the_heads_stay_exact(save: Save) -> None:
    folder = save("llama")
    for opened in (
        load(folder, device="cpu", dtype="float32").bfloat16(),
        load(folder, device="cpu", dtype="bfloat16"),
    ):
        found = opened.encode(TEXTS)
        wanted = Afterword.from_pretrained(folder, device="cpu", dtype="bfloat16").encode(TEXTS)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, atol=2e-2 * float(np.abs(wanted).max()))
        assert all(parameter.dtype == torch.float32 for parameter in opened[0].parts.parameters())


def test_training_the_library_s_way_reaches_the_learned_parts_only(save: Save) -> None:
    opened = load(save("llama"), device="cpu", dtype="float32")
    opened.train()
    assert not opened[0].llm.training
    features = opened.preprocess(TEXTS[:3])
    opened(features)["sentence_embedding"].square().sum().backward()
    assert all(parameter.grad is not None for parameter in opened[0].parts.parameters())
    assert all(parameter.grad is None for parameter in opened[0].llm.parameters())


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_gives_the_same_vectors(duplicate: Any, save: Save) -> None:
    opened = load(save("gemma3", "answer", None, 1024), device="cpu", dtype="float32")
    wanted = opened.encode(TEXTS)
    again = duplicate(opened)
    assert again[0].llm is again[0].model.backbone.model
    assert again[0].llm is not opened[0].llm
    np.testing.assert_allclose(again.encode(TEXTS), wanted, **CLOSE)


def test_an_item_that_is_no_text_is_named(save: Save) -> None:
    opened = load(save("llama"), device="cpu", dtype="float32")
    with pytest.raises(InputError, match="a lone surrogate"):
        opened.encode(["fine", "ok \ud800 bad"])


def test_several_processes_give_the_same_vectors_in_the_same_order(save: Save) -> None:
    """Each process gets the model by pickle."""
    folder = save("llama", "answer", None, 1024)
    opened = load(folder, device="cpu", dtype="float32")
    texts = [f"{text} {i}" for i in range(5) for text in TEXTS[:5]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pool = opened.start_multi_process_pool(["cpu", "cpu"])
        try:
            found = opened.encode(texts, pool=pool, chunk_size=7, prompt_name="document")
        finally:
            opened.stop_multi_process_pool(pool)
    np.testing.assert_allclose(found, ours(folder).encode(texts, prompt_name="document"), **CLOSE)


@pytest.mark.parametrize("outside", ["..", "../..", "/etc"])
def test_a_module_does_not_reach_out_of_its_folder(outside: str, save: Save) -> None:
    with pytest.raises(CorruptError, match="leads outside of its folder"):
        AfterwordModule.load(str(save("llama")), outside)


def test_a_type_that_no_backbone_is_loaded_in_is_named(save: Save) -> None:
    with pytest.raises(SettingError, match="dtype 'float16': it is one of auto, float32, bfloat16"):
        AfterwordModule.load(str(save("llama")), model_kwargs={"dtype": torch.float16})
