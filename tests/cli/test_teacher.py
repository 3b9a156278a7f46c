"""`afterword teacher`: train, encode, merge; and a student's targets from what was trained."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from afterword.cli.main import main
from afterword.teacher.open import open_teacher
from tests.cli.conftest import TEXTS, done

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
