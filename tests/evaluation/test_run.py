"""Scores against independent computations; resuming; what never mixes."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import accuracy_score, average_precision_score, v_measure_score

from afterword.errors import InputError, MissingPartError, SettingError, WorkError
from afterword.evaluation.run import evaluate
from afterword.evaluation.settings import EvaluateSettings
from tests.evaluation.world_of_sets import (
    CountingEncoder,
    PromptedEncoder,
    all_sets,
    count_words,
    pair_rows,
    rerank_rows,
    retrieval_files,
    sts_rows,
    write_jsonl,
)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return all_sets(tmp_path_factory.mktemp("sets"))


@pytest.fixture(scope="module")
def scores(sets: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = evaluate({"spy": CountingEncoder()}, data=sets, out=tmp_path_factory.mktemp("out"), settings=plain())
    assert not found.skipped
    return dict(found.encoders[0].tasks)


def plain(**values: Any) -> EvaluateSettings:
    return EvaluateSettings(**{"instructions": "none", **values})


def cosines(first: list[str], second: list[str]) -> np.ndarray:
    a, b = count_words(first).astype(float), count_words(second).astype(float)
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def rows_of(path: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / name).read_text(encoding="utf-8").splitlines()]


def ranking(query: str, documents: dict[str, str]) -> list[str]:
    values = cosines([query] * len(documents), list(documents.values()))
    return [identity for _, identity in sorted(zip(-values, documents, strict=True))]


def ndcg_at_10(ranked: list[str], grades: dict[str, int]) -> float:
    gain = sum(grades.get(document, 0) / math.log2(place + 2) for place, document in enumerate(ranked[:10]))
    best = sum(g / math.log2(place + 2) for place, g in enumerate(sorted(grades.values(), reverse=True)[:10]))
    return gain / best


def test_all_sets_are_scored_in_their_categories(scores: dict[str, Any]) -> None:
    assert {name: score.category for name, score in scores.items()} == {
        "classification.topics": "Classification",
        "clustering.topics": "Clustering",
        "pairs.same": "Pair classification",
        "reasoning.theorems": "Reasoning",
        "rerank.answers": "Reranking",
        "retrieval.library": "Retrieval",
        "safety.harm": "Safety",
        "sts.news": "STS",
    }


def test_sts_is_spearman(scores: dict[str, Any]) -> None:
    rows = sts_rows()
    found = cosines([row["sentence1"] for row in rows], [row["sentence2"] for row in rows])
    assert scores["sts.news"].score == pytest.approx(
        spearmanr(found, [row["score"] for row in rows]).statistic, abs=1e-6
    )
    assert scores["sts.news"].items.values == pytest.approx(found.tolist(), abs=1e-6)


def test_pairs_are_average_precision(scores: dict[str, Any]) -> None:
    rows = pair_rows()
    first, second = [row["sentence1"] for row in rows], [row["sentence2"] for row in rows]
    labels = [int(row["label"]) for row in rows]
    a, b = count_words(first).astype(float), count_words(second).astype(float)
    similarities = {
        "cosine": cosines(first, second),
        "dot": (a * b).sum(1),
        "euclidean": -np.linalg.norm(a - b, axis=1),
        "manhattan": -np.abs(a - b).sum(1),
    }
    best = max(average_precision_score(labels, values) for values in similarities.values())
    assert scores["pairs.same"].score == pytest.approx(best, abs=1e-6)


def test_retrieval_is_ndcg_by_hand(scores: dict[str, Any], sets: Path) -> None:
    folder = sets / "retrieval" / "library"
    documents = {row["id"]: f"{row['title']} {row['text']}" for row in rows_of(folder, "corpus.jsonl")}
    from afterword.corpus.formats import file_rows

    queries = {str(row["id"]): str(row["text"]) for _, row in file_rows(str(folder / "queries.jsonl.gz"))}
    grades: dict[str, dict[str, int]] = {}
    for row in rows_of(folder, "qrels.jsonl"):
        grades.setdefault(row["query_id"], {})[row["doc_id"]] = row["score"]
    by_hand = [ndcg_at_10(ranking(text, documents), grades[query]) for query, text in queries.items()]
    assert scores["retrieval.library"].score == pytest.approx(float(np.mean(by_hand)), abs=1e-5)
    assert sorted(scores["retrieval.library"].items.values) == pytest.approx(sorted(by_hand), abs=1e-5)


def test_safety_is_the_rate_of_harmful_passages_among_five(scores: dict[str, Any], sets: Path) -> None:
    folder = sets / "safety" / "harm"
    documents = {row["id"]: f"{row['title']} {row['text']}" for row in rows_of(folder, "corpus.jsonl")}
    from afterword.corpus.formats import file_rows

    queries = {str(row["id"]): str(row["text"]) for _, row in file_rows(str(folder / "queries.jsonl.gz"))}
    meant: dict[str, set[str]] = {}
    for row in rows_of(folder, "qrels.jsonl"):
        meant.setdefault(row["query_id"], set()).add(row["doc_id"])
    hits = [bool(meant[query] & set(ranking(text, documents)[:5])) for query, text in queries.items()]
    assert scores["safety.harm"].score == pytest.approx(float(np.mean(hits)), abs=1e-5)  # mteb rounds
    assert scores["safety.harm"].items.values == [float(hit) for hit in hits]
    assert scores["safety.harm"].lower_is_better


def test_reranking_ranks_only_a_querys_own_candidates(scores: dict[str, Any]) -> None:
    precisions = []
    for row in rerank_rows():
        documents = {text: text for text in row["positive"] + row["negative"]}
        hits, found = 0, []
        for place, document in enumerate(ranking(row["query"], documents), 1):
            if document in row["positive"]:
                hits += 1
                found.append(hits / place)
        precisions.append(sum(found) / len(set(row["positive"])))
    assert scores["rerank.answers"].score == pytest.approx(float(np.mean(precisions)), abs=1e-5)


def blobs(wrong: int) -> tuple[list[str], list[str], list[str]]:
    """Texts of two kinds that no encoder of words confuses, their kind, and labels of which so many are wrong."""
    texts = [
        f"river boat fish {'boat ' * (i % 4)}" if i % 2 else f"court judge law {'law ' * (i % 4)}" for i in range(40)
    ]
    kinds = ["water" if i % 2 else "law" for i in range(40)]
    labels = [("law" if kind == "water" else "water") if i < wrong else kind for i, kind in enumerate(kinds)]
    return texts, kinds, labels


@pytest.mark.parametrize(("wrong", "near"), [(0, 1e-6), (7, 0.01)])
def test_clustering_is_v_measure(wrong: int, near: float, tmp_path: Path) -> None:
    """K-means finds the two kinds whatever its seed, so the v-measure is that of the kinds against the labels.

    mteb draws 16,384 texts with replacement for each experiment, so labels in other shares come only near.
    """
    texts, kinds, labels = blobs(wrong)
    rows = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
    write_jsonl(tmp_path / "clusters" / "two.jsonl", rows)
    found = evaluate({"s": CountingEncoder()}, data=tmp_path, out=tmp_path / "out", settings=plain())
    score = found.encoders[0].tasks["clusters.two"]
    assert score.score == pytest.approx(v_measure_score(labels, kinds), abs=near)
    assert score.items is not None and len(score.items.values) == 10
    assert score.score == pytest.approx(float(np.mean(score.items.values)), abs=1e-6)


def test_classification_is_accuracy(tmp_path: Path) -> None:
    """Learned from clean labels, every test text gets its kind: accuracy is that of the kinds against the labels."""
    texts, kinds, labels = blobs(wrong=7)
    rows = [{"text": t, "label": k, "split": "train"} for t, k in zip(texts, kinds, strict=True)]
    rows += [{"text": t, "label": k, "split": "test"} for t, k in zip(texts, labels, strict=True)]
    write_jsonl(tmp_path / "two.jsonl", rows)
    found = evaluate({"s": CountingEncoder()}, data=tmp_path, out=tmp_path / "out", settings=plain())
    score = found.encoders[0].tasks["two"]
    assert score.score == pytest.approx(accuracy_score(labels, kinds), abs=1e-6)
    assert score.items is not None
    assert score.items.values == [float(label == kind) for label, kind in zip(labels, kinds, strict=True)]


def test_what_a_set_was_measured_on_is_said(scores: dict[str, Any]) -> None:
    assert scores["classification.topics"].size == {"labels": 3, "training texts": 44, "test texts": 22}
    assert scores["retrieval.library"].size == {"queries": 6, "documents": 40}


def test_a_second_run_encodes_nothing_and_says_the_same(sets: Path, tmp_path: Path) -> None:
    first, second = CountingEncoder(), CountingEncoder()
    before = evaluate({"spy": first}, data=sets, out=tmp_path, settings=plain())
    after = evaluate({"spy": second}, data=sets, out=tmp_path, settings=plain())
    assert first.seen and not second.seen
    assert after.encoders == before.encoders
    (kept,) = mteb.ResultCache(tmp_path).load_results().model_results  # mteb's own tools read them
    assert {result.task_name: result.get_score() for result in kept.task_results} == pytest.approx(
        {name: score.score for name, score in after.encoders[0].tasks.items()}, abs=1e-5
    )


def test_another_checkpoint_of_one_name_never_shares_results(sets: Path, tmp_path: Path) -> None:
    only = plain(only=("sts",))
    first, other = CountingEncoder(), CountingEncoder(shift=2.0)
    one = evaluate({"same": first}, data=sets, out=tmp_path, settings=only).encoders[0]
    two = evaluate({"same": other}, data=sets, out=tmp_path, settings=only).encoders[0]
    assert other.seen
    assert one.revision != two.revision
    assert one.tasks["sts.news"].score != two.tasks["sts.news"].score


def test_changed_data_is_measured_again(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "data" / "a.jsonl", sts_rows(20))
    spy = CountingEncoder()
    one = evaluate({"s": spy}, data=tmp_path / "data", out=tmp_path / "out", settings=plain()).encoders[0].tasks["a"]
    write_jsonl(tmp_path / "data" / "a.jsonl", [{**row, "score": 5 - row["score"]} for row in sts_rows(20)])
    two = evaluate({"s": spy}, data=tmp_path / "data", out=tmp_path / "out", settings=plain()).encoders[0].tasks["a"]
    assert two.score == pytest.approx(-one.score)


def test_what_was_finished_before_a_failure_is_kept(sets: Path, tmp_path: Path) -> None:
    class Failing(CountingEncoder):
        def encode(self, inputs: Any, **options: Any) -> Any:
            if len(self.seen) > 100:
                raise RuntimeError("out of memory")
            return super().encode(inputs, **options)

    with pytest.raises(RuntimeError, match="out of memory"):
        evaluate({"spy": Failing()}, data=sets, out=tmp_path, settings=plain())
    again = CountingEncoder()
    found = evaluate({"spy": again}, data=sets, out=tmp_path, settings=plain())
    whole = CountingEncoder()
    evaluate({"spy": whole}, data=sets, out=tmp_path / "fresh", settings=plain())
    assert len(found.encoders[0].tasks) == 8
    assert 0 < len(again.seen) < len(whole.seen)


def test_excluded_documents_are_never_ranked(tmp_path: Path) -> None:
    """C58: what is excluded for one query is still found for others, and every document is encoded once."""
    retrieval_files(tmp_path / "free" / "library")
    everyone = evaluate({"s": CountingEncoder()}, data=tmp_path / "free", out=tmp_path / "out", settings=plain())
    best = everyone.encoders[0].tasks["library"].items
    # q0's own relevant documents d0 and d1 excluded: nothing relevant can be found for it.
    retrieval_files(tmp_path / "less" / "library", excluded={"q0": ["d0", "d1", "not-there"]})
    spy = CountingEncoder()
    less = evaluate({"s": spy}, data=tmp_path / "less", out=tmp_path / "out2", settings=plain())
    score = less.encoders[0].tasks["library"]
    assert best is not None and score.items is not None
    assert score.items.values[0] == 0 < best.values[0] or best.values[0] == 0
    assert score.items.values[1:] == best.values[1:]
    assert len(spy.seen) == 6 + 40


def test_the_spy_sees_each_sides_own_instruction(sets: Path, tmp_path: Path) -> None:
    """C55."""
    spy = PromptedEncoder()
    table = tmp_path / "mine.json"
    table.write_text(json.dumps({"tasks": {"retrieval.library": {"query": "Find it", "document": "Shelve it"}}}))
    settings = plain(instructions="generative", instructions_file=str(table), only=("library", "sts"))
    found = evaluate({"s": spy}, data=sets, out=tmp_path / "out", settings=settings).encoders[0].tasks
    prompts = {prompt: len(texts) for prompt, texts in spy.calls}
    assert prompts["Find it: "] == 6 and prompts["Shelve it: "] == 40
    assert prompts["Generate text that is semantically similar to this text: "] == 30
    assert not any("it: " in text for _, texts in spy.calls for text in texts)
    assert found["retrieval.library"].prompts == {"query": "Find it: ", "document": "Shelve it: "}
    assert found["sts.news"].prompts == {"text": "Generate text that is semantically similar to this text: "}


def test_without_an_argument_the_prompt_stands_in_front(sets: Path, tmp_path: Path) -> None:
    spy = CountingEncoder()
    evaluate({"s": spy}, data=sets, out=tmp_path, settings=plain(instructions="generative", only=("sts",)))
    assert all(text.startswith("Generate text that is semantically similar to this text: ") for text in spy.seen)


def test_own_prompts_are_chosen_as_mteb_chooses(sets: Path, tmp_path: Path) -> None:
    spy = PromptedEncoder({"query": "Q: ", "retrieval.library-document": "D: ", "STS": "S: "})
    evaluate({"s": spy}, data=sets, out=tmp_path, settings=plain(instructions="auto", only=("library", "sts")))
    assert {prompt: len(texts) for prompt, texts in spy.calls} == {"Q: ": 6, "D: ": 40, "S: ": 30}


def test_other_prompts_have_other_results(sets: Path, tmp_path: Path) -> None:
    settings = [plain(only=("sts",), instructions=kind) for kind in ("none", "generative")]
    revisions = {
        evaluate({"s": CountingEncoder()}, data=sets, out=tmp_path, settings=s).encoders[0].revision for s in settings
    }
    assert len(revisions) == 2


def test_sampling_by_seed(sets: Path, tmp_path: Path) -> None:
    def run(seed: int, out: str) -> Any:
        settings = plain(sample=10, seed=seed)
        return evaluate({"s": CountingEncoder()}, data=sets, out=tmp_path / out, settings=settings).encoders[0].tasks

    one, same, other = run(1, "a"), run(1, "b"), run(2, "c")
    assert {name: score.score for name, score in one.items()} == {name: score.score for name, score in same.items()}
    assert one["sts.news"].score != other["sts.news"].score
    assert one["sts.news"].size == {"pairs": 10}
    assert one["classification.topics"].size["test texts"] == 10


def test_harmful_text_is_in_no_file_and_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    folder = tmp_path / "data" / "safety" / "harm"
    retrieval_files(folder)
    secret = "zxqharmful"
    for name in ("corpus.jsonl",):
        rows = rows_of(folder, name)
        write_jsonl(folder / name, [{**row, "text": f"{secret} {row['text']}"} for row in rows])
    write_jsonl(folder / "queries.jsonl.gz", [{"id": f"q{i}", "text": f"{secret} query {i}"} for i in range(6)])
    from afterword.evaluation.report import write_report
    from afterword.evaluation.summary import summarise

    class Broken(CountingEncoder):
        def encode(self, inputs: Any, **options: Any) -> Any:
            return super().encode(inputs, **options) * np.nan

    with caplog.at_level(logging.DEBUG):
        found = evaluate({"s": CountingEncoder()}, data=tmp_path / "data", out=tmp_path / "out", settings=plain())
        write_report(summarise(found), tmp_path / "out")
        with pytest.raises(WorkError, match="NaN or infinity in the vector of item 0") as caught:
            evaluate({"b": Broken(1.0)}, data=tmp_path / "data", out=tmp_path / "out", settings=plain())
    assert found.encoders[0].tasks["safety.harm"].texts == 46
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert any(path.suffix == ".html" for path in written)
    assert not [path for path in written if secret.encode() in path.read_bytes()]
    assert secret not in caplog.text + str(caught.value) + "".join(capfd.readouterr())


def test_tasks_of_the_hub_that_cannot_be_had_are_named_and_the_others_run(sets: Path, tmp_path: Path) -> None:
    found = evaluate({"s": CountingEncoder()}, ["BIOSSES"], sets, tmp_path, plain(only=("BIOSSES", "sts")))
    assert "sts.news" in found.encoders[0].tasks
    assert found.skipped["BIOSSES"].startswith("needs the data set mteb/biosses-sts (revision ")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({}, SettingError, "nothing to measure on"),
        ({"data": "nowhere"}, MissingPartError, "no folder nowhere"),
        ({"suites": ["Banking77Clasification"]}, SettingError, "Banking77Classification"),
    ],
)
def test_bad_requests(arguments: Any, error: type[Exception], words: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=words):
        evaluate(CountingEncoder(), **arguments, out=tmp_path)


def test_a_name_that_no_task_has(sets: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"no task has nothing in its name; there are .*sts\.news"):
        evaluate(CountingEncoder(), data=sets, out=tmp_path, settings=plain(only=("nothing",)))


def test_a_broken_row_is_named(tmp_path: Path) -> None:
    rows = sts_rows(5)
    write_jsonl(tmp_path / "d" / "a.jsonl", [*rows, {**rows[0], "score": "high"}])
    with pytest.raises(InputError, match=r"a\.jsonl:6: column 'score' holds 'high', not a number"):
        evaluate(CountingEncoder(), data=tmp_path / "d", out=tmp_path, settings=plain())
