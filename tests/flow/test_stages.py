"""All stages of a recipe on a tiny backbone and a tiny teacher, from files to a model and again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from afterword.corpus import responses as responses_module
from afterword.corpus.queries import open_queries
from afterword.corpus.responses import open_responses
from afterword.corpus.targets import open_targets
from afterword.errors import InputError, MismatchError, SettingError
from afterword.flow import stages as module
from afterword.flow.recipe import Recipe
from afterword.flow.stages import Stages
from afterword.model.model import Afterword
from tests.flow.conftest import TEXTS, Watched, contents

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def carried_out(values: dict[str, Any], folder: Path) -> tuple[Stages, Watched]:
    watched = Watched()
    stages = Stages(Recipe.from_values(values), folder, watched)
    stages.run()
    return stages, watched


def test_all_artefacts_are_made_and_belong_together(values: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    stages, watched = carried_out(values, out)
    assert [query.text for query in open_queries(out / "queries")] == TEXTS
    responses = open_responses(out / "responses")
    assert sorted(response.query for response in responses) == sorted(TEXTS)
    full = [response.text for response in responses if response.text]
    assert open_targets(out / "targets").lookup(full).shape == (len(full), 24)
    model = Afterword.from_pretrained(str(out / "training" / "model"), dtype="float32")
    assert model.encode(["a", "b"]).shape == (2, 24)
    assert model.config.teacher["name"] == values["teacher"]
    assert model.config.backbone == values["backbone"]

    assert watched.stages == ["queries", "backbone", "responses", "targets", "training"]
    assert watched.totals["responses"] == watched.counts["responses"] == 12
    assert watched.totals["targets"] == watched.counts["targets"] == len(set(full))
    assert watched.totals["training"] == watched.counts["training"] == -(-(len(full) - 4) // 4)
    assert watched.notes["queries"] == "kept 12 of 14 queries (1 empty, 1 duplicate)"
    assert watched.notes["responses"].startswith("12 written, 0 kept")
    assert set(stages.seconds) == set(watched.stages)


def test_the_recipe_is_kept_with_every_setting(values: dict[str, Any], tmp_path: Path) -> None:
    carried_out({**values, "preset": "paper-v2"}, tmp_path / "out")
    kept = tomllib.loads((tmp_path / "out" / "recipe.toml").read_text(encoding="utf-8"))
    assert {key: kept[key] for key in values} == values
    assert kept["warmup_steps"] == 100
    assert Recipe.read(tmp_path / "out" / "recipe.toml") == Recipe.from_values({**values, "preset": "paper-v2"})


def test_a_second_run_does_nothing_and_returns_the_same_model(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = carried_out(values, tmp_path / "out")
    before = contents(tmp_path / "out")

    def never(*_: object, **__: object) -> None:
        raise AssertionError("done again")

    monkeypatch.setattr(responses_module, "generate", never)
    monkeypatch.setattr("afterword.corpus.targets.encode_array", never)
    monkeypatch.setattr("afterword.training.loop.Loop.step", never)
    monkeypatch.setattr("afterword.training.train.fit_alignment", never)
    monkeypatch.setattr("afterword.training.train.fit_heads", never)
    monkeypatch.setattr(module, "load_queries", never)
    watched = Watched()
    again = Stages(Recipe.from_values(values), tmp_path / "out", watched)
    result = again.run()
    assert contents(tmp_path / "out") == before
    assert result.resumed_from == result.steps + 1  # behind the last step the head was fitted once more
    assert np.array_equal(
        result.model.encode(TEXTS),
        Afterword.from_pretrained(str(tmp_path / "out/training/model"), dtype="float32").encode(TEXTS),
    )
    assert watched.notes["queries"] == "12 queries, as read before"
    assert watched.notes["responses"].startswith("0 written, 12 kept")
    assert watched.notes["targets"].startswith("0 embedded")
    assert watched.notes["training"].endswith("done before")
    assert first.recipe == again.recipe


@pytest.mark.parametrize(
    ("change", "stage", "words"),
    [
        ({"limit": 8}, "queries", "settings.limit: it has null, you asked for 8"),
        ({"max_new_tokens": 9}, "responses", "settings.max_new_tokens: it has 8, you asked for 9"),
        ({"teacher_prompt": "p: "}, "targets", 'settings.teacher_prompt: it has "", you asked for "p: "'),
        ({"n_compression": 4}, "training", "settings.n_compression: it has 3, you asked for 4"),
        ({"lr": 0.5}, "training", "settings.lr: it has 0.01, you asked for 0.5"),
    ],
)
def test_a_changed_setting_is_refused_by_the_stage_that_it_belongs_to(
    change: dict[str, Any], stage: str, words: str, values: dict[str, Any], tmp_path: Path
) -> None:
    carried_out({"lr": 0.01, **values}, tmp_path / "out")
    with pytest.raises(MismatchError) as caught:
        carried_out({"lr": 0.01, **values, **change}, tmp_path / "out")
    assert str(caught.value).startswith(f"{tmp_path / 'out' / stage} was made in another way:")
    assert words in str(caught.value)


def test_another_backbone_in_the_same_folder_is_refused(
    values: dict[str, Any], tmp_path: Path, saved_folders: dict[str, Path]
) -> None:
    carried_out(values, tmp_path / "out")
    with pytest.raises(MismatchError, match=r"sources\.backbone"):
        carried_out({**values, "backbone": str(saved_folders["llama"])}, tmp_path / "out")


def test_the_llm_can_be_its_own_teacher(values: dict[str, Any], tmp_path: Path) -> None:
    stages, _ = carried_out({**values, "teacher": "llm"}, tmp_path / "out")
    targets = open_targets(tmp_path / "out" / "targets")
    texts = [response.text for response in open_responses(tmp_path / "out" / "responses") if response.text]
    vectors = targets.lookup(sorted(set(texts)))
    assert targets.dimension == stages.backbone.hidden_size == 32
    np.testing.assert_allclose(vectors.mean(axis=0), np.zeros(32), atol=1e-4)
    np.testing.assert_allclose(vectors.std(axis=0), np.ones(32), atol=1e-3)


def test_what_was_stopped_half_way_goes_on(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried_out(values, tmp_path / "whole")
    with monkeypatch.context() as broken:
        broken.setattr("afterword.flow.stages.embed_targets", None)
        with pytest.raises(TypeError):
            carried_out(values, tmp_path / "cut")
    carried_out(values, tmp_path / "cut")
    whole, cut = contents(tmp_path / "whole"), contents(tmp_path / "cut")
    for part in ("responses/part-00000.jsonl", "targets/part-00000.vec", "training/model/model.safetensors"):
        assert cut[part] == whole[part]


def test_a_queries_file_without_such_a_column_is_named(values: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"queries\.jsonl has no column 'question'; its columns are text"):
        carried_out({**values, "column": "question"}, tmp_path / "out")


def test_an_empty_queries_file_is_named(values: dict[str, Any], tmp_path: Path) -> None:
    Path(values["queries"]).write_bytes(b"")
    with pytest.raises(InputError, match=r"queries\.jsonl is empty"):
        carried_out(values, tmp_path / "out")


def test_demo_stands_for_the_queries_in_the_package(values: dict[str, Any], tmp_path: Path) -> None:
    stages = Stages(Recipe.from_values({**values, "queries": "demo"}), tmp_path / "out")
    (tmp_path / "out").mkdir()
    assert len(stages.queries()) >= 600
