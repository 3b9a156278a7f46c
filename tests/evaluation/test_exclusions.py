"""BRIGHT's excluded documents where mteb's data set does not carry them (C58), and AdvBench-IR's rows from the hub."""

from __future__ import annotations

from typing import Any

import pytest
from datasets import Dataset
from mteb.abstasks import AbsTaskRetrieval

from afterword.errors import InputError, MismatchError
from afterword.evaluation.exclusions import DOMAINS, honour_exclusions
from afterword.evaluation.hub_safety import AdvBenchIR, pairs_of
from afterword.evaluation.local_tasks import task_metadata
from afterword.evaluation.suites import BRIGHT


class Bright(AbsTaskRetrieval):
    metadata = task_metadata("BrightAopsRetrieval", "Retrieval", "ndcg_at_10", "t2t", "1")


def loaded(top_ranked: Any = None) -> Bright:
    task = Bright()
    split = {
        "queries": Dataset.from_list([{"id": f"q{i}", "text": "x"} for i in range(3)]),
        "corpus": Dataset.from_list([{"id": f"d{i}", "title": "", "text": "y"} for i in range(4)]),
        "relevant_docs": {"q0": {"d0": 1}},
        "top_ranked": top_ranked,
    }
    task.dataset = {"default": {"standard": split}}
    return task


def rows(domain: str) -> list[dict[str, Any]]:
    assert domain == "aops"
    return [
        {"id": "q0", "excluded_ids": ["d1", "d3"]},
        {"id": "q1", "excluded_ids": ["N/A"]},
        {"id": "q2", "excluded_ids": ["unknown"]},
    ]


def ranked(task: Bright) -> Any:
    return task.dataset["default"]["standard"]["top_ranked"]


def test_excluded_documents_leave_the_ranking_of_their_query_only() -> None:
    task = loaded()
    assert honour_exclusions(task, rows) == 1
    assert ranked(task) == {"q0": ["d0", "d2"], "q1": ["d0", "d1", "d2", "d3"], "q2": ["d0", "d1", "d2", "d3"]}


def test_a_data_set_that_carries_them_is_left_alone() -> None:
    task = loaded({"q0": ["d0"]})
    assert honour_exclusions(task, rows) == 0
    assert ranked(task) == {"q0": ["d0"]}


def test_ids_that_do_not_belong_together_are_an_error_and_no_score() -> None:
    with pytest.raises(MismatchError, match=r"BrightAopsRetrieval: no excluded document of xlangai/BRIGHT is in the"):
        honour_exclusions(loaded(), lambda domain: [{"id": "q0", "excluded_ids": ["other"]}])


def test_domains_are_tasks_of_the_suite() -> None:
    assert set(DOMAINS) <= set(BRIGHT)


def test_rows_of_the_hub_become_requests_and_passages() -> None:
    data = pairs_of(
        [{"instruction": "ask", "passage": "tell", "title": "T"}, {"query": "ask more", "text": "tell more"}]
    )
    assert data.queries == {"q0": "ask", "q1": "ask more"}
    assert data.corpus == {"d0": ("T", "tell"), "d1": ("", "tell more")}
    assert data.relevant == {"q0": {"d0": 1}, "q1": {"d1": 1}}


def test_rows_without_a_passage_name_columns_and_show_no_text() -> None:
    with pytest.raises(
        InputError, match=r"item 0: no text under any of passage, .*; the columns are query, other"
    ) as caught:
        pairs_of([{"query": "harm", "other": "more harm"}])
    assert "harm" not in str(caught.value)


def test_the_suite_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    long = " ".join(["word"] * 150)
    found = Dataset.from_list([{"query": f"ask {i}", "passage": long} for i in range(3)])
    monkeypatch.setattr("afterword.evaluation.hub_safety.load_dataset", lambda source, split: found)
    task = AdvBenchIR()
    task.load_data()
    assert task.sizes == {"queries": 3, "documents": 6}
    assert task.dataset["default"]["test"]["relevant_docs"]["q1"] == {"d1#0": 1, "d1#1": 1}
