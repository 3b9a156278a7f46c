"""A model on disk: what is written, what is read back, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from afterword.errors import CorruptError, MismatchError, MissingPartError
from afterword.model.card import render_card
from afterword.model.model import Afterword
from afterword.model.official import OFFICIAL_FILES
from afterword.model.settings import ModelSettings
from tests.model.embedders import COMPRESSION, DIMENSION, TEXTS, THOUGHT, WIDTH, make_embedder
from tests.world import as_users_run_it, make_backbone, weights_of

OURS = ["README.md", "afterword.json", "model.safetensors"]
FILES = sorted([*OURS, "config_sentence_transformers.json", "modules.json"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_embedder().save_pretrained(str(tmp_path / "model"))
    return tmp_path / "model"


def load(folder: Path) -> Afterword:
    return Afterword.from_pretrained(str(folder), backbone=make_backbone("llama"))


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "afterword.json"
    values = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not ...}), encoding="utf-8")


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_a_folder_holds_these_files_and_no_pickle(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == FILES


def test_weights_are_tokens_and_two_heads_in_float32(folder: Path) -> None:
    shapes = {
        "tokens": (THOUGHT + COMPRESSION, WIDTH),
        "recon.weight": (WIDTH, WIDTH),
        "recon.bias": (WIDTH,),
        "align.weight": (DIMENSION, WIDTH),
        "align.bias": (DIMENSION,),
    }
    with safe_open(folder / "model.safetensors", "pt") as tensors:
        assert {name: tuple(tensors.get_tensor(name).shape) for name in tensors.keys()} == shapes  # noqa: SIM118
        assert {tensors.get_tensor(name).dtype for name in shapes} == {torch.float32}


def test_a_loaded_model_is_the_saved_one(folder: Path) -> None:
    saved, loaded = make_embedder(), load(folder)
    assert loaded.config == saved.config
    assert loaded.fingerprint == saved.fingerprint
    np.testing.assert_array_equal(loaded.encode(TEXTS), saved.encode(TEXTS))
    assert loaded.decode(TEXTS, 6) == saved.decode(TEXTS, 6)


def test_everything_that_can_be_set_is_saved(tmp_path: Path) -> None:
    backbone = make_backbone("llama")
    saved = make_embedder(
        backbone,
        n_thought=0,
        n_compression=4,
        placement="answer",
        token_init="The answer is",
        max_length=700,
        system="Sei knapp, bitte: é☃",
        backbone_revision="abc",
        prompts={"query": "Q: ", "é": "☃"},
        default_prompt_name="é",
        similarity_fn_name="dot",
        teacher={"name": "somebody", "fingerprint": "f"},
    )
    saved.save_pretrained(str(tmp_path))
    loaded = Afterword.from_pretrained(str(tmp_path), backbone=backbone)
    assert loaded.config == saved.config
    assert loaded.config.settings == ModelSettings(0, 4, "answer", "The answer is", 700, "Sei knapp, bitte: é☃")
    np.testing.assert_array_equal(loaded.encode(TEXTS), saved.encode(TEXTS))


def test_the_backbone_is_loaded_from_its_own_folder(saved_folders: dict[str, Path], tmp_path: Path) -> None:
    """C19: with tied embeddings, all from disk: same vectors, and the backbone is what it was, tie included."""
    started = Afterword.from_backbone(str(saved_folders["qwen3"]), 1, 2, device="cpu", dtype="float32")
    before = weights_of(started.backbone.model)
    started.save_pretrained(str(tmp_path / "model"))
    vectors = started.encode(TEXTS)
    loaded = Afterword.from_pretrained(str(tmp_path / "model"), device="cpu", dtype="float32")
    np.testing.assert_array_equal(loaded.encode(TEXTS), vectors)
    for model in (started.backbone.model, loaded.backbone.model):
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == FILES


def test_a_path_is_as_good_as_a_string(saved_folders: dict[str, Path], tmp_path: Path) -> None:
    started = Afterword.from_backbone(saved_folders["llama"], device="cpu", dtype="float32")
    started.save_pretrained(tmp_path)
    loaded = Afterword.from_pretrained(tmp_path, device="cpu", dtype="float32")
    assert loaded.fingerprint == started.fingerprint
    with pytest.raises(MissingPartError, match="no folder"):
        Afterword.from_pretrained(tmp_path / "none" / "such")


def test_a_model_can_be_saved_over_another(folder: Path) -> None:
    other = make_embedder(seed=9, n_compression=1)
    other.save_pretrained(str(folder))
    assert sorted(path.name for path in folder.iterdir()) == FILES
    np.testing.assert_array_equal(load(folder).encode(TEXTS), other.encode(TEXTS))


def test_what_is_saved_does_not_depend_on_the_type_of_the_backbone(tmp_path: Path) -> None:
    make_embedder(make_backbone("llama", torch.bfloat16)).save_pretrained(str(tmp_path / "bf16"))
    make_embedder(make_backbone("llama")).save_pretrained(str(tmp_path / "fp32"))
    weights = [(tmp_path / kind / "model.safetensors").read_bytes() for kind in ("bf16", "fp32")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("name", ["afterword.json", "model.safetensors"])
def test_a_missing_file_is_named(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(MissingPartError, match=f"no {name} in {folder}"):
        load(folder)


def test_a_missing_card_is_no_harm(folder: Path) -> None:
    (folder / "README.md").unlink()
    assert load(folder).fingerprint == make_embedder().fingerprint


@pytest.mark.parametrize("name", ["./no/such/model", "/no/such/model", "no-such-model", "a/b/c"])
def test_a_folder_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(MissingPartError, match=f"no folder {name}"):
        Afterword.from_pretrained(name)


def test_a_hub_name_that_is_not_there_is_named() -> None:
    with pytest.raises(MissingPartError, match=r"no folder no-one/no-such-model, and the hub did not give"):
        Afterword.from_pretrained("no-one/no-such-model")


def test_a_folder_in_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    loaded = Afterword.from_pretrained("~/model", backbone=make_backbone("llama"))
    assert loaded.fingerprint == make_embedder().fingerprint


@pytest.mark.parametrize("name", ["tokens", "recon.weight", "recon.bias", "align.weight", "align.bias"])
def test_a_missing_tensor_is_named(name: str, folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.__delitem__(name))
    with pytest.raises(MissingPartError, match=f"model.safetensors lacks {name}"):
        load(folder)


def test_a_tensor_too_many_is_named(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.update(lora=torch.zeros(1)))
    with pytest.raises(CorruptError, match=r"model.safetensors holds lora"):
        load(folder)


def test_a_tensor_of_another_shape_is_named_with_both_shapes(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.update(tokens=torch.zeros(4, WIDTH)))
    with pytest.raises(CorruptError, match=r"tokens has shape \(4, 32\), the config says \(5, 32\)"):
        load(folder)


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_damaged_weights_are_an_error(keep: int, folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CorruptError, match=r"model.safetensors is damaged"):
        load(folder)


@pytest.mark.parametrize("damaged", [b"", b"{", b"not json", b'{"format": 1, "backbone": "\xff"}'])
def test_a_damaged_config_is_an_error(damaged: bytes, folder: Path) -> None:
    (folder / "afterword.json").write_bytes(damaged)
    with pytest.raises(CorruptError, match=r"afterword.json is not JSON"):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_thoughts": 3, "z": 1}, "has unknown n_thoughts, z"),
        ({"hidden_size": ..., "backbone": ...}, "lacks backbone, hidden_size"),
        ({"format": 2}, "has format 2; this version reads format 1"),
        ({"format": ...}, "has format None"),
        ({"n_compression": 0}, "n_compression is 0"),
        ({"n_thought": "ten"}, "n_thought is 'ten'"),
        ({"embedding_dimension": 3.5}, "embedding_dimension is 3.5"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"placement": "behind"}, "placement is 'behind'"),
        ({"default_prompt_name": "none such"}, "default_prompt_name is 'none such'"),
    ],
)
def test_a_config_that_cannot_be_is_named(changes: dict[str, Any], message: str, folder: Path) -> None:
    change_config(folder, **changes)
    with as_users_run_it(), pytest.raises(CorruptError, match=f"afterword.json:? {message}"):
        load(folder)


def test_a_config_that_is_a_list_is_an_error(folder: Path) -> None:
    (folder / "afterword.json").write_text("[1]")
    with pytest.raises(CorruptError, match="has format 'list'"):
        load(folder)


def test_another_backbone_is_refused_and_both_are_named(folder: Path) -> None:
    other = make_backbone("qwen3")
    with pytest.raises(MismatchError) as error:
        Afterword.from_pretrained(str(folder), backbone=other)
    for name in ("tiny/llama", "tiny/qwen3", make_backbone("llama").fingerprint, other.fingerprint):
        assert name in str(error.value)


def test_a_backbone_that_changed_under_its_name_is_refused(saved_folders: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(saved_folders["llama"], tmp_path / "llm")
    model = Afterword.from_backbone(str(tmp_path / "llm"), device="cpu", dtype="float32")
    model.save_pretrained(str(tmp_path / "model"))
    change_tensors(tmp_path / "llm", lambda tensors: tensors.update({"model.norm.weight": torch.ones(WIDTH)}))
    with pytest.raises(MismatchError, match="was trained on"):
        Afterword.from_pretrained(str(tmp_path / "model"), device="cpu", dtype="float32")


def test_the_fingerprint_says_when_vectors_could_change() -> None:
    prints = [
        make_embedder().fingerprint,
        make_embedder(seed=4).fingerprint,
        make_embedder(max_length=100).fingerprint,
        make_embedder(placement="answer", max_length=1024).fingerprint,
        make_embedder(placement="answer", max_length=1024, system="Be brief.").fingerprint,
        make_embedder(make_backbone("llama", bos=False)).fingerprint,
        make_embedder(prompts={"query": "Q: "}).fingerprint,
        make_embedder(prompts={"query": "Q: "}, default_prompt_name="query").fingerprint,
    ]
    assert len(set(prints)) == len(prints)
    assert make_embedder().fingerprint == prints[0]


def test_the_card_is_written(folder: Path) -> None:
    assert (folder / "README.md").read_text(encoding="utf-8") == render_card(make_embedder().config)


def test_a_model_of_the_hub_is_loaded_at_its_revision(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def snapshot(name: str, **options: Any) -> str:
        asked.update(name=name, **options)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    loaded = Afterword.from_pretrained("me/model", backbone=make_backbone("llama"), revision="v2")
    assert loaded.fingerprint == make_embedder().fingerprint
    assert (asked["name"], asked["revision"]) == ("me/model", "v2")
    assert sorted(asked["allow_patterns"]) == sorted([*OURS, *OFFICIAL_FILES])
