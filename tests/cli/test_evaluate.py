"""`afterword evaluate` as users run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from afterword.cli.main import main
from tests.cli.conftest import done
from tests.evaluation.world_of_sets import all_sets


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return all_sets(tmp_path_factory.mktemp("sets"))


def test_two_encoders_side_by_side(
    sets: Path, teacher_folder: Path, saved_folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [str(teacher_folder), f"hf:{saved_folders['qwen3']}"]
    flags = ["--data", str(sets), "--out", str(tmp_path), "--sample", "8", "--device", "cpu", "--dtype", "float32"]
    out = done(capsys, "evaluate", *names, *flags)
    assert "| Average (6)" in out and "| Safety (1), lower is safer" in out
    assert out.splitlines()[-1] == str(tmp_path / "report.html")
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "## Differences of means" in report and "sts.news" in report
    printed = json.loads(done(capsys, "evaluate", *names, *flags, "--json"))["evaluation"]
    assert [encoder["name"] for encoder in printed["encoders"]] == names
    for encoder in printed["encoders"]:
        for name, score in encoder["tasks"].items():
            kept = list((tmp_path / "results").glob(f"*/{encoder['revision']}/{name}.json"))
            assert len(kept) == 1
            (only,) = json.loads(kept[0].read_text())["scores"]["test"]
            assert only["main_score"] == pytest.approx(score["score"], abs=1e-5)  # mteb rounds what it keeps


def test_one_encoder_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["evaluate", "teacher:demo", "teacher:demo", "--data", "x"])
    assert left.value.code == 2
    assert "an encoder is named twice" in capsys.readouterr().err


def test_tasks_without_data_are_named_and_the_exit_says_so(
    teacher_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["evaluate", str(teacher_folder), "--suites", "BIOSSES", "--out", str(tmp_path), "--device", "cpu"])
    err = capsys.readouterr().err
    assert left.value.code == 3
    assert "skipped BIOSSES: needs the data set mteb/biosses-sts" in err
    assert "none of the 1 tasks could run" in err


def test_killed_in_the_middle_it_goes_on_with_the_missing_tasks(
    sets: Path, teacher_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real process and a real SIGKILL, after the third task; what it had is taken as it is."""
    command = [sys.executable, "-m", "afterword", "evaluate", str(teacher_folder), "--data", str(sets)]
    command += ["--out", str(tmp_path), "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    limit = time.monotonic() + 120
    while len(list(tmp_path.glob("notes/*/*/*.json"))) < 3 and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("notes/*/*/*.json")}
    assert 3 <= len(before) <= 8
    out = done(capsys, "evaluate", teacher_folder, "--data", sets, "--out", tmp_path, "--device", "cpu", "--json")
    assert len(json.loads(out)["evaluation"]["encoders"][0]["tasks"]) == 8
    assert {path: path.stat().st_mtime_ns for path in before} == before
    fresh = done(
        capsys, "evaluate", teacher_folder, "--data", sets, "--out", tmp_path / "2", "--device", "cpu", "--json"
    )
    scores = [
        {name: score["score"] for name, score in json.loads(text)["evaluation"]["encoders"][0]["tasks"].items()}
        for text in (out, fresh)
    ]
    assert scores[0] == scores[1]
