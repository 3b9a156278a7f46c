"""The space of targets: spread by hand and by statistics, kept in a model, and a teacher brought into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from afterword.corpus.records import Response
from afterword.corpus.targets import TargetSettings, embed_targets, open_targets
from afterword.encoder import Encoder, fingerprint_of
from afterword.errors import CorruptError, MismatchError, MissingPartError, SettingError
from afterword.flow.open_encoder import chosen_teacher, open_encoder
from afterword.model.model import Afterword
from afterword.model.settings import ModelSettings
from afterword.space import SHRINK, InSpace, spread_space
from afterword.teacher.llm import LLMTeacher
from afterword.training.settings import TrainSettings
from afterword.training.train import train
from tests.teachers import save_sentence_transformer
from tests.world import make_backbone, random_vectors

TEXTS = [f"answer {i}: {'aeiou'[i % 5] * (i + 1)}" for i in range(14)]
RESPONSES = [Response(f"q{i}", f"question {i}", text, 9, False) for i, text in enumerate(TEXTS)]


def corpus(count: int = 400, width: int = 6) -> np.ndarray:
    """Correlated, and of very different sizes."""
    mixed = random_vectors(count, width) @ random_vectors(width, width, seed=1)
    return (mixed * torch.tensor([100.0, 1.0, 1.0, 0.1, 1.0, 5.0]) + 3).numpy()


def test_standardised_by_hand() -> None:
    space = spread_space(np.array([[1.0, 5.0], [3.0, 5.0]]), "standardise")
    torch.testing.assert_close(space(torch.tensor([[1.0, 5.0], [5.0, 5.0]])), torch.tensor([[-1.0, 0.0], [3.0, 0.0]]))


def test_whitened_vectors_have_no_correlations_left() -> None:
    """With shrinkage the covariance is that of the corpus over itself drawn towards a ball, in the same directions."""
    vectors = corpus()
    white = spread_space(vectors, "whiten")(torch.from_numpy(vectors.astype(np.float32))).numpy()
    covariance = np.cov(vectors.T.astype(np.float64), bias=True)
    variances, directions = np.linalg.eigh(covariance)
    shrunk = (1 - SHRINK) * variances + SHRINK * variances.mean()
    wanted = directions @ np.diag(variances / shrunk) @ directions.T
    np.testing.assert_allclose(np.cov(white.T, bias=True), wanted, atol=2e-3)
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=2e-3)


@pytest.mark.parametrize("spread", ["standardise", "whiten"])
def test_fewer_texts_than_dimensions_and_dimensions_that_never_move_stay_finite(spread: Any) -> None:
    vectors = np.concatenate([corpus(3), np.ones((3, 2))], axis=1)
    assert np.isfinite(spread_space(vectors, spread)(torch.from_numpy(vectors.astype(np.float32))).numpy()).all()


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory, saved_folders: dict[str, Path]) -> dict[str, Path]:
    """A model of each kind of targets, trained for a step, and where its targets are."""
    from afterword.backbone.load import load_backbone
    from afterword.backbone.settings import BackboneSettings

    found = {}
    backbone = load_backbone(BackboneSettings(str(saved_folders["llama"]), device="cpu", dtype="float32"))
    for name, settings in {
        "standardised": TargetSettings("llm"),
        "white": TargetSettings("llm", standardise="whiten", llm_prompt="Say: ", llm_layer=1, llm_pooling="last"),
        "plain": TargetSettings("llm", standardise="no"),
    }.items():
        at = tmp_path_factory.mktemp(name)
        embed_targets(chosen_teacher(settings, backbone, "cpu"), RESPONSES, at / "targets", settings)
        quick = TrainSettings(epochs=0.1, batch_size=4, validation=2, document_share=0.0)
        shape = ModelSettings(n_compression=2, max_length=80)
        train(backbone, RESPONSES, open_targets(at / "targets"), at / "run", shape, quick)
        found[name] = at
    return found


@pytest.mark.parametrize("name", ["standardised", "white", "plain"])
def test_a_saved_model_brings_its_teacher_into_the_space_of_its_targets(student: dict[str, Path], name: str) -> None:
    at = student[name]
    wanted = open_targets(at / "targets").lookup(TEXTS)
    for model in (at / "run", at / "run" / "model"):
        teacher = open_encoder(f"target:{model}", device="cpu", dtype="float32")
        assert isinstance(teacher, Encoder)
        np.testing.assert_allclose(teacher.encode(TEXTS), wanted, atol=1e-4)
    saved = Afterword.from_pretrained(at / "run" / "model", dtype="float32")
    assert (saved.parts.space is None) == (name == "plain")


def test_another_teacher_under_the_name_is_refused(student: dict[str, Path], tmp_path: Path) -> None:
    import json
    import shutil

    shutil.copytree(student["white"] / "run" / "model", tmp_path / "model")
    config = tmp_path / "model" / "afterword.json"
    values = json.loads(config.read_text())
    values["teacher"]["fingerprint"] = "0" * 16
    config.write_text(json.dumps(values))
    with pytest.raises(MismatchError, match="was trained on targets of llm"):
        open_encoder(f"target:{tmp_path / 'model'}", device="cpu", dtype="float32")
    with pytest.raises(MissingPartError, match="target:MODEL is the teacher of one"):
        open_encoder("target:nothing", device="cpu")


def test_a_damaged_space_is_named(student: dict[str, Path], tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(student["white"] / "run" / "model", tmp_path / "model")
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    for broken, said in (
        ({"space.transform": torch.zeros(3, 3)}, r"space.transform has shape \(3, 3\)"),
        ({"space.mean": torch.zeros(3)}, "space.mean has shape"),
    ):
        save_file({**tensors, **broken}, tmp_path / "model" / "model.safetensors")
        with pytest.raises(CorruptError, match=said):
            Afterword.from_pretrained(tmp_path / "model", dtype="float32")


def test_the_teacher_of_a_student_of_a_sentence_transformer(tmp_path: Path) -> None:
    """Nothing is spread there; the prompt of the targets is put before each text."""
    folder = save_sentence_transformer(tmp_path / "st")
    encoder = open_encoder(f"teacher:{folder}", device="cpu")
    prompted = InSpace(encoder, None, "passage: ")
    np.testing.assert_array_equal(prompted.encode(["a"]), encoder.encode(["passage: a"]))
    assert prompted.get_embedding_dimension() == 24
    spaces = [None, spread_space(random_vectors(9, 24).numpy(), "standardise")]
    marks = {InSpace(encoder, space, prompt).fingerprint for space in spaces for prompt in ("", "x")}
    assert len(marks) == 4
    assert fingerprint_of(prompted) not in marks


def test_settings_of_the_llm_are_for_the_llm() -> None:
    backbone = make_backbone()
    teacher = chosen_teacher(TargetSettings("llm", llm_prompt="Say: ", llm_layer=1), backbone, "cpu")
    assert isinstance(teacher, LLMTeacher)
    assert (teacher.settings.prompt, teacher.settings.layer) == ("Say: ", 1)
    with pytest.raises(SettingError, match="llm_layer is for teacher llm, but the teacher is demo"):
        chosen_teacher(TargetSettings("demo", llm_layer=1), None, "cpu")
    with pytest.raises(SettingError, match="give the backbone"):
        chosen_teacher(TargetSettings("llm"), None, "cpu")
