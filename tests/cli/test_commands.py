"""The real command: every stage in a process of its own, and in this one with --json."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from afterword.cli.train import parse
from tests.cli.conftest import TEXTS, done
from tests.world import as_users_run_it

SIGNS = "café ☃ 👩‍👩‍👧"
QUICK = ["--n-compression", "3", "--max-length", "160", "--batch-size", "4", "--validation", "4", "--eval-every", "1"]


def direct(model: Path, texts: list[str], **options: Any) -> NDArray[np.float32]:
    from afterword.model.model import Afterword

    vectors = Afterword.from_pretrained(str(model), dtype="float32").encode(texts, **options)
    assert isinstance(vectors, np.ndarray)
    return vectors


def test_the_whole_chain_in_processes_without_a_locale(
    queries: Path, teacher_folder: Path, saved_folders: dict[str, Path], tmp_path: Path
) -> None:
    """Under LC_ALL=C, with names and texts that no ASCII can hold (CASES C52)."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    environment = {**kept, "LC_ALL": "C", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    at = tmp_path / SIGNS
    backbone = ["--backbone", str(saved_folders["qwen3"]), "--dtype", "float32"]

    def command(*arguments: object, text: str | None = None) -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "afterword", *map(str, arguments)],
            env=environment,
            input=text.encode() if text else b"",
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode("utf-8"), done.stderr.decode("utf-8")

    out, err = command("respond", "--queries", queries, "--out", at / "r", "--max-new-tokens", 6, *backbone)
    assert out == f"{at / 'r'}\n"
    assert "12 written, 0 kept" in err
    assert SIGNS in (at / "r" / "part-00000.jsonl").read_text(encoding="utf-8")

    out, err = command("target", "--responses", at / "r", "--teacher", teacher_folder, "--out", at / "t")
    assert out == f"{at / 't'}\n"
    assert f"embedded by {teacher_folder}" in err

    out, err = command("train", "--responses", at / "r", "--targets", at / "t", "--out", at / "run", *QUICK, *backbone)
    assert out == f"{at / 'run' / 'model'}\n"
    assert re.search(r"\d steps, \d empty responses left out", err)

    model, texts = at / "run" / "model", [*TEXTS, SIGNS]
    command("encode", model, "-", "--out", at / "v.npy", "--dtype", "float32", text="\n".join(texts) + "\n")
    np.testing.assert_allclose(np.load(at / "v.npy"), direct(model, texts), atol=1e-5)

    out, _ = command("decode", model, SIGNS, "--max-new-tokens", 4, "--dtype", "float32")
    assert out.startswith(f"{SIGNS}\n  → ")

    reader, writer = os.pipe()
    os.close(reader)  # whoever read has left
    quiet = subprocess.run(
        [sys.executable, "-m", "afterword", "decode", str(model), "a", "b", "--max-new-tokens", "4"],
        env=environment,
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    assert (quiet.returncode, quiet.stderr) == (0, b"")


def test_every_stage_can_speak_json(
    queries: Path,
    teacher_folder: Path,
    backbone_flags: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    at = tmp_path / "out"
    short = ["--max-new-tokens", 6]
    found = json.loads(
        done(capsys, "respond", "--queries", queries, "--out", at / "r", *short, *backbone_flags, "--json")
    )
    assert (found["written"], found["kept"], found["out"]) == (12, 0, str(at / "r"))
    assert set(found) == {"kept", "written", "cut", "empty", "unfinished_thinking", "out"}
    found = json.loads(
        done(capsys, "respond", "--queries", queries, "--out", at / "r", *short, *backbone_flags, "--json")
    )
    assert (found["written"], found["kept"]) == (0, 12)

    target = ["target", "--responses", at / "r", "--teacher", teacher_folder, "--out", at / "t", "--json"]
    first, second = (json.loads(done(capsys, *target)) for _ in range(2))
    assert first["added"] > 0
    assert second == {"added": 0, "out": str(at / "t")}

    train = ["train", "--responses", at / "r", "--targets", at / "t", "--out", at / "run", *QUICK, *backbone_flags]
    found = json.loads(done(capsys, *train, "--json"))
    assert found["model"] == str(at / "run" / "model")
    assert [event["step"] for event in found["validation"]] == list(range(len(found["validation"])))
    assert json.loads(done(capsys, *train, "--json")) == found

    model, shown = at / "run" / "model", ["--dtype", "float32", "--json"]
    found = json.loads(done(capsys, "encode", model, queries, "--out", at / "v.parquet", *shown))
    assert found == {"texts": 12, "dimension": 24, "out": str(at / "v.parquet")}
    assert pq.read_table(at / "v.parquet")["id"].to_pylist() == [str(i) for i in range(12)]

    lines = done(capsys, "decode", model, "--input", queries, "--max-new-tokens", 4, *shown).splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["text"] for row in rows] == TEXTS
    assert all(isinstance(row["decoded"], str) for row in rows)
    assert "☃" in lines[0]

    encoded = done(
        capsys,
        "encode",
        model,
        queries,
        "--out",
        at / "q.npy",
        "--normalize",
        "--prompt",
        "query: ",
        "--dtype",
        "float32",
    )
    assert encoded == f"{at / 'q.npy'}\n"
    wanted = direct(model, TEXTS, prompt="query: ", normalize_embeddings=True)
    np.testing.assert_allclose(np.load(at / "q.npy"), wanted, atol=1e-5)


def test_run_carries_out_a_recipe_and_the_second_time_finds_it_done(
    queries: Path,
    teacher_folder: Path,
    saved_folders: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'queries = "{queries}"\nbackbone = "{saved_folders["qwen3"]}"\nteacher = "{teacher_folder}"\n'
        'dtype = "float32"\nmax_new_tokens = 6\nn_compression = 3\nmax_length = 160\nbatch_size = 4\nvalidation = 4\n',
        encoding="utf-8",
    )
    first, second = (json.loads(done(capsys, "run", recipe, "--out", tmp_path / "out", "--json")) for _ in range(2))
    assert first["model"] == str(tmp_path / "out" / "training" / "model")
    assert first["validation"][0]["step"] == 0
    assert second == first
    assert direct(Path(first["model"]), ["a"]).shape == (1, 24)


def test_the_demo_writes_a_page_and_prints_a_report(
    teacher_folder: Path, saved_folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    command = ["demo", "--out", out, "--backbone", saved_folders["qwen3"], "--teacher", teacher_folder, "--limit", 12]
    report = json.loads(done(capsys, *command, "--json"))
    assert (report["queries"], len(report["systems"])) == (12, 4)
    assert (out / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    text = done(capsys, *command)
    assert "RETRIEVAL BY ANSWER" in text
    assert text.endswith(f"The same as a page: {out / 'report.html'}\n")


def test_texts_come_line_by_line_from_stdin(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{SIGNS}\r\nwhy?\n".encode())))
    lines = done(capsys, "decode", model, "--input", "-", "--max-new-tokens", 2, "--json", "--dtype", "float32")
    assert [json.loads(line)["text"] for line in lines.splitlines()] == [SIGNS, "why?"]


@pytest.fixture
def model(tmp_path: Path, saved_folders: dict[str, Path]) -> Path:
    """An untrained model on a tiny backbone."""
    from afterword.model.model import Afterword

    fresh = Afterword.from_backbone(str(saved_folders["llama"]), dtype="float32", n_compression=3)
    fresh.save_pretrained(str(tmp_path / "model"))
    return tmp_path / "model"


def test_ids_of_a_column_come_with_the_vectors(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "docs.csv"
    table.write_text('key,body\nd1,"a, b"\nd2,☃\n', encoding="utf-8")
    flags = ["--column", "body", "--id-column", "key", "--dtype", "float32"]
    done(capsys, "encode", model, table, "--out", tmp_path / "v.parquet", *flags)
    done(capsys, "encode", model, table, "--out", tmp_path / "v.npy", *flags)
    found = pq.read_table(tmp_path / "v.parquet")
    assert found["id"].to_pylist() == ["d1", "d2"]
    np.testing.assert_allclose(np.array(found["embedding"].to_pylist()), direct(model, ["a, b", "☃"]), atol=1e-5)
    assert (tmp_path / "v.ids.txt").read_text() == "d1\nd2\n"


def test_layers_are_compiled_where_it_is_asked_for_and_not_otherwise(
    model: Path, queries: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("afterword.backbone.backbone.Backbone.compile", lambda self: asked.append(self.name))
    given = ["encode", model, queries, "--out", tmp_path / "v.npy", "--dtype", "float32"]
    done(capsys, *given)
    assert asked == []
    done(capsys, *given, "--compile")
    assert len(asked) == 1


ARTEFACTS = ["--responses", "r", "--targets", "t", "--out", "x"]


@pytest.mark.parametrize("given", [["--preset", "paper-v1"], ["--preset=paper-v1"]])
def test_a_preset_sets_what_no_flag_does(given: list[str]) -> None:
    with as_users_run_it():  # what is still missing is marked by an object of another type
        settings = parse([*ARTEFACTS, *given, "--lr", "5e-4", "--n-thought", "4"])
    assert (settings.training.lr, settings.model.n_thought) == (5e-4, 4)
    assert (settings.training.warmup_steps, settings.training.recon_reduction) == (100, "sum")
    assert (settings.training.warm_start, settings.model.n_compression) == (False, 10)
    assert (settings.out, settings.resume) == (Path("x"), True)


def test_without_a_preset_the_defaults_are_those_of_python() -> None:
    from afterword.model.settings import ModelSettings
    from afterword.training.settings import TrainSettings

    settings = parse([*ARTEFACTS, "--no-resume"])
    assert (settings.training, settings.model, settings.resume) == (TrainSettings(), ModelSettings(), False)
