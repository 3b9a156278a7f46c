"""The command, on a tiny model of random weights: every number is there and adds up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from afterword.bench.grid import Grid
from afterword.bench.report import markdown_table
from afterword.bench.work import make_work
from afterword.cli.main import main
from afterword.errors import SettingError
from tests.cli.conftest import done
from tests.world import make_backbone, make_model

QUICK = ["--warmup", 1, "--repeats", 2, "--device", "cpu", "--dtype", "float32", "--json"]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("config")
    make_model("qwen3").config.save_pretrained(folder)
    return folder


def report(capsys: pytest.CaptureFixture[str], kind: str, config: Path, *more: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done(capsys, "bench", kind, "--config", config, *QUICK, *more))
    return found


@pytest.mark.parametrize("kind", ["train", "encode", "respond", "mntp", "simcse"])
def test_each_length_and_batch_is_a_row(kind: str, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = ["--query-tokens", 5, 9, "--batch-sizes", 2, 3, "--response-tokens", 4]
    found = report(capsys, kind, config, *grid)
    rows = found["rows"]
    assert [(row["tokens"], row["batch"]) for row in rows] == [(5, 2), (5, 3), (9, 2), (9, 3)]
    for row in rows:
        items = row["batch"] * (4 if kind == "encode" else 1)
        assert row["items/s"] == pytest.approx(items / row["s"], rel=0.05)
        assert 0 <= row["of ceiling"] < 1.5
        assert row["process GB"] > 0.1
        assert row["tokens/s"] > row["items/s"]
    assert found["machine"]["dtype"] == "float32"
    assert {"processor", "cores", "threads", "torch", "transformers", "afterword"} <= set(found["machine"])


def test_the_floor_counts_and_runs_nothing_else(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["what"]: row for row in report(capsys, "floor", config)["rows"]}
    assert set(rows) == {"train", "train, alignment only", "train, naive", "encode", "respond"}
    assert rows["train, naive"]["items/s at most"] < rows["train"]["items/s at most"]


def test_results_are_written_as_json_and_markdown(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--config", config, "--out", tmp_path / "out", *QUICK[:-1], "--query-tokens", 4, "--batch-sizes", 1]
    printed = done(capsys, "bench", "encode", "--instruction-tokens", 12, *asked)
    assert (tmp_path / "out" / "encode.md").read_text(encoding="utf-8") == printed
    assert printed.startswith("| tokens | batch |")
    assert json.loads((tmp_path / "out" / "encode.json").read_text(encoding="utf-8"))["name"] == "encode"


def test_a_benchmark_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["bench", "speed"])
    assert left.value.code == 2
    assert "there is no benchmark 'speed'; there are train, encode, respond, floor" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [{"repeats": 0}, {"warmup": -1}, {"query_tokens": ()}, {"query_tokens": (0,)}, {"batch_sizes": (4, -1)}]
)
def test_a_grid_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(wrong))):
        Grid(**wrong)


def test_work_has_the_lengths_asked_for_and_is_the_same_again() -> None:
    backbone = make_backbone("llama")
    work = make_work(backbone, 60, 20, 8)
    lengths = [len(ids) for ids in backbone.text.plain(work.queries)]
    assert 17 < sum(lengths) / 60 < 23
    assert min(lengths) >= 9 and max(lengths) <= 32
    assert work == make_work(backbone, 60, 20, 8)
    assert len(set(work.queries)) > 50
    with pytest.raises(SettingError, match="0 response tokens"):
        make_work(backbone, 1, 1, 0)


def test_a_table_has_its_numbers_on_the_right() -> None:
    assert markdown_table([{"a": "x", "b": 1}, {"a": "long", "b": 20}]).splitlines() == [
        "| a    |  b |",
        "|------|---:|",
        "| x    |  1 |",
        "| long | 20 |",
    ]
    assert markdown_table([]) == ""
