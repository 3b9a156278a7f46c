"""Recipes: one flat file with every setting."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from afterword.errors import MissingPartError, SettingError
from afterword.flow.presets import PRESETS
from afterword.flow.recipe import Recipe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def written(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recipe_sets_what_it_says_and_leaves_the_rest(tmp_path: Path) -> None:
    recipe = Recipe.read(
        written(
            tmp_path,
            'queries = "café.jsonl"\nbackbone = "Qwen/Qwen3-0.6B"\nn_thought = 3\nepochs = 2\nlimit = 50\n'
            'teacher = "llm"\nmax_new_tokens = 28\nwarm_start = false\nsystem = "Be brief."\nseed = 7\n',
        )
    )
    assert recipe.queries.queries == "café.jsonl"
    assert recipe.backbone.backbone == "Qwen/Qwen3-0.6B"
    assert (recipe.model.n_thought, recipe.model.n_compression) == (3, 10)
    assert (recipe.training.epochs, type(recipe.training.epochs)) == (2.0, float)
    assert recipe.queries.limit == 50
    assert recipe.targets.teacher == "llm"
    assert recipe.responses.max_new_tokens == 28
    assert recipe.training.warm_start is False
    assert recipe.responses.system == recipe.model.system == "Be brief."  # one name, one meaning
    assert recipe.queries.seed == recipe.training.seed == 7


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("epoch = 2", "unknown setting epoch; did you mean epochs?"),
        ("n_compresion = 2", "unknown setting n_compresion; did you mean n_compression?"),
        ('presets = "paper-v1"', "unknown setting presets; did you mean preset?"),
        ("zzzzzz = 1", "unknown setting zzzzzz"),
        ("[training]\nlr = 1.0", "training is a table, but a recipe is flat: write its settings without [training]"),
    ],
)
def test_a_typo_is_named_with_the_nearest_setting(line: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError) as caught:
        Recipe.read(written(tmp_path, f'queries = "q.jsonl"\n{line}\n'))
    assert str(caught.value) == f"{tmp_path / 'recipe.toml'}: {words}"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('epochs = "two"', "epochs is 'two', expected float"),
        ("epochs = true", "epochs is True, expected float"),
        ("batch_size = 2.5", "batch_size is 2.5, expected int"),
        ("batch_size = true", "batch_size is True, expected int"),
        ("warm_start = 1", "warm_start is 1, expected bool"),
        ("teacher = 3", "teacher is 3, expected str"),
        ("system = 3", "system is 3, expected str or nothing"),
        ("limit = [1]", "limit is [1], expected int or nothing"),
        ('placement = "front"', "placement is 'front', expected one of 'query', 'answer'"),
        ("standardise = true", "standardise is True, expected one of 'auto', 'yes', 'no', 'whiten'"),
    ],
)
def test_a_value_of_a_wrong_type_is_named(line: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError) as caught:
        Recipe.read(written(tmp_path, f'queries = "q.jsonl"\n{line}\n'))
    assert str(caught.value).endswith(words)


def test_a_value_out_of_range_is_refused_as_in_python(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="batch_size is 0: it must be at least 1"):
        Recipe.read(written(tmp_path, 'queries = "q"\nbatch_size = 0\n'))


def test_without_queries_there_is_nothing_to_do(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r'does not say which queries to use: add queries = "FILE"'):
        Recipe.read(written(tmp_path, "epochs = 2.0\n"))


@pytest.mark.parametrize("text", ["queries = \ny = 1\n", "queries = q.jsonl\n", "x = 1\nx = 2\n"])
def test_what_is_no_toml_is_named_with_its_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"recipe\.toml is not TOML: .*line [12]"):
        Recipe.read(written(tmp_path, text))


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_bytes(b'queries = "caf\xe9"')
    with pytest.raises(SettingError, match=r"recipe\.toml is not TOML"):
        Recipe.read(tmp_path / "recipe.toml")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingPartError, match=r"no recipe .*nowhere\.toml"):
        Recipe.read(tmp_path / "nowhere.toml")


def test_a_folder_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(MissingPartError, match="cannot read the recipe"):
        Recipe.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("paper-v1", {"n_thought": 10, "n_compression": 10, "recon_reduction": "sum", "align_reduction": "sum"}),
        ("paper-v2", {"n_thought": 0, "n_compression": 10, "recon_reduction": "mean", "align_reduction": "mean"}),
    ],
)
def test_presets_are_the_papers_settings(name: str, expected: dict[str, Any]) -> None:
    """AdamW at 3e-4, linear, 100 warm-up steps, batch 32, one epoch, 512 tokens for query and response; plain start."""
    values = Recipe.from_values({"queries": "q", "preset": name}).values()
    paper = {
        "lr": 3e-4,
        "lr_scale": "absolute",
        "warmup_steps": 100,
        "batch_size": 32,
        "epochs": 1.0,
        "max_length": 512,
        "max_query_tokens": 512,
        "max_new_tokens": 512,
        "max_response_tokens": 512,
        "placement": "query",
        "token_init": "random",
        "warm_start": False,
        "w_recon": 1.0,
        "w_align": 1.0,
        "recon_share": 1.0,
        "recon_every": 1,
        "position_share": 1.0,
        "document_share": 0.0,
    }
    assert {key: values[key] for key in (*paper, *expected)} == {**paper, **expected}


@pytest.mark.parametrize("name", PRESETS)
def test_own_values_win_over_those_of_a_preset(name: str) -> None:
    recipe = Recipe.from_values({"lr": 5e-4, "queries": "q", "preset": name, "n_thought": 1})
    assert (recipe.training.lr, recipe.model.n_thought, recipe.training.warmup_steps) == (5e-4, 1, 100)


def test_an_unknown_preset_is_named_with_those_there_are() -> None:
    with pytest.raises(SettingError, match="no preset is named 'paper'; there are paper-v1, paper-v2"):
        Recipe.from_values({"queries": "q", "preset": "paper"})


def test_a_recipe_written_out_is_toml_and_reads_back_as_itself(tmp_path: Path) -> None:
    recipe = Recipe.from_values(
        {
            "queries": 'C:\\my "texts"\tcafé ☃ 👩‍👩‍👧.jsonl',
            "system": "Line one\nline = two # no comment \x7f",
            "preset": "paper-v1",
            "lr": 1e-7,
            "limit": 10,
            "track": "wandb",
        }
    )
    text = recipe.to_toml()
    values = tomllib.loads(text)
    assert values == {key: value for key, value in recipe.values().items() if value is not None}
    assert Recipe.read(written(tmp_path, text)) == recipe


def test_every_setting_is_written_out() -> None:
    recipe = Recipe.from_values({"queries": "q"})
    left_out = {key for key, value in recipe.values().items() if value is None}
    assert left_out == {"revision", "system", "column", "id_column", "data_revision", "limit", "llm_layer"}
    assert set(tomllib.loads(recipe.to_toml())) == set(recipe.values()) - left_out
