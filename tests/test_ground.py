"""What all rooms stand on: the encoder's door, hashes, prompts, extras."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from afterword import extras, machine
from afterword.encoder import Encoder, encode_array, fingerprint_of, hash_tensors, name_of
from afterword.errors import MissingExtraError, SettingError
from afterword.extras import require_extra
from afterword.machine import describe_machine, package_versions, processor_name
from afterword.prompts import ANSWER_EXAMPLES, AnswerExamples, resolve_prompt


class Fixed:
    """An encoder that returns what it is told to."""

    name = "fixed"

    def __init__(self, vectors: Any) -> None:
        self.vectors = vectors
        self.asked: list[Any] = []

    def encode(self, inputs: Any, *, batch_size: int = 32, show_progress_bar: bool | None = None) -> Any:
        self.asked.append((inputs, batch_size, show_progress_bar))
        return self.vectors

    def get_embedding_dimension(self) -> int:
        return 2


def test_anything_with_two_methods_is_an_encoder() -> None:
    assert isinstance(Fixed([]), Encoder)
    assert not isinstance(SimpleNamespace(encode=len), Encoder)


@pytest.mark.parametrize(
    "vectors", [[[1, 2], [3, 4]], np.array([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1, 2], [3, 4]])]
)
def test_vectors_come_as_float32(vectors: Any) -> None:
    encoder = Fixed(vectors)
    found = encode_array(encoder, ("a", "b"), batch_size=7)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.array([[1, 2], [3, 4]], np.float32))
    assert encoder.asked == [(["a", "b"], 7, False)]


@pytest.mark.parametrize("vectors", [[[1.0, 2.0]], [1.0, 2.0], [[1.0], [2.0]]])
def test_vectors_of_another_shape_are_refused(vectors: Any) -> None:
    with pytest.raises(SettingError, match=r"fixed returned vectors of shape .*, expected \(2, 2\)"):
        encode_array(Fixed(vectors), ["a", "b"])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_vector_that_is_not_finite_is_named(bad: float) -> None:
    with pytest.raises(SettingError, match="fixed returned a vector with NaN or infinity for item 1"):
        encode_array(Fixed([[0.0, 1.0], [bad, 1.0], [bad, 1.0]]), ["a", "b", "c"])


class Nameless(Fixed):
    name = ""


def test_an_encoder_has_a_name() -> None:
    assert name_of(Fixed([])) == "fixed"
    assert name_of(Nameless([])) == "Nameless"
    loaded = Nameless([])
    loaded.model_card_data = SimpleNamespace(base_model="org/model")
    assert name_of(loaded) == "org/model"


def test_an_encoder_says_its_own_fingerprint_or_is_hashed() -> None:
    encoder, weights = Fixed([]), {"weight": torch.arange(3.0)}
    with pytest.raises(SettingError, match="fixed has neither a `fingerprint` nor a `state_dict`"):
        fingerprint_of(encoder)
    encoder.state_dict = lambda: weights
    assert fingerprint_of(encoder) == hash_tensors(weights.items())
    encoder.fingerprint = "own"
    assert fingerprint_of(encoder) == "own"


def test_a_hash_sees_names_shapes_and_values() -> None:
    values = torch.arange(6.0)
    hashes = [
        hash_tensors([("a", values)]),
        hash_tensors([("b", values)]),
        hash_tensors([("a", values.view(2, 3))]),
        hash_tensors([("a", values + 1)]),
        hash_tensors([("a", values), ("a", values)]),
        hash_tensors([]),
    ]
    assert len(set(hashes)) == len(hashes)
    assert all(len(h) == 16 and int(h, 16) >= 0 for h in hashes)


def test_a_hash_does_not_see_the_type_and_the_layout() -> None:
    values = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert hash_tensors([("a", values)]) == hash_tensors([("a", values.float())])
    assert hash_tensors([("a", values)]) == hash_tensors([("a", values.T.contiguous().T)])


def test_a_hash_of_a_large_tensor_looks_at_an_even_sample() -> None:
    values = torch.zeros(100_000)
    before = hash_tensors([("a", values)])
    assert hash_tensors([("a", values + 1)]) != before
    values[50_000:] = 1
    assert hash_tensors([("a", values)]) != before


def test_a_prompt_beats_a_name_and_a_name_beats_the_default() -> None:
    prompts = {"query": "Q: ", "other": "O: "}
    assert resolve_prompt(prompts) == ""
    assert resolve_prompt(prompts, default="other") == "O: "
    assert resolve_prompt(prompts, prompt_name="query", default="other") == "Q: "
    assert resolve_prompt(prompts, "X: ", "query", "other") == "X: "
    assert resolve_prompt(prompts, "", "query", "other") == ""


@pytest.mark.parametrize("name", ["qeury", ""])
def test_an_unknown_prompt_is_an_error_that_lists_the_known(name: str) -> None:
    with pytest.raises(SettingError, match=f"no prompt is named '{name}'; this model has: other, query"):
        resolve_prompt({"query": "", "other": ""}, prompt_name=name)
    with pytest.raises(SettingError, match="this model has: none"):
        resolve_prompt({}, prompt_name=name)


def test_answer_examples_end_where_the_question_goes() -> None:
    examples = AnswerExamples((("one?", "1."), ("two?", "2.")), ask="Q:", reply="\nA:")
    assert examples.before() == "Q: one?\nA: 1.\n\nQ: two?\nA: 2.\n\nQ:"


def test_our_answer_examples_are_one_line_each() -> None:
    """What ends an answer to them is a line break."""
    assert all("\n" not in question + answer for question, answer in ANSWER_EXAMPLES.pairs)


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name.startswith("no_") else object())
    require_extra("demo", "gguf")
    with pytest.raises(MissingExtraError, match=r"this needs no_one, no_two, .*pip install 'afterword\[demo\]'"):
        require_extra("demo", "gguf", "no_one", "no_two")


def test_a_processor_has_the_name_that_its_maker_gave_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel\t\t: 85\nmodel name\t: Maker Chip 9000 @ 2.00GHz\nmodel name\t: other\n")
    monkeypatch.setattr(machine, "_INFO", info)
    assert processor_name() == "Maker Chip 9000 @ 2.00GHz"
    info.write_text("processor\t: 0\nCPU part\t: 0xd0c\n")  # as on ARM
    monkeypatch.setattr(machine.sys, "platform", "linux")
    assert processor_name() == (platform.processor() or platform.machine()) != ""


def test_a_processor_of_apple_is_asked_for_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_INFO", tmp_path / "none")
    monkeypatch.setattr(machine.sys, "platform", "darwin")
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="Apple M9\n"))
    assert processor_name() == "Apple M9"

    def refuse(*_: Any, **__: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(machine.subprocess, "run", refuse)
    assert processor_name() == (platform.processor() or platform.machine())


def test_a_machine_is_described_with_what_figures_depend_on() -> None:
    found = describe_machine(torch.device("cpu"), torch.bfloat16)
    assert found == {
        "processor": processor_name(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "device": "cpu",
        "dtype": "bfloat16",
        **package_versions(),
    }
    assert found["torch"].startswith(torch.__version__.partition("+")[0])
