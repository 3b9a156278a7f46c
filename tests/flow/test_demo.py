"""The demo from end to end, on a tiny backbone and a tiny teacher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from afterword.flow import demo as module
from afterword.flow.demo import DemoReport, _ranks, run_demo
from afterword.flow.progress import Silent
from afterword.machine import processor_name

NAMES = ["mean pooling", "before training", "after the warm start", "after training"]


@pytest.fixture
def overrides(saved_folders: dict[str, Path], teacher_folder: Path) -> dict[str, Any]:
    return {
        "backbone": str(saved_folders["qwen3"]),
        "teacher": str(teacher_folder),
        "dtype": "float32",
        "limit": 24,
        "max_new_tokens": 8,
        "batch_size": 8,
        "epochs": 1.0,
    }


def test_ranks_by_hand() -> None:
    """Of three questions the first finds its document first, the second as third, the third as second."""
    scores = np.array([[0.9, 0.1, 0.2], [0.3, 0.1, 0.2], [0.5, 0.1, 0.4]])
    questions = [{"document": "a"}, {"document": "b"}, {"document": "c"}]
    documents = [{"id": "a"}, {"id": "b"}, {"id": "c"}]
    assert _ranks(scores, questions, documents) == pytest.approx((1 / 3, (1 + 1 / 3 + 1 / 2) / 3))


def test_the_demo_measures_shows_and_reuses(
    overrides: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = run_demo(tmp_path, Silent(), overrides)
    assert report.queries == 24
    assert report.steps > 0
    assert all(system.name.startswith(name) for system, name in zip(report.systems, NAMES, strict=True))
    assert all(0 <= system.top1 <= system.mrr <= 1 for system in report.systems)
    warm, trained = report.systems[2].validation, report.systems[3].validation
    assert set(warm) == set(trained) == {"recon", "align", "cosine", "retrieval"}
    assert warm != trained
    assert (warm["align"], trained["align"]) == (report.curve[0]["align"], report.curve[-1]["align"])
    assert len(report.hits) == 8
    for hit in report.hits:
        cosines = [score for _, score in hit.documents]
        assert cosines == sorted(cosines, reverse=True)
        assert all(-1.0001 <= score <= 1.0001 for score in cosines)
    assert {"queries", "backbone", "responses", "targets", "training", "measures"} <= set(report.seconds)
    assert report.machine["dtype"] == "float32"
    assert report.machine["processor"] == processor_name()
    assert Path(report.model).is_dir()
    assert DemoReport.from_json(report.to_json()) == report
    assert DemoReport.from_json((tmp_path / "report.json").read_text(encoding="utf-8")) == report

    monkeypatch.setattr(module, "_measures", None)  # called, it would fail
    assert run_demo(tmp_path, Silent(), overrides) == report


def test_measures_of_another_model_are_taken_again(
    overrides: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_demo(tmp_path, Silent(), {**overrides, "limit": 12})
    stale = first.to_json().replace(first.fingerprint, "0" * 16)
    (tmp_path / "report.json").write_text(stale, encoding="utf-8")
    again = run_demo(tmp_path, Silent(), {**overrides, "limit": 12})
    assert again.fingerprint == first.fingerprint
    assert again.systems == first.systems
    assert again.hits == first.hits


def test_a_report_that_cannot_be_read_is_written_again(overrides: dict[str, Any], tmp_path: Path) -> None:
    """As an older version might have left it."""
    first = run_demo(tmp_path, Silent(), {**overrides, "limit": 12})
    for text in ("{", '{"backbone": "demo"}', "[]"):
        (tmp_path / "report.json").write_text(text, encoding="utf-8")
        assert run_demo(tmp_path, Silent(), {**overrides, "limit": 12}).systems == first.systems
