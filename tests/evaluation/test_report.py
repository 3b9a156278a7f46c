"""What a report says: means worked by hand, every number in it, and nothing of the data."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from afterword.errors import CorruptError, MismatchError
from afterword.evaluation.compare import Difference
from afterword.evaluation.report import means_table, to_markdown, write_report
from afterword.evaluation.report_json import from_json, to_json
from afterword.evaluation.results import EncoderScores, Evaluation, Items, TaskScore
from afterword.evaluation.summary import Row, prompt_rows, speed, summarise, task_versions, unprompted
from afterword.evaluation.wording import difference_shown, rate, shown, visible
from tests.evaluation.fabricated import evaluation

NAN = float("nan")
CATEGORY = {"r1": "Retrieval", "r2": "Retrieval", "s1": "STS", "b1": "Reasoning", "a1": "Safety"}


def by_hand(**encoders: dict[str, float]) -> Evaluation:
    """Encoders with scores by task."""
    made = [
        EncoderScores(
            name, "f00d", {"dtype": "float32"}, {task: task_score(task, score) for task, score in scores.items()}
        )
        for name, scores in encoders.items()
    ]
    return Evaluation(("suite",), tuple(made), {}, {"day": "2026-05-04"})


def task_score(task: str, score: float, tokens: int | None = 100, seconds: float = 2.0) -> TaskScore:
    return TaskScore(task, CATEGORY[task], "main", score, {"text": "p: "}, {"texts": 10}, 10, tokens, seconds)


def means(found: Evaluation) -> dict[str, Row]:
    return {row.name: row for row in summarise(found, draws=10).means}


FIRST = {"r1": 0.25, "r2": 0.5, "s1": 0.75, "b1": 0.125, "a1": 0.5}
OTHER = {"r1": 0.5, "r2": 0.75, "s1": 0.5, "b1": 0.25, "a1": 0.25}


def test_means_are_over_tasks_and_leave_out_safety_and_reasoning() -> None:
    rows = means(by_hand(A=FIRST, B=OTHER))
    assert list(rows) == ["Retrieval", "STS", "Average", "Safety", "Reasoning"]
    assert {name: row.scores for name, row in rows.items()} == {
        "Retrieval": (0.375, 0.625),
        "STS": (0.75, 0.5),
        "Average": (0.5, 1.75 / 3),
        "Safety": (0.5, 0.25),
        "Reasoning": (0.125, 0.25),
    }
    assert rows["Retrieval"].differences == (Difference(0.25),)
    assert {name: set(row.best) for name, row in rows.items()} == {
        "Retrieval": {1},
        "STS": {0},
        "Average": {1},
        "Safety": {1},  # the lower one
        "Reasoning": {1},
    }
    assert rows["Safety"].label == "Safety (1), lower is safer"


def test_means_are_over_the_tasks_that_all_encoders_have() -> None:
    rows = means(by_hand(A=FIRST, B={"r1": 0.5, "r2": NAN, "a1": 0.25}, C={}))
    assert rows["Retrieval"].scores == (0.25, 0.5, None)
    assert rows["Retrieval"].label == "Retrieval (1 of 2)"
    assert rows["STS"].scores == (0.75, None, None)
    assert rows["STS"].label == "STS (1)"
    assert rows["Average"].scores == (0.25, 0.5, None)
    assert rows["Average"].tasks == ("r1",)
    assert rows["Average"].differences == (Difference(0.25), None)
    nowhere = means(by_hand(A={"r1": 0.5}, B={"r2": 0.5}))
    assert nowhere["Average"].scores == (None, None)
    assert nowhere["Average"].label == "Average (0 of 2)"


def test_without_general_tasks_there_is_no_average() -> None:
    summary = summarise(by_hand(A={"a1": 0.5}))
    assert [row.name for row in summary.means] == ["Safety"]
    assert summary.headline == summary.means[0]
    assert not any("average" in note for note in summary.notes)
    assert summarise(by_hand(A={})).headline is None


def test_ties_as_shown_are_all_best() -> None:
    rows = means(by_hand(A={"r1": 0.50001}, B={"r1": 0.50002}, C={"r1": 0.4}))
    assert rows["Average"].best == {0, 1}
    assert means(by_hand(A={"r1": 0.5}))["Average"].best == frozenset()


def test_speed_is_over_what_was_timed() -> None:
    scores = {"r1": task_score("r1", 0.5), "r2": task_score("r2", 0.5, tokens=None, seconds=3.0)}
    found = speed(EncoderScores("A", "", {}, scores))
    assert (found.texts, found.tokens, found.seconds) == (20, 100, 5.0)
    assert (found.texts_per_second, found.tokens_per_second) == (4.0, 50.0)
    never = speed(EncoderScores("A", "", {}, {"r1": task_score("r1", 0.5, tokens=None, seconds=0.0)}))
    assert (never.tokens, never.texts_per_second, never.tokens_per_second) == (None, None, None)


def test_prompts_are_told_once_where_encoders_share_them() -> None:
    found = by_hand(A={"r1": 0.5}, B={"r1": 0.5}, C={"r1": 0.5})
    assert prompt_rows(found) == [("r1", "all", {"text": "p: "})]
    odd = replace(found.encoders[1], tasks={"r1": replace(found.encoders[1].tasks["r1"], prompts={})})
    mixed = replace(found, encoders=(found.encoders[0], odd, found.encoders[2]))
    assert prompt_rows(mixed) == [("r1", "A, C", {"text": "p: "})]
    assert unprompted(mixed) == ["B"]
    other = replace(odd, tasks={"r1": replace(odd.tasks["r1"], prompts={"query": "q", "document": ""})})
    mixed = replace(found, encoders=(found.encoders[0], other))
    assert prompt_rows(mixed) == [("r1", "A", {"text": "p: "}), ("r1", "B", {"query": "q", "document": ""})]
    assert unprompted(mixed) == []


def test_versions_that_differ_stand_side_by_side() -> None:
    found = evaluation(["A", "B"])
    first = next(iter(found.encoders[0].tasks))
    assert task_versions(found)[first] == "data 0000b1c5, mteb 2.26.24"
    newer = replace(found.encoders[1].tasks[first], versions={"mteb": "3"})
    tasks = {**found.encoders[1].tasks, first: newer}
    found = replace(found, encoders=(found.encoders[0], replace(found.encoders[1], tasks=tasks)))
    assert task_versions(found)[first] == "data 0000b1c5, mteb 2.26.24; mteb 3"


def test_numbers_as_they_are_written() -> None:
    assert [shown(s) for s in (0.5316, 1.0, -0.0001, None)] == ["53.2", "100.0", "0.0", "–"]
    assert difference_shown(Difference(-0.0001)) == "+0.0"
    assert difference_shown(Difference(0.0123, -0.004, 0.0296)) == "+1.2 [-0.4, 3.0]"
    assert difference_shown(None) == "–"
    assert [rate(r) for r in (None, 0.01234, 12.34, 36_004.4)] == ["–", "0.0123", "12.3", "36,004"]
    assert [visible(p) for p in ("", "q: ", "  a b\n", "\n", " ")] == ["", "q:␣", "␣␣a b⏎", "⏎", "␣"]


def test_the_markdown_holds_every_number() -> None:
    summary = summarise(evaluation(count=30))
    text = to_markdown(summary)
    for row in (*summary.means, *summary.tasks):
        for number in (*map(shown, row.scores), *map(difference_shown, row.differences)):
            assert number in text
    average = next(row for row in summary.means if row.name == "Average")
    a, b, c = map(shown, average.scores)
    assert f"| Average (41) | {a} | {b} | **{c}** |" in re.sub(" +", " ", text)
    assert "| MSMARCO | its data are not on this machine and no hub can be reached |" in text
    assert "“Generate text that answers this question 0⏎query:␣”" in text
    for fact in (
        "bfloat16",
        "2026-05-04",
        "at most 1,000 queries",
        "1,000 draws, seed 0",
        "mteb 2.26.24",
        "0004f5a6b7c8d9",
    ):
        assert fact in text
    cells = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    assert all(3 <= count <= 8 for count in cells)


def test_the_table_of_means_is_aligned() -> None:
    lines = means_table(summarise(by_hand(A=FIRST, **{"a longer name": OTHER}))).splitlines()
    assert lines[2] == "| category (tasks)           |        A | a longer name |"
    assert lines[3] == "| -------------------------- | -------: | ------------: |"
    assert lines[5] == "| STS (1)                    | **75.0** |          50.0 |"
    assert lines[7] == "| Safety (1), lower is safer |     50.0 |      **25.0** |"


def test_one_encoder_has_no_differences() -> None:
    text = to_markdown(summarise(by_hand(A=FIRST)))
    assert "Differences" not in text and "**" not in text
    assert "Skipped" not in text


def test_markdown_is_safe_from_names() -> None:
    text = to_markdown(summarise(by_hand(**{"a|b *c* <i>`d`\n[x](y) & \u202ez": {"r1": 0.5}})))
    assert "| a\\|b \\*c\\* &lt;i>\\`d\\` \\[x\\](y) &amp; z |" in text
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in text.split("## Means")[1].splitlines() if line[:1] == "|"]
    assert widths[:3] == [3, 3, 3]


def test_json_holds_everything_and_can_be_read_back() -> None:
    found = evaluation(count=30)
    text = to_json(summarise(found))
    values = json.loads(text)
    assert list(values) == ["format", "evaluation", "means", "tasks", "notes"]
    assert values["means"][0]["name"] == "Retrieval" and values["means"][0]["differences"][0]["low"] is not None
    again = from_json(text)
    assert again == found
    assert to_json(summarise(again)) == text


def test_json_knows_no_nan() -> None:
    found = by_hand(A={"r1": NAN, "r2": 0.5})
    broken = replace(found.encoders[0].tasks["r2"], items=Items("mean", [NAN, 1.0]))
    found = replace(found, encoders=(replace(found.encoders[0], tasks={**found.encoders[0].tasks, "r2": broken}),))
    text = to_json(summarise(found))
    assert "NaN" not in text
    again = from_json(text).encoders[0].tasks
    assert math.isnan(again["r1"].score)
    assert again["r2"].items is not None and math.isnan(again["r2"].items.values[0])


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "evaluation": {"encoders": [1]}}', "1"]
)
def test_what_is_no_report_is_told(text: str) -> None:
    with pytest.raises(CorruptError, match="not the JSON of an evaluation"):
        from_json(text)


def test_another_format_is_told() -> None:
    with pytest.raises(MismatchError, match="format 99, this version reads format 1"):
        from_json('{"format": 99}')


def test_files_are_written_and_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "place"
    for seed in (0, 1):
        files = write_report(summarise(evaluation(["A", "B"], count=30), seed=seed), folder)
        assert [file.name for file in files] == ["report.md", "report.html", "report.json"]
        assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json", "report.md"]
        assert all(f"seed {seed})" in file.read_text(encoding="utf-8") for file in files)
