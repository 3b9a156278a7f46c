"""`afterword teacher`: train, encode, merge; and a student's targets from what was trained."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from afterword.cli.flags import flag_value
from afterword.cli.main import main
from afterword.cli.teacher import TeacherTrain, parse
from afterword.errors import SettingError
from afterword.teacher.open import open_teacher
from tests.cli.conftest import TEXTS, done
from tests.world import as_users_run_it

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

QUICK = [
    *("--mntp-steps", "2", "--mntp-batch", "4", "--simcse-steps", "2", "--simcse-batch", "4"),
    *("--validation", "3", "--lora-rank", "2", "--eval-every", "1"),
]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    rows = [{"sentence1": TEXTS[i], "sentence2": TEXTS[-i], "score": i} for i in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_train_encode_merge_and_target(
    queries: Path, pairs: Path, tmp_path: Path, backbone_flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, flags = tmp_path / "teacher", [*QUICK, *backbone_flags]
    printed = done(capsys, "teacher", "train", "--queries", queries, "--out", out, "--sts", pairs, "--json", *flags)
    summary = json.loads(printed)
    assert summary["teacher"] == str(out / "simcse" / "teacher")
    assert [event["step"] for event in summary["validation"]["simcse"]] == [0, 1, 2]
    assert -100 <= summary["validation"]["simcse"][-1]["sts"] <= 100
    assert done(capsys, "teacher", "train", "--queries", queries, "--out", out, *flags) == f"{summary['teacher']}\n"

    file = tmp_path / "vectors.npy"
    where = ["--device", "cpu", "--dtype", "float32"]
    about = json.loads(done(capsys, "teacher", "encode", out, queries, "--out", file, "--json", *where))
    teacher = open_teacher(str(out), device="cpu", dtype="float32")
    assert about == {"texts": 12, "dimension": 32, "fingerprint": teacher.fingerprint, "out": str(file)}
    np.testing.assert_allclose(np.load(file), teacher.encode(TEXTS), atol=1e-5)

    merged = tmp_path / "merged"
    assert done(capsys, "teacher", "merge", out, "--out", merged, *where) == f"{merged}\n"
    tokenizer, model = AutoTokenizer.from_pretrained(merged), AutoModel.from_pretrained(merged)
    with torch.no_grad():
        states = model(**tokenizer(TEXTS[0], return_tensors="pt")).last_hidden_state[0]
    np.testing.assert_allclose(np.load(file)[0], states.mean(dim=0), atol=1e-5)

    responses, targets = tmp_path / "responses", tmp_path / "targets"
    done(capsys, "respond", "--queries", queries, "--out", responses, "--max-new-tokens", 5, *backbone_flags)
    done(capsys, "target", "--responses", responses, "--teacher", out, "--out", targets, "--device", "cpu")
    found = json.loads((targets / "manifest.json").read_text())
    assert found["settings"]["dimension"] == 32

    with pytest.raises(SystemExit) as left:
        main(["target", "--responses", str(responses), "--teacher", "llm", "--out", str(targets), *backbone_flags])
    assert left.value.code == 3
    complaint = capsys.readouterr().err
    assert f"made_with.teacher: it has {json.dumps(str(out))}" in complaint or "teacher" in complaint


def test_responses_are_learned_from_too(
    queries: Path, tmp_path: Path, backbone_flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    responses, out = tmp_path / "responses", tmp_path / "teacher"
    done(capsys, "respond", "--queries", queries, "--out", responses, "--max-new-tokens", 5, *backbone_flags)
    with pytest.raises(SystemExit) as left:
        given = ["--queries", str(queries), "--responses", str(responses), "--out", str(out)]
        main(["teacher", "train", *given, *QUICK, *backbone_flags])
    assert left.value.code == 0
    err = capsys.readouterr().err
    count = int(err.split(" texts;")[0].split()[-1])
    assert 12 < count <= 24


def recipe_of(folder: Path, text: str) -> Path:
    path = folder / "teacher.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_win_over_a_recipe_and_both_over_the_defaults(queries: Path, tmp_path: Path) -> None:
    path = recipe_of(tmp_path, f'queries = "{queries}"\nkept_tokens = 2\ntemperature = 0.2\npooling = "last"\n')
    for given in (["--recipe", str(path)], [f"--recipe={path}"]):
        with as_users_run_it():  # what is still missing is marked by an object of another type
            command = parse(["train", *given, "--temperature", "0.3", "--lora-rank", "4", "--out", "o"])
        assert isinstance(command, TeacherTrain)
        settings = command.settings
        assert (settings.texts.queries, settings.training.kept_tokens) == (str(queries), 2)
        assert (settings.training.temperature, settings.lora.lora_rank) == (0.3, 4)
        assert (settings.pooling.pooling, settings.pooling.attention) == ("last", "bidirectional")
        assert (settings.training.simcse_steps, command.out, command.resume) == (1000, Path("o"), True)


def test_a_recipe_is_carried_out_and_its_settings_are_kept(
    queries: Path, tmp_path: Path, backbone_flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = recipe_of(tmp_path, "mntp_steps = 0\nsimcse_steps = 2\nvalidation = 3\nlora_rank = 2\n"), tmp_path / "t"
    with as_users_run_it():
        done(capsys, "teacher", "train", "--recipe", path, "--queries", queries, "--out", out, *backbone_flags)
    kept = tomllib.loads((out / "recipe.toml").read_text(encoding="utf-8"))
    assert kept["queries"] == str(queries)
    assert {key: kept[key] for key in ("mntp_steps", "simcse_steps", "lora_rank", "attention")} == {
        "mntp_steps": 0,
        "simcse_steps": 2,
        "lora_rank": 2,
        "attention": "bidirectional",
    }
    before = {path: path.read_bytes() for path in out.rglob("*.safetensors")}
    with as_users_run_it():
        done(capsys, "teacher", "train", "--recipe", out / "recipe.toml", "--out", out)
    assert {path: path.read_bytes() for path in out.rglob("*.safetensors")} == before


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (None, 3, "no recipe"),
        ("temprature = 1\n", 2, "teacher.toml: unknown setting temprature; did you mean temperature?"),
        ("crop = 0.5\n", 2, "--queries"),
        ("crop = 0.5\ncrop = 0.1\n", 2, "teacher.toml is not TOML"),
    ],
)
def test_a_recipe_that_cannot_be_used_is_named(
    text: str | None, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recipe_of(tmp_path, text) if text else tmp_path / "nowhere.toml"
    with as_users_run_it(), pytest.raises(SystemExit) as left:
        main(["teacher", "train", "--recipe", str(path), "--out", str(tmp_path / "t")])
    assert (left.value.code, said in capsys.readouterr().err) == (code, True)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (["--x", "1"], None),
        (["--recipe", "a"], "a"),
        (["--recipe=a=b"], "a=b"),
        (["--recipe", "a", "--y", "--recipe", "b"], "b"),
        (["--recipe", "--out", "o"], None),
        (["--recipe"], None),
        (["--recipe", "None"], None),
    ],
)
def test_a_flag_that_is_read_early_means_what_it_means_later(given: list[str], value: str | None) -> None:
    assert flag_value(given, "--recipe") == value


@pytest.mark.parametrize("given", [["--recipe", ""], ["--recipe="]])
def test_an_empty_recipe_is_not_the_papers(given: list[str]) -> None:
    with pytest.raises(SettingError, match="--recipe is empty"):
        parse(["train", *given, "--queries", "q", "--out", "o"])


def test_wrong_words(tmp_path: Path, capsys: pytest.CaptureFixture[str], teacher_folder: Path) -> None:
    for arguments, code, said in (
        (["teacher"], 2, "usage: afterword teacher train | encode | merge"),
        (["teacher", "--help"], 0, "usage: afterword teacher train | encode | merge"),
        (["teacher", "teach"], 2, "there is no `afterword teacher teach`; there are train, encode, merge"),
        (["teacher", "merge", str(teacher_folder), "--out", str(tmp_path / "m")], 2, "has no adapters"),
        (["teacher", "encode", "./nowhere", "x.txt", "--out", "v.npy"], 3, "no folder ./nowhere"),
    ):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        printed = capsys.readouterr()
        assert (left.value.code, said in printed.out + printed.err) == (code, True), printed


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"sentence1": "a", "sentence2": "b"}, "score is missing"),
        ({"sentence1": "a", "sentence2": "b", "score": "high"}, "score is 'high': it must be a number"),
        ({"sentence1": "a", "sentence2": "b", "score": 1}, "has 1 pairs"),
    ],
)
def test_pairs_that_cannot_be_read_are_named(
    row: dict[str, object],
    said: str,
    queries: Path,
    tmp_path: Path,
    backbone_flags: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(SystemExit) as left:
        main(["teacher", "train", "--queries", str(queries), "--out", str(tmp_path / "t"), "--sts", str(path)])
    assert left.value.code == 2
    assert said in capsys.readouterr().err
