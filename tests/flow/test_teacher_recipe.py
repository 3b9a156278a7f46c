"""A teacher's recipe: read, carried out on a tiny LLM, and as the teacher of a student's recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from afterword.backbone.settings import BackboneSettings
from afterword.corpus.manifest import Manifest
from afterword.corpus.queries import QuerySettings
from afterword.corpus.targets import open_targets
from afterword.errors import MismatchError, MissingExtraError, MissingPartError, SettingError
from afterword.flow.progress import Silent
from afterword.flow.recipe import Recipe
from afterword.flow.stages import Stages
from afterword.flow.teacher_recipe import TeacherRecipe, TextSettings, recipe_within, train_recipe
from afterword.model.model import Afterword
from afterword.teacher.adapters import LoraSettings
from afterword.teacher.open import open_teacher
from afterword.teacher.settings import PoolingSettings
from afterword.training.teacher_settings import TeacherSettings
from tests.flow.conftest import TEXTS, Watched, contents

SHIPPED = Path(__file__).parents[2] / "recipes"
QUICK = "mntp_steps = 2\nmntp_batch = 4\nsimcse_steps = 2\nsimcse_batch = 4\nvalidation = 3\nlora_rank = 2\n"


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    return written(tmp_path, QUICK)


def written(folder: Path, text: str) -> Path:
    path = folder / "teacher.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recipe_sets_what_it_says_and_leaves_the_defaults_of_llm2vec(tmp_path: Path) -> None:
    recipe = TeacherRecipe.read(
        written(tmp_path, 'queries = "q.jsonl"\nlimit = 9\nseed = 4\npooling = "last"\nlora_rank = 8\ncrop = 0\n')
    )
    assert recipe == TeacherRecipe(
        TextSettings("q.jsonl", limit=9),
        PoolingSettings(attention="bidirectional", prompt="", pooling="last"),
        LoraSettings(lora_rank=8),
        TeacherSettings(seed=4, crop=0.0),
        BackboneSettings(),
    )
    assert recipe.texts.source(recipe.training.seed) == QuerySettings("q.jsonl", limit=9, seed=4)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("simcse_step = 2", "unknown setting simcse_step; did you mean simcse_steps?"),
        ("n_compression = 2", "unknown setting n_compression"),
        ('preset = "paper-v1"', "unknown setting preset"),
        ('attention = "both"', "attention is 'both', expected one of 'causal', 'bidirectional'"),
        ("lora_rank = 2.5", "lora_rank is 2.5, expected int"),
        ("crop = 1.5", "crop is 1.5: it is at least 0 and below 1"),
        ("limit = 0", "limit is 0, it must be at least 1"),
    ],
)
def test_what_cannot_be_used_is_named(line: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError) as caught:
        TeacherRecipe.read(written(tmp_path, f'queries = "q.jsonl"\n{line}\n'))
    assert words in str(caught.value)


def test_what_the_file_says_wins_over_what_stands_for_its_absence(tmp_path: Path) -> None:
    path = written(tmp_path, 'queries = "own"\n')
    recipe = TeacherRecipe.read(path, queries="given", responses="r", backbone="b")
    assert (recipe.texts.queries, recipe.texts.responses, recipe.backbone.backbone) == ("own", "r", "b")
    with pytest.raises(SettingError, match=r'teacher\.toml does not say which queries to use: add queries = "FILE"'):
        TeacherRecipe.read(written(tmp_path, "crop = 0.5\n"))


def test_there_are_recipes() -> None:
    assert {path.stem for path in SHIPPED.glob("*.toml")} >= {"llm2vec-small", "own-teacher", "open-queries"}


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_the_recipes_of_this_repository_can_be_read(path: Path) -> None:
    kind = TeacherRecipe if "simcse_steps" in path.read_text(encoding="utf-8") else Recipe
    recipe: TeacherRecipe | Recipe = kind.read(path, queries="given")
    assert kind.from_values({k: v for k, v in recipe.values().items() if v is not None}) == recipe
    if isinstance(recipe, Recipe) and recipe.targets.teacher.endswith(".toml"):
        assert TeacherRecipe.read(SHIPPED.parent / recipe.targets.teacher, queries="given")


def test_the_recipe_is_kept_and_gives_the_same_teacher_again(
    recipe_file: Path, tmp_path: Path, saved_folders: dict[str, Path]
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    given = {"backbone": str(saved_folders["llama"]), "dtype": "float32", "device": "cpu"}
    recipe = TeacherRecipe.read(recipe_file, queries=str(texts), **given)
    watched = Watched()
    first = train_recipe(recipe, tmp_path / "first", watched)
    assert watched.stages == ["texts", "mntp", "simcse"]
    assert watched.notes["texts"] == "12 texts; kept 12 of 12 queries"
    assert watched.counts == {"mntp": 2, "simcse": 2}
    kept = TeacherRecipe.read(tmp_path / "first" / "recipe.toml")
    assert kept == recipe
    second = train_recipe(kept, tmp_path / "second", Silent())
    assert second.teacher.fingerprint == first.teacher.fingerprint


def own(values: dict[str, Any], recipe_file: Path) -> dict[str, Any]:
    return {**values, "teacher": str(recipe_file)}


def test_a_students_recipe_trains_its_own_teacher_first(
    values: dict[str, Any],
    recipe_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, watched = tmp_path / "out", Watched()
    stages = Stages(Recipe.from_values(own(values, recipe_file)), out, watched)
    stages.run()
    assert watched.stages == ["queries", "backbone", "responses", "texts", "mntp", "simcse", "targets", "training"]
    assert watched.notes["texts"].startswith("24 texts")  # the queries and what the LLM answered
    assert watched.notes["targets"].endswith(f"embedded by {out / 'teacher/simcse/teacher'}")
    assert "teacher" in stages.seconds
    teacher = open_teacher(str(out / "teacher"), device="cpu", dtype="float32")
    about = open_targets(out / "targets").teacher
    assert (about["name"], about["fingerprint"]) == (str(out / "teacher/simcse/teacher"), teacher.fingerprint)
    model = Afterword.from_pretrained(str(out / "training" / "model"), dtype="float32")
    assert model.get_embedding_dimension() == teacher.get_embedding_dimension() == 32
    assert Manifest.read(out / "teacher" / "simcse", "teacher training").settings["attention"] == "bidirectional"

    before = contents(out)
    monkeypatch.setattr("afterword.training.loop.Loop.step", None)
    Stages(Recipe.read(out / "recipe.toml"), out).run()
    assert contents(out) == before


def test_a_changed_recipe_of_the_teacher_is_refused(
    values: dict[str, Any],
    recipe_file: Path,
    tmp_path: Path,
) -> None:
    Stages(Recipe.from_values(own(values, recipe_file)), tmp_path / "out").run()
    recipe_file.write_text(QUICK + "temperature = 0.2\n")
    with pytest.raises(MismatchError, match=r"simcse was made in another way:[^.]*settings\.temperature"):
        Stages(Recipe.from_values(own(values, recipe_file)), tmp_path / "out").run()


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (None, MissingPartError, "no recipe"),
        ("simcse_stepz = 1\n", SettingError, "did you mean simcse_steps"),
        ("limit = 0\n", SettingError, "limit is 0"),
        ('queries = "./nowhere.jsonl"\n', MissingPartError, "nowhere"),
        ('responses = "nowhere"\n', MissingPartError, "nowhere"),
        ('sts = "nowhere.jsonl"\n', MissingPartError, "nowhere"),
    ],
)
def test_what_is_wrong_with_a_teachers_recipe_is_said_before_anything_is_done(
    text: str | None, error: type[Exception], words: str, values: dict[str, Any], tmp_path: Path
) -> None:
    path = written(tmp_path, text) if text else tmp_path / "nowhere.toml"
    with pytest.raises(error, match=words):
        Stages(Recipe.from_values(own(values, path)), tmp_path / "out").run()
    assert not (tmp_path / "out").exists()


def test_settings_of_another_teacher_are_refused_before_anything_is_done(
    values: dict[str, Any], recipe_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=r"llm_prompt is for teacher llm, but the teacher is .*teacher\.toml"):
        Stages(Recipe.from_values({**own(values, recipe_file), "llm_prompt": "x"}), tmp_path / "out")


def test_what_a_teacher_has_from_its_student(tmp_path: Path) -> None:
    texts = {"queries": tmp_path / "q.jsonl", "responses": tmp_path / "r"}
    mine = BackboneSettings("mine", revision="abc", device="cpu", dtype="float32", trust_remote_code=True)
    path = written(tmp_path, 'column = "question"\n')
    recipe = recipe_within(str(path), texts, mine, 5)
    assert recipe.backbone == mine
    assert (recipe.training.seed, recipe.texts) == (
        5,
        TextSettings(str(texts["queries"]), responses=str(texts["responses"])),
    )
    other = recipe_within(str(written(tmp_path, 'backbone = "other"\n')), texts, mine, 5)
    assert other.backbone == BackboneSettings("other", device="cpu", dtype="float32")  # nobody said that it is trusted


def test_targets_are_of_the_teacher_in_the_type_it_was_trained_in(
    values: dict[str, Any], recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr("afterword.flow.stages.embed_targets", lambda teacher, *rest: seen.append(teacher) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Stages(Recipe.from_values({**own(values, recipe_file), "dtype": "float32"}), tmp_path / "out").run()
    assert [teacher.backbone.dtype for teacher in seen] == [torch.float32]


def test_a_stage_that_is_left_out_later_is_refused(values: dict[str, Any], recipe_file: Path, tmp_path: Path) -> None:
    Stages(Recipe.from_values(own(values, recipe_file)), tmp_path / "out").run()
    kept = (tmp_path / "out/teacher/recipe.toml").read_bytes()
    recipe_file.write_text(QUICK.replace("simcse_steps = 2", "simcse_steps = 0"))
    with pytest.raises(MismatchError, match="holds a teacher after simcse, which simcse_steps 0 leaves out"):
        Stages(Recipe.from_values(own(values, recipe_file)), tmp_path / "out").run()
    assert (tmp_path / "out/teacher/recipe.toml").read_bytes() == kept


def test_the_recipe_is_there_while_the_teacher_is_trained(
    recipe_file: Path, tmp_path: Path, saved_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = TeacherRecipe.read(recipe_file, queries="demo", backbone=str(saved_folders["llama"]), dtype="float32")
    monkeypatch.setattr("afterword.training.loop.Loop.step", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train_recipe(recipe, tmp_path / "out", Silent())
    assert TeacherRecipe.read(tmp_path / "out" / "recipe.toml") == recipe


def test_without_peft_nothing_is_begun(
    values: dict[str, Any], recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("afterword.extras.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"peft.*pip install 'afterword\[teacher\]'"):
        Stages(Recipe.from_values(own(values, recipe_file)), tmp_path / "out").run()
    assert not (tmp_path / "out").exists()


def test_a_recipe_is_no_teacher_that_could_be_opened(recipe_file: Path) -> None:
    with pytest.raises(SettingError, match=r"teacher\.toml is a recipe: `afterword teacher train --recipe"):
        open_teacher(str(recipe_file))
