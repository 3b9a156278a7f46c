"""LLM2Vec as its authors publish it, on tiny weights, against the recipe done by hand with transformers and peft."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from transformers import AutoConfig, AutoModel

from afterword.errors import CorruptError, MismatchError, MissingPartError, SettingError
from afterword.teacher.open import open_teacher
from afterword.teacher.published import adapter_chain, open_published
from tests.world import BOS, QWEN_TEMPLATE, byte_ids, make_model, make_tokenizer

# peft asks transformers for a name that is going to change.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

TEXTS = ["Light travels faster than sound.", "ok", "café ☃"]
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def publish(model: Any, base: str, folder: Path, seed: int) -> None:
    """An adapter with weights that matter, on the body, as LLM2Vec's own training saves it."""
    torch.manual_seed(seed)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=MODULES, base_model_name_or_path=base)
    wrapped = peft.PeftModel(model, config)
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if ".lora_B." in name:
                parameter.normal_(std=0.2)
    wrapped.save_pretrained(folder, save_embedding_layers=False)


@pytest.fixture(params=["llama", "qwen3"])
def layout(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """BASE, BASE-mntp and BASE-mntp-unsup-simcse, the latter two naming BASE as what they stand on."""
    kind = request.param
    base, template = tmp_path / "Tiny", QWEN_TEMPLATE if kind == "qwen3" else None
    make_model(kind).save_pretrained(base)
    make_tokenizer(bos=kind == "llama", template=template).save_pretrained(base)
    for seed, name in enumerate(("Tiny-mntp", "Tiny-mntp-unsup-simcse")):
        publish(AutoModel.from_pretrained(base), str(base), tmp_path / name, seed)
    return kind, tmp_path


@torch.no_grad()
def by_hand(kind: str, at: Path, adapters: list[str], text: str) -> np.ndarray:
    config = AutoConfig.from_pretrained(at / "Tiny")
    config.is_causal = False
    model = AutoModel.from_pretrained(at / "Tiny", config=config)
    for name in adapters:
        model = peft.PeftModel.from_pretrained(model, at / name).merge_and_unload()
    head, tail = [BOS], []
    if kind == "qwen3":
        convert = make_tokenizer(bos=False)
        head = convert("<|im_start|>user\n", add_special_tokens=False).input_ids
        tail = convert("<|im_end|>", add_special_tokens=False).input_ids
    states = model(torch.tensor([[*head, *byte_ids(text), *tail]])).last_hidden_state[0]
    return states[len(head) :].mean(dim=0).numpy()


@pytest.mark.parametrize("adapters", [["Tiny-mntp"], ["Tiny-mntp", "Tiny-mntp-unsup-simcse"]])
def test_the_last_adapter_names_the_whole_teacher(layout: tuple[str, Path], adapters: list[str]) -> None:
    kind, at = layout
    teacher = open_teacher(str(at / adapters[-1]), device="cpu", dtype="float32")
    wanted = np.stack([by_hand(kind, at, adapters, text) for text in TEXTS])
    np.testing.assert_allclose(teacher.encode(TEXTS), wanted, atol=1e-5)
    plain = open_teacher(f"llm2vec:{at / 'Tiny'}", device="cpu", dtype="float32").encode(TEXTS)
    assert np.abs(plain - wanted).max() > 0.01


def test_all_parts_can_be_named(layout: tuple[str, Path]) -> None:
    _, at = layout
    named = f"llm2vec:{at / 'Tiny'}+{at / 'Tiny-mntp'}+{at / 'Tiny-mntp-unsup-simcse'}"
    one = open_published(named, "cpu", "float32")
    other = open_published(str(at / "Tiny-mntp-unsup-simcse"), "cpu", "float32")
    np.testing.assert_array_equal(one.encode(TEXTS), other.encode(TEXTS))
    assert one.fingerprint == other.fingerprint
    assert one.fingerprint != open_published(str(at / "Tiny-mntp"), "cpu", "float32").fingerprint
    assert one.get_embedding_dimension() == 32


def test_an_adapter_on_an_adapter(layout: tuple[str, Path], tmp_path: Path) -> None:
    """One whose config names another adapter stands on that."""
    _, at = layout
    shutil.copytree(at / "Tiny-mntp-unsup-simcse", at / "mine")
    config = json.loads((at / "mine" / "adapter_config.json").read_text())
    (at / "mine" / "adapter_config.json").write_text(
        json.dumps({**config, "base_model_name_or_path": str(at / "Tiny-mntp")})
    )
    assert adapter_chain(str(at / "mine")) == [str(at / "Tiny"), str(at / "Tiny-mntp"), str(at / "mine")]


def test_what_is_missing_or_damaged_is_named(layout: tuple[str, Path]) -> None:
    _, at = layout
    second = at / "Tiny-mntp-unsup-simcse"
    weights = (at / "Tiny-mntp" / "adapter_model.safetensors").read_bytes()
    (at / "Tiny-mntp" / "adapter_model.safetensors").write_bytes(weights[:50])
    with pytest.raises(CorruptError, match=r"Tiny-mntp/adapter_model\.safetensors is damaged"):
        open_teacher(str(second), device="cpu")
    (at / "Tiny-mntp" / "adapter_model.safetensors").unlink()
    (at / "Tiny-mntp" / "adapter_model.bin").write_bytes(b"a pickle")
    with pytest.raises(MissingPartError, match=r"no adapter_model\.safetensors in .*Tiny-mntp"):
        open_teacher(str(second), device="cpu")
    shutil.rmtree(at / "Tiny-mntp")
    with pytest.raises(MissingPartError, match=r"no folder .*Tiny-mntp"):
        open_teacher(str(second), device="cpu")


def test_an_adapter_for_another_llm_is_refused(layout: tuple[str, Path], tmp_path: Path) -> None:
    _, at = layout
    other = tmp_path / "other"
    make_model("llama", hidden_size=64, intermediate_size=96).save_pretrained(other)
    make_tokenizer().save_pretrained(other)
    with pytest.raises(MismatchError, match=r"the adapter .*Tiny-mntp does not fit .*other"):
        open_teacher(f"llm2vec:{other}+{at / 'Tiny-mntp'}", device="cpu")


def test_names_that_say_too_little(layout: tuple[str, Path]) -> None:
    _, at = layout
    with pytest.raises(SettingError, match="names no model: write llm2vec:BASE"):
        open_teacher("llm2vec:", device="cpu")
    path = at / "Tiny-mntp" / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "base_model_name_or_path": None}))
    with pytest.raises(SettingError, match="does not name its LLM"):
        open_teacher(str(at / "Tiny-mntp"), device="cpu")
    path.write_text("{")
    with pytest.raises(CorruptError, match="is not JSON"):
        open_teacher(str(at / "Tiny-mntp"), device="cpu")
