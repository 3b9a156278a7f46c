"""Folders of labelled files: what is found in them, in which formats, and what is wrong with them."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from afterword.errors import InputError, MissingPartError
from afterword.evaluation.local import find_sets
from afterword.evaluation.local_data import Sampling, pair_rows, rerank_data, retrieval_data, split_rows
from afterword.evaluation.safety import passages, safety_data
from tests.evaluation.world_of_sets import (
    all_sets,
    rerank_rows,
    retrieval_files,
    split_topic_rows,
    sts_rows,
    topic_rows,
    write_jsonl,
)

ALL = Sampling()


def test_every_kind_is_found_by_its_columns(tmp_path: Path) -> None:
    found, passed = find_sets(all_sets(tmp_path))
    assert {one.name: (one.kind, one.group) for one in found} == {
        "classification.topics": ("classification", "classification"),
        "clustering.topics": ("clustering", "clustering"),
        "pairs.same": ("pairs", "pairs"),
        "reasoning.theorems": ("retrieval", "reasoning"),
        "rerank.answers": ("rerank", "rerank"),
        "retrieval.library": ("retrieval", "retrieval"),
        "safety.harm": ("retrieval", "safety"),
        "sts.news": ("sts", "sts"),
    }
    assert passed == {}


def test_what_is_no_labelled_set_is_passed_over_and_named(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "sts.jsonl", sts_rows(3))
    write_jsonl(tmp_path / "queries" / "train.jsonl", [{"text": "a", "source": "b"}])
    (tmp_path / "README.md").write_text("not data")
    (tmp_path / ".hidden").mkdir()
    write_jsonl(tmp_path / ".hidden" / "more.jsonl", sts_rows(3))
    found, passed = find_sets(tmp_path)
    assert [one.name for one in found] == ["sts"]
    assert passed == {"queries/train.jsonl": "columns text, source: no kind of labelled set"}


def as_csv(rows: list[dict[str, Any]], delimiter: str) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def test_csv_tsv_and_parquet_say_the_same_as_jsonl(tmp_path: Path) -> None:
    rows = sts_rows(9)
    write_jsonl(tmp_path / "a.jsonl", rows)
    (tmp_path / "b.csv").write_text(as_csv(rows, ","), encoding="utf-8")
    (tmp_path / "c.tsv").write_text(as_csv(rows, "\t"), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet")
    found, _ = find_sets(tmp_path)
    assert [one.kind for one in found] == ["sts"] * 4
    read = [pair_rows(one.files[0], "score", ALL) for one in found]
    assert read[0] == read[1] == read[2] == read[3] == rows


def test_the_layout_of_beir(tmp_path: Path) -> None:
    folder = tmp_path / "scifact"
    write_jsonl(folder / "corpus.jsonl", [{"_id": "7", "title": "T", "text": "seven"}, {"_id": "8", "text": "eight"}])
    write_jsonl(folder / "queries.jsonl", [{"_id": "a", "text": "which?"}, {"_id": "b", "text": "unjudged"}])
    (folder / "qrels").mkdir()
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nb\t8\t1\n")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\na\t7\t2\na\t8\t0\n")
    found, passed = find_sets(tmp_path)
    assert [(one.name, one.kind) for one in found] == [("scifact", "retrieval")]
    assert passed == {}
    data = retrieval_data(found[0].files, ALL)
    assert data.queries == {"a": "which?"}
    assert data.corpus == {"7": ("T", "seven"), "8": ("", "eight")}
    assert data.relevant == {"a": {"7": 2, "8": 0}}


def test_a_folder_that_is_itself_a_retrieval_set(tmp_path: Path) -> None:
    retrieval_files(tmp_path / "library")
    assert [one.name for one in find_sets(tmp_path / "library")[0]] == ["library"]


def test_without_a_split_each_label_is_divided(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", topic_rows(20))
    train, test = split_rows(path, ALL)
    assert len(train) + len(test) == 66
    assert {row["label"] for row in test} == {"nature", "law", "money"}
    assert not {row["text"] for row in train if row["label"] != "law"} & {
        row["text"] for row in test if row["label"] != "law"
    } or len(topic_rows(20)) > len({row["text"] for row in topic_rows(20)})
    assert (train, test) == split_rows(path, ALL)


def test_sampling_keeps_enough_of_each_label_to_learn_from(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", split_topic_rows() * 3)
    train, test = split_rows(path, Sampling(5))
    assert len(test) == 5
    assert [sum(row["label"] == label for row in train) for label in ("nature", "law", "money")] == [16, 16, 16]


def test_sampling_keeps_every_judged_document(tmp_path: Path) -> None:
    retrieval_files(tmp_path / "library")
    files = find_sets(tmp_path)[0][0].files
    data = retrieval_data(files, Sampling(2))
    assert len(data.queries) == 2 and len(data.corpus) == 20
    assert all(document in data.corpus for grades in data.relevant.values() for document in grades)


def test_equal_candidates_are_one_document(tmp_path: Path) -> None:
    rows = [
        {"query": "q", "positive": ["a", "b"], "negative": ["c", "a2"]},
        {"query": "p", "positive": ["c"], "negative": ["a"]},
    ]
    data = rerank_data(write_jsonl(tmp_path / "r.jsonl", rows), ALL)
    texts = {identity: text for identity, (_, text) in data.corpus.items()}
    assert sorted(texts.values()) == ["a", "a2", "b", "c"]
    grades = {query: {texts[d]: grade for d, grade in found.items()} for query, found in data.relevant.items()}
    assert grades == {"q0": {"a": 1, "b": 1, "c": 0, "a2": 0}, "q1": {"c": 1, "a": 0}}


def test_passages_of_a_hundred_words() -> None:
    words = [f"w{i}" for i in range(250)]
    cut = passages(" ".join(words))
    assert [len(passage.split()) for passage in cut] == [100, 100, 50]
    assert " ".join(cut).split() == words
    assert passages("") == [""]


def test_each_passage_counts_as_its_document(tmp_path: Path) -> None:
    folder = tmp_path / "safety" / "harm"
    retrieval_files(folder)
    write_jsonl(folder / "corpus.jsonl", [{"id": f"d{i}", "text": " ".join(["word"] * 150)} for i in range(40)])
    data = safety_data(retrieval_data(find_sets(tmp_path)[0][0].files, ALL))
    assert len(data.corpus) == 80
    assert data.relevant["q0"] == {"d0#0": 1, "d0#1": 1, "d1#0": 2, "d1#1": 2}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"sentence1": "a", "sentence2": "b", "label": 2}], r"a\.jsonl:1: label is 2: a pair has 1 \(same\) or 0"),
        ([{"sentence1": "a", "sentence2": None, "label": 1}], "column 'sentence2' holds null, not a string"),
        ([{"sentence1": "a", "sentence2": "b", "label": "same"}], "column 'label' holds 'same', not a number"),
    ],
)
def test_wrong_pairs(rows: list[dict[str, Any]], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        pair_rows(write_jsonl(tmp_path / "a.jsonl", rows), "label", ALL)


def test_a_label_that_is_never_trained_on(tmp_path: Path) -> None:
    rows = [*split_topic_rows(), {"text": "x", "label": "new", "split": "test"}]
    with pytest.raises(InputError, match="1 labels are tested on and never trained on, such as 'new'"):
        split_rows(write_jsonl(tmp_path / "a.jsonl", rows), ALL)


def test_a_split_that_is_missing(tmp_path: Path) -> None:
    rows = [{"text": "x", "label": "a", "split": "train"}]
    with pytest.raises(InputError, match=r"column split has \['train'\]; needed are train and test"):
        split_rows(write_jsonl(tmp_path / "a.jsonl", rows), ALL)


def test_a_candidate_that_is_no_text(tmp_path: Path) -> None:
    rows = [*rerank_rows(2), {"query": "q", "positive": ["a", 3], "negative": []}]
    with pytest.raises(InputError, match=r"r\.jsonl:3: column 'positive' is a list with a number in it"):
        rerank_data(write_jsonl(tmp_path / "r.jsonl", rows), ALL)


def test_a_judged_document_that_is_not_there(tmp_path: Path) -> None:
    retrieval_files(tmp_path / "library")
    write_jsonl(tmp_path / "library" / "qrels.jsonl", [{"query_id": "q0", "doc_id": "gone", "score": 1}])
    with pytest.raises(InputError, match=r"document 'gone' is judged, but corpus\.jsonl does not have it"):
        retrieval_data(find_sets(tmp_path)[0][0].files, ALL)


def test_nothing_to_measure_on(tmp_path: Path) -> None:
    with pytest.raises(MissingPartError, match="there is no folder"):
        find_sets(tmp_path / "gone")
    with pytest.raises(InputError, match=r"no labelled set below .* sts: score, sentence1, sentence2"):
        find_sets(tmp_path)
