"""Our instructions: one for every task of the benchmarks, under mteb's own names."""

from __future__ import annotations

import json
from pathlib import Path

import mteb
import pytest
from mteb.abstasks import AbsTaskRetrieval
from mteb.models.abs_encoder import AbsEncoder

from afterword.errors import MissingPartError, SettingError
from afterword.evaluation.instructions import Prompter, read_instructions
from afterword.evaluation.suites import BRIGHT, LITE, suite_tasks
from afterword.prompts import SUMMARISE, default_prompts, our_instructions


def test_every_task_of_the_suites_has_an_instruction_and_no_other_name_has() -> None:
    names = {task.metadata.name for suite in ("mteb-eng-v2", "bright", "advbench-ir") for task in suite_tasks(suite)}
    assert len(names) == 41 + 12 + 1
    assert set(our_instructions().tasks) == names


def test_tasks_with_documents_have_an_instruction_for_them_and_no_others() -> None:
    for suite in ("mteb-eng-v2", "bright", "advbench-ir"):
        for task in suite_tasks(suite):
            instruction = our_instructions().tasks[task.metadata.name]
            assert (instruction.document is not None) == isinstance(task, AbsTaskRetrieval), task.metadata.name


def test_instructions_say_what_to_produce() -> None:
    verbs = ("Generate", "Name", "Say", "Summarize", "State", "Translate", "Describe")
    for group in (our_instructions().tasks, our_instructions().types):
        for name, instruction in group.items():
            for words in filter(None, (instruction.query, instruction.document)):
                assert words.startswith(verbs) and words[-1].isalnum(), (name, words)


def test_the_lite_suite_is_a_part_of_the_english_one() -> None:
    assert {task.metadata.name for task in suite_tasks("mteb-lite")} == set(LITE)
    assert [task.metadata.name for task in suite_tasks("bright")] == list(BRIGHT)


def test_saved_prompts_are_names_that_mteb_accepts() -> None:
    known = {name: text for name, text in default_prompts().items() if not name.startswith("AdvBench-IR")}
    assert AbsEncoder.validate_task_to_prompt_name(known) == known


def test_a_saved_model_and_our_table_say_the_same() -> None:
    """sentence-transformers and mteb find in the saved prompts what `afterword evaluate` takes from the table."""
    generative = Prompter("generative", our_instructions(), {})
    own = Prompter("own", our_instructions(), {k: v for k, v in default_prompts().items() if v})
    for suite in ("mteb-eng-v2", "bright"):
        for task in suite_tasks(suite):
            for side in ("query", "document") if isinstance(task, AbsTaskRetrieval) else (None,):
                asked = (task.metadata.name, task.metadata.type, side)
                assert own.prompt(*asked) == generative.prompt(*asked) != "", asked


def test_other_tasks_fall_back_to_their_type() -> None:
    prompter = Prompter("generative", our_instructions(), {})
    assert prompter.prompt("NFCorpus", "Retrieval", "query") == "Generate text that answers this query: "
    assert prompter.prompt("NFCorpus", "Retrieval", "document") == SUMMARISE
    assert prompter.prompt("SomethingNew", "STS", None) == "Generate text that is semantically similar to this text: "
    assert prompter.prompt("SomethingNew", "NoSuchType", None) == ""


def test_every_type_of_text_task_of_mteb_has_a_fallback() -> None:
    types = {task.metadata.type for task in mteb.get_tasks(modalities=["text"], exclusive_modality_filter=True)}
    assert types - set(our_instructions().types) <= {"ZeroShotClassification", "Any2AnyRetrieval"}  # of pictures


def test_a_file_goes_in_front(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"tasks": {"ArguAna": {"query": "Contradict this"}}, "types": {}}), encoding="utf-8")
    table = read_instructions(path)
    assert table.tasks["ArguAna"].prompt("query") == "Contradict this: "
    assert table.tasks["ArguAna"].prompt("document") == SUMMARISE
    assert table.tasks["FiQA2018"] == our_instructions().tasks["FiQA2018"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ('{"ArguAna": "x"}', 'holds instructions under "tasks" and "types"'),
        ('{"tasks": {"ArguAna": "x"}}', r'tasks, ArguAna: expected \{"query"'),
        ('{"tasks": {"ArguAna": {"query": 3}}}', "tasks, ArguAna: expected"),
        ('{"types": []}', "types must be an object"),
    ],
)
def test_a_wrong_file_is_named(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(SettingError, match=words):
        read_instructions(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingPartError, match="there is no file"):
        read_instructions(tmp_path / "gone.json")
