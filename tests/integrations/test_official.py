"""The authors' checkpoints, against folders, vectors and words that their own package wrote.

`benchmarks/peers/official_checkpoints.py` made what lies under `data/official`.
"""

from __future__ import annotations

import json
import shutil
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from afterword.backbone.backbone import Backbone
from afterword.backbone.load import load_backbone
from afterword.backbone.settings import BackboneSettings
from afterword.errors import ArtefactError, CorruptError, MismatchError, MissingPartError
from afterword.integrations.sentence_transformers import load
from afterword.model.checkpoint import is_checkpoint
from afterword.model.model import Afterword
from afterword.model.official import OFFICIAL_FILES
from tests.cli.conftest import done
from tests.model.test_safe_files import Bomb
from tests.world import make_backbone

DATA = Path(__file__).parent / "data" / "official"
KINDS = ["llama", "qwen3"]
TOKENS = {"llama": (0, 3), "qwen3": (2, 3)}


def expected(kind: str) -> dict[str, Any]:
    return json.loads((DATA / kind / "expected.json").read_text(encoding="utf-8"))


def llm(kind: str) -> Backbone:
    return load_backbone(BackboneSettings(str(DATA / kind / "backbone"), device="cpu", dtype="float32"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy that may be spoiled."""
    return Path(shutil.copytree(DATA / "llama" / "checkpoint", tmp_path / "checkpoint"))


def opened(folder: Path) -> Afterword:
    return Afterword.from_pretrained(folder, backbone=llm("llama"))


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_and_words_are_those_of_the_authors_package(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The LLM is found by the name in the checkpoint."""
    monkeypatch.chdir(DATA / kind)
    model, wanted = Afterword.from_pretrained("checkpoint", device="cpu", dtype="float32"), expected(kind)
    assert (model.config.n_thought, model.config.n_compression) == TOKENS[kind]
    vectors = np.array(wanted["vectors"], dtype=np.float32)
    assert np.abs(vectors).max() > 1
    np.testing.assert_allclose(model.encode(wanted["texts"]), vectors, atol=1e-5)
    said = model.decode(wanted["texts"], max_new_tokens=12)
    assert said == [words.strip() for words in wanted["words"]]
    assert len(set(said)) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_convert_writes_a_model_of_ours(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, flags = tmp_path / "model", ["--backbone", DATA / kind / "backbone", "--dtype", "float32"]
    found = json.loads(done(capsys, "convert", DATA / kind / "checkpoint", "--out", out, *flags, "--json"))
    assert (found["n_thought"], found["n_compression"], found["dimension"]) == (*TOKENS[kind], 12)
    assert not [path for path in out.iterdir() if path.suffix not in (".json", ".md", ".safetensors")]
    model, wanted = Afterword.from_pretrained(out, device="cpu", dtype="float32"), expected(kind)
    np.testing.assert_allclose(model.encode(wanted["texts"]), np.array(wanted["vectors"]), atol=1e-5)
    assert model.decode(wanted["texts"], max_new_tokens=12) == [words.strip() for words in wanted["words"]]
    stock = load(out, device="cpu", dtype="float32")
    np.testing.assert_allclose(stock.encode(wanted["texts"]), np.array(wanted["vectors"]), atol=1e-5)


def test_words_stand_on_what_stands_before_the_soft_prompt(tmp_path: Path) -> None:
    """Llama's texts begin with BOS, and the authors decode without: a model of ours says so in its config."""
    model, wanted = opened(DATA / "llama" / "checkpoint"), expected("llama")
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "afterword.json").read_text())
    assert config["decode_behind_start"] is False
    (tmp_path / "afterword.json").write_text(json.dumps(config | {"decode_behind_start": True}))
    said = opened(tmp_path).decode(wanted["texts"], max_new_tokens=12)
    assert said != [words.strip() for words in wanted["words"]]


def test_a_checkpoint_of_the_authors_is_known_as_one() -> None:
    assert is_checkpoint(str(DATA / "llama" / "checkpoint"))
    assert not is_checkpoint(str(DATA / "llama" / "backbone"))


def test_only_known_files_are_fetched_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def snapshot(name: str, **options: Any) -> str:
        asked.update(name=name, **options)
        return str(DATA / "llama" / "checkpoint")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    model = Afterword.from_pretrained("McGill-NLP/LLM2Vec-Gen-Tiny", backbone=llm("llama"))
    np.testing.assert_allclose(model.encode("a"), np.array(expected("llama")["vectors"])[1], atol=1e-5)
    assert asked["name"] == "McGill-NLP/LLM2Vec-Gen-Tiny"
    assert set(OFFICIAL_FILES) < set(asked["allow_patterns"])
    assert not [pattern for pattern in asked["allow_patterns"] if "*" in pattern or pattern.endswith(".py")]


def test_the_adapter_may_be_a_file_of_torch(checkpoint: Path) -> None:
    tensors = load_file(checkpoint / "encoder" / "adapter_model.safetensors")
    torch.save(OrderedDict(tensors), checkpoint / "encoder" / "adapter_model.bin")
    (checkpoint / "encoder" / "adapter_model.safetensors").unlink()
    vectors = np.array(expected("llama")["vectors"], dtype=np.float32)
    np.testing.assert_allclose(opened(checkpoint).encode(expected("llama")["texts"]), vectors, atol=1e-5)


def test_the_layout_without_its_small_config(checkpoint: Path) -> None:
    """The run config says it too."""
    (checkpoint / "encoder_decoder_config.json").unlink()
    assert opened(checkpoint).config.n_compression == 3


def change_tensors(checkpoint: Path, **tensors: torch.Tensor | None) -> None:
    path = checkpoint / "encoder" / "adapter_model.safetensors"
    found = {**load_file(path), **{name.replace("__", "."): tensor for name, tensor in tensors.items()}}
    save_file({name: tensor for name, tensor in found.items() if tensor is not None}, path)


def test_an_adapter_that_does_nothing_is_no_harm(checkpoint: Path) -> None:
    """The package's own helper for adapters brings LoRA along; untrained, it adds zero."""
    name = "base_model__model__layers__0__mlp__up_proj__lora_{}__weight"
    change_tensors(checkpoint, **{name.format("A"): torch.ones(2, 16), name.format("B"): torch.zeros(24, 2)})
    vectors = np.array(expected("llama")["vectors"], dtype=np.float32)
    np.testing.assert_allclose(opened(checkpoint).encode(expected("llama")["texts"]), vectors, atol=1e-5)
    change_tensors(checkpoint, **{name.format("B"): torch.full((24, 2), 0.1)})
    with pytest.raises(CorruptError, match=r"changes the LLM itself \(base_model.*lora_B"):
        opened(checkpoint)


@pytest.mark.parametrize(
    "name",
    [
        "encoder/adapter_config.json",
        "encoder/adapter_model.safetensors",
        "reconstruction_mlp",
        "alignment_mlp",
    ],
)
def test_a_missing_part_is_named(name: str, checkpoint: Path) -> None:
    (checkpoint / name).unlink()
    with pytest.raises(MissingPartError, match=f"no ({name}|afterword.json) in"):
        opened(checkpoint)


def test_another_llm_is_refused(checkpoint: Path) -> None:
    with pytest.raises(MismatchError, match="16, tiny/llama is 32 wide"):
        Afterword.from_pretrained(checkpoint, backbone=make_backbone("llama"))
    with pytest.raises(MismatchError, match="has other embeddings"):
        Afterword.from_pretrained(checkpoint, backbone=llm("qwen3"))


def write_yaml(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "run_config.yml").write_text(text, encoding="utf-8") and None


def append_yaml(text: str) -> Callable[[Path], None]:
    def append(folder: Path) -> None:
        with (folder / "run_config.yml").open("a") as file:
            file.write(text)

    return append


def change_json(name: str, **changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def change_head(name: str, **changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        saved = torch.load(folder / name, weights_only=True)
        torch.save({**saved, **changes}, folder / name)

    return change


def weights(rows: int, columns: int, bias: int) -> dict[str, torch.Tensor]:
    return {"projection.weight": torch.ones(rows, columns), "projection.bias": torch.ones(bias)}


def rows(*shape: int) -> Callable[[Path], None]:
    name = "base_model__model__embed_tokens__trainable_tokens_delta"
    return partial(change_tensors, **{name: torch.ones(shape) if shape else None})


ADAPTER, SMALL = "encoder/adapter_config.json", "encoder_decoder_config.json"
SPOILED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "yaml of objects": (
        append_yaml("x: !!python/object/apply:os.system ['echo ran > IT_RAN']\nmax_input_length: [1]\n"),
        r"max_input_length is \[1\]",
    ),
    "yaml of many laughs": (append_yaml("a: &a [x, x]\nb: [*a, *a, *a]\n"), "not plain YAML: references"),
    "yaml too long": (append_yaml("# " + "x" * 300_000), "settings have"),
    "yaml nested without end": (write_yaml("a: " + "[" * 100_000), "not plain YAML"),
    "no yaml": (write_yaml("a: [b\n"), "not plain YAML"),
    "a list": (write_yaml("- a\n"), "holds list"),
    "no name": (
        lambda folder: [write_yaml("a: b\n")(folder), change_json(ADAPTER, base_model_name_or_path=None)(folder)],
        "does not name the LLM",
    ),
    "another mode": (change_json(SMALL, encoding_mode="mean"), "encoding_mode is 'mean'"),
    "more kept than there are": (change_json(SMALL, encoding_mode="last_9_tokens"), "but 3 learned tokens"),
    "none kept": (change_json(SMALL, encoding_mode="last_0_tokens"), "but 3 learned tokens"),
    "a mode of many digits": (change_json(SMALL, encoding_mode=f"last_{'9' * 5000}_tokens"), "encoding_mode is"),
    "json that is none": (lambda folder: (folder / ADAPTER).write_text("{"), "is not JSON"),
    "json without end": (lambda folder: (folder / ADAPTER).write_text("[" * 99_999), "is not JSON"),
    "ids that do not fit": (change_json(ADAPTER, token_indices=[1]), r"names the tokens \[1\], and there are 3 rows"),
    "ids that are none": (change_json(ADAPTER, token_indices=["a", "b", "c"]), "names the tokens"),
    "rows of another width": (rows(3, 8), "do not fit tokens that are 8 wide"),
    "rows of three dimensions": (rows(3, 16, 1), "expected the rows of learned tokens alone"),
    "no rows": (rows(), "expected the rows of learned tokens alone"),
    "another tensor": (partial(change_tensors, layers__0__weight=torch.ones(2)), "expected the rows of learned tokens"),
    "a head of another width": (change_head("reconstruction_mlp", state_dict=weights(15, 16, 15)), "do not fit"),
    "a bias of another width": (change_head("alignment_mlp", state_dict=weights(12, 16, 13)), "do not fit"),
    "a head with other names": (change_head("alignment_mlp", state_dict={"w": torch.ones(2)}), "holds w, expected"),
    "a head in several parts": (change_head("alignment_mlp", config={"size": 2}), "is no linear head"),
    "a head of tensors only": (
        lambda folder: torch.save(weights(12, 16, 12), folder / "alignment_mlp"),
        "expected state_dict and config",
    ),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_spoiled_checkpoint_is_refused(how: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoint)
    spoil, message = SPOILED[how]
    spoil(checkpoint)
    with pytest.raises(ArtefactError, match=message):
        opened(checkpoint)
    assert not (checkpoint / "IT_RAN").exists()


@pytest.mark.parametrize("name", ["reconstruction_mlp", "alignment_mlp", "encoder/adapter_model.bin"])
def test_a_pickle_that_runs_something_is_refused(name: str, checkpoint: Path, tmp_path: Path) -> None:
    trace = tmp_path / "it-ran"
    (checkpoint / "encoder" / "adapter_model.safetensors").unlink()
    torch.save(OrderedDict(a=torch.ones(2)), checkpoint / "encoder" / "adapter_model.bin")
    torch.save({"state_dict": Bomb(trace), "config": {}}, checkpoint / name)
    if name != "encoder/adapter_model.bin":
        change = DATA / "llama" / "checkpoint" / "encoder" / "adapter_model.safetensors"
        shutil.copy(change, checkpoint / "encoder" / "adapter_model.safetensors")
    with pytest.raises(CorruptError, match="asks for"):
        opened(checkpoint)
    assert not trace.exists()


@pytest.mark.parametrize("name", [*OFFICIAL_FILES])
def test_a_link_out_of_the_folder_is_refused(name: str, checkpoint: Path, tmp_path: Path) -> None:
    if not (checkpoint / name).exists():
        (checkpoint / "encoder" / "adapter_model.safetensors").unlink()
        torch.save(OrderedDict(a=torch.ones(2)), checkpoint / name)
    (checkpoint / name).rename(tmp_path / "outside")
    (checkpoint / name).symlink_to(tmp_path / "outside")
    with pytest.raises(CorruptError, match="leads outside of its folder"):
        opened(checkpoint)
