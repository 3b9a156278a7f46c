"""Finding and loading a backbone, from real folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from afterword.backbone import load
from afterword.backbone.load import choose_device, choose_dtype, load_backbone
from afterword.backbone.settings import BackboneSettings
from afterword.errors import MissingPartError, SettingError
from tests.world import BOS, SPECIAL, byte_ids, make_backbone, make_model, weights_of


def settings(folder: str | Path, dtype: str = "float32") -> BackboneSettings:
    return BackboneSettings(backbone=str(folder), device="cpu", dtype=dtype)  # type: ignore[arg-type]


def test_a_saved_folder_loads_as_it_was(saved_folders: dict[str, Path]) -> None:
    backbone = load_backbone(settings(saved_folders["llama"]))
    wanted = weights_of(make_model("llama"))
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in backbone.model.state_dict().items())
    assert backbone.name == str(saved_folders["llama"])
    assert backbone.revision is None
    assert backbone.text.start_ids == [BOS]
    assert backbone.text.plain(["a <eos>"]) == [byte_ids("a <eos>")]
    assert backbone.fingerprint == make_backbone("llama").fingerprint


def test_a_loaded_chat_template_is_used(saved_folders: dict[str, Path]) -> None:
    backbone = load_backbone(settings(saved_folders["qwen3"]))
    assert backbone.text.start_ids == []
    assert SPECIAL.index("<|im_start|>") in backbone.text.trusted(backbone.text.tokenizer.chat_template)


def test_the_type_of_the_weights_is_a_choice(saved_folders: dict[str, Path]) -> None:
    backbone = load_backbone(settings(saved_folders["llama"], "bfloat16"))
    assert {parameter.dtype for parameter in backbone.model.parameters()} == {torch.bfloat16}
    assert backbone.fingerprint == make_backbone("llama").fingerprint


@pytest.mark.parametrize("name", ["./no/such/folder", "/no/such/folder", "~/no/such/folder"])
def test_a_folder_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(MissingPartError, match=f"no config.json in {name}"):
        load_backbone(settings(name))


def test_a_folder_without_a_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingPartError, match=f"no config.json in {tmp_path}"):
        load_backbone(settings(tmp_path))


def test_a_folder_in_the_home_folder(
    saved_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recipe is read by no shell, so `~` arrives as it is written."""
    shutil.copytree(saved_folders["llama"], tmp_path / "llm")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_backbone(settings("~/llm")).fingerprint == make_backbone("llama").fingerprint


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_folder_without_a_part_is_named(name: str, saved_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "llm"
    shutil.copytree(saved_folders["llama"], folder)
    (folder / name).unlink()
    with pytest.raises(SettingError, match=f"cannot load the backbone '{folder}'"):
        load_backbone(settings(folder))


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_folder_with_a_damaged_part_is_named(name: str, saved_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "llm"
    shutil.copytree(saved_folders["llama"], folder)
    (folder / name).write_bytes((folder / name).read_bytes()[:100])
    with pytest.raises(SettingError, match=f"cannot load the backbone '{folder}'"):
        load_backbone(settings(folder))


def test_a_hub_name_that_is_not_there_is_named() -> None:
    with pytest.raises(SettingError, match="cannot load the backbone 'no-one/no-such-model'"):
        load_backbone(settings("no-one/no-such-model"))


def test_a_model_that_is_no_causal_lm_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(SettingError, match="cannot load the backbone"):
        load_backbone(settings(tmp_path))


@pytest.mark.parametrize("device", ["gpu", "tpu", "cuda:0", ""])
def test_a_device_that_is_not_there_is_named(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(SettingError, match=f"device '{device}' is not available here; available: cpu"):
        choose_device(device)


@pytest.mark.parametrize(("cuda", "mps", "wanted"), [(1, 1, "cuda"), (0, 1, "mps"), (0, 0, "cpu")])
def test_auto_takes_the_fastest_device(cuda: int, mps: int, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(cuda))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: bool(mps))
    assert choose_device("auto") == torch.device(wanted)
    assert choose_device("cpu") == torch.device("cpu")


def test_a_numbered_device_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("cuda:1") == torch.device("cuda:1")


@pytest.mark.parametrize(("there", "wanted"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_takes_bfloat16_where_the_hardware_computes_in_it(
    there: bool, wanted: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: there)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: there, raising=False)
    assert choose_dtype("auto", torch.device("cpu")) == wanted
    assert choose_dtype("auto", torch.device("cuda")) == wanted
    assert choose_dtype("auto", torch.device("mps")) == torch.bfloat16


def test_a_chosen_type_is_kept() -> None:
    assert choose_dtype("float32", torch.device("cuda")) == torch.float32
    assert choose_dtype("bfloat16", torch.device("cpu")) == torch.bfloat16


def test_packaged_names_load_from_the_prepared_folder(
    saved_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`demo` keeps its name, whatever the folder it was prepared in: a saved model must find it on another machine."""
    monkeypatch.setattr(load, "packaged_folder", lambda name: {"demo": saved_folders["llama"]}[name])
    backbone = load_backbone(settings("demo"))
    assert backbone.name == "demo"
    assert backbone.fingerprint == make_backbone("llama").fingerprint
