"""Streams of texts and shared instructions, on tiny models of random weights."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from afterword.backbone.backbone import Backbone
from afterword.bench import pairs
from afterword.bench.stream import Moment, bench_stream, drawn_texts, tenths
from afterword.cli.main import main
from afterword.flow import encode_file
from afterword.flow.progress import Silent
from afterword.model.settings import ModelSettings
from tests.bench.test_bench import QUICK, config, report
from tests.world import make_backbone

__all__ = ["config"]
Capture = pytest.CaptureFixture[str]


def test_a_stream_is_looked_at_after_each_tenth(config: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode_file, "CHUNK", 8)
    found = report(capsys, "encode", config, "--stream", 100, "--batch-sizes", 8)
    assert found["name"] == "encode-stream" and found["settings"]["stream"] == 100
    rows = found["rows"]
    assert [row["stream"] for row in rows] == [f"{10 * i} %" for i in range(1, 11)]
    assert [row["texts"] for row in rows] == [16, 24, 32, 40, 56, 64, 72, 80, 96, 100]  # chunks of 8, the last is cut
    for row in rows:
        assert row["items/s"] > 0 and row["resident GB"] > 0.1
        assert row["time of first"] == pytest.approx(rows[0]["items/s"] / row["items/s"], rel=0.02)


def test_a_stream_goes_the_way_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """All texts, and the chunk before them that warms up, go through `encode_file` into a file."""
    monkeypatch.setattr(encode_file, "CHUNK", 4)
    counts: list[int] = []
    plain = encode_file.encode_file
    monkeypatch.setattr(encode_file, "encode_file", lambda *a: counts.append(plain(*a)))
    assert bench_stream(make_backbone("llama"), 40, 2, ModelSettings(n_compression=2), Silent())[-1]["texts"] == 40
    assert counts == [44]


def test_growth_and_slowing_are_seen() -> None:
    """From the third tenth on each text takes twice as long, and each tenth keeps a megabyte."""
    at, moments = 0.0, [Moment(0, 0.0, 3.0, 500_000_000)]
    for tenth in range(1, 11):
        at += 1.0 if tenth < 3 else 2.0
        moments.append(Moment(10 * tenth, at, 3.0 + tenth, 500_000_000 + tenth * 1_000_000))
    rows = tenths(moments)
    assert [row["time of first"] for row in rows] == [1.0, 1.0, *[2.0] * 8]
    assert [row["items/s"] for row in rows] == [10.0, 10.0, *[5.0] * 8]
    assert [row["CPU time of first"] for row in rows] == [1.0] * 10
    assert [row["growth MB"] for row in rows] == [float(i) for i in range(10)]
    assert rows[-1]["resident GB"] == 0.51


def test_texts_are_drawn_from_a_file_or_from_the_demo(tmp_path: Path) -> None:
    own = tmp_path / "texts.txt"
    own.write_text("one\ntwo\nthree\n", encoding="utf-8")
    assert set(drawn_texts(str(own), 50, seed=0)) == {"one", "two", "three"}
    drawn = list(drawn_texts(None, 200, seed=0))
    assert drawn == list(drawn_texts(None, 200, seed=0)) != list(drawn_texts(None, 200, seed=1))
    assert len({len(text) for text in drawn}) > 30  # mixed lengths


def test_a_stream_too_short_to_be_divided_is_refused(config: Path, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as left:
        main(["bench", "encode", "--config", str(config), "--stream", "10239", "--device", "cpu"])
    assert left.value.code == 2
    assert "a stream of 10239 texts: at least 10240 are needed" in capsys.readouterr().err


def test_compiled_layers_stand_beside_those_as_they_are(
    config: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What compiling does is tested with the backbone; here, that it is asked for, and switched off for the other."""
    asked: list[str] = []
    monkeypatch.setattr(Backbone, "compile", lambda self: asked.append("compile"))
    monkeypatch.setattr(pairs, "eagerly", lambda: asked.append("eager") or nullcontext())
    found = report(capsys, "encode", config, "--compile", "--query-tokens", 9, "--batch-sizes", 2)
    assert found["name"] == "encode-compile"
    assert asked == ["compile", *["eager"] * 3]  # the warm-up and two repeats
    assert set(found["rows"][0]) >= {"first s", "compiled items/s", "eager items/s", "faster by"}


@pytest.mark.parametrize("wrong", [["encode", "--compile", "--shared-instruction"], ["train", "--compile"]])
def test_cases_of_encoding_come_one_at_a_time(wrong: list[str], config: Path, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as left:
        main(["bench", *wrong, "--config", str(config)])
    assert left.value.code == 2
    assert "are for encode, one at a time" in capsys.readouterr().err


def test_an_instruction_run_once_stands_beside_one_run_for_each_text(config: Path, capsys: Capture) -> None:
    asked = ["--shared-instruction", "--query-tokens", 30, 60, "--batch-sizes", 3]
    found = report(capsys, "encode", config, *asked)
    assert found["name"] == "encode-instruction"
    assert [(row["tokens"], row["instruction"], row["batch"]) for row in found["rows"]] == [(30, 10, 3), (60, 20, 3)]
    for row in found["rows"]:
        ratio = row["shared items/s"] / row["repeated items/s"]
        assert 0.3 * ratio < row["faster by"] < 3 * ratio
    with pytest.raises(SystemExit):
        main(list(map(str, ["bench", "encode", "--config", config, *QUICK, *asked, "--query-tokens", 2])))
    assert "a third of a text is an instruction" in capsys.readouterr().err
