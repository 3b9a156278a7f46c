"""The score of a task item by item, out of the predictions that mteb keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mteb.abstasks import AbsTask, AbsTaskRetrieval

from afterword.evaluation.results import Items


def items_of(task: AbsTask, predictions: Mapping[str, Any], scores: Mapping[str, Any]) -> Items | None:
    """Return the items of a task that has one subset and one split; else None, and likewise where mteb keeps none.

    Args:
        task: With its data still loaded.
        predictions: What mteb wrote: by subset, by split.
        scores: mteb's scores of that split.

    Returns:
        STS: a cosine and a human score a pair; pair classification: a cosine and a label; retrieval and reranking: the
        main score of each query; classification: how often each test text got its label; clustering: the v-measure of
        each experiment.
    """
    parts = [
        (subset, split, found)
        for subset, splits in predictions.items()
        if isinstance(splits, dict) and subset != "mteb_model_meta"
        for split, found in splits.items()
    ]
    if len(parts) != 1:
        return None
    subset, split, found = parts[0]
    metric = task.metadata.main_score
    if isinstance(task, AbsTaskRetrieval):
        return _ranked(_split(task, subset, split)["relevant_docs"], found, metric)
    if metric == "v_measure":
        levels = list(scores.get("v_measures", {}).values())
        return Items("mean", [float(value) for value in levels[0]]) if len(levels) == 1 else None
    columns = {"cosine_spearman": "score", "max_ap": "labels", "accuracy": "label"}
    if metric not in columns:
        return None
    rows = _split(task, subset, split)
    gold = [float(value) for value in rows[columns[metric]]] if columns[metric] in rows.column_names else []
    if metric == "accuracy":
        guesses = np.array(found)
        fits = guesses.ndim == 2 and guesses.shape[1] == len(gold)
        return Items("mean", (guesses == np.array(gold)).mean(axis=0).tolist()) if fits else None
    values = [float(value) for value in found.get("cosine_scores", ())]
    if not gold or len(values) != len(gold):
        return None
    return Items("spearman" if metric == "cosine_spearman" else "average_precision", values, gold)


def _split(task: AbsTask, subset: str, split: str) -> Any:
    data: Any = task.dataset
    return data[split] if subset == "default" and split in data else data[subset][split]


def _ranked(
    relevant: Mapping[str, Mapping[str, int]], found: Mapping[str, Mapping[str, float]], metric: str
) -> Items | None:
    """Return the score of each query, by trec_eval; a query for which nothing was found has 0."""
    name, _, depth = metric.rpartition("_at_")
    names = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P", "hit_rate": "success"}
    if name not in names:
        return None
    import pytrec_eval

    measure = f"{names[name]}.{depth}"
    judge = pytrec_eval.RelevanceEvaluator({q: dict(grades) for q, grades in relevant.items()}, {measure})
    by_query = judge.evaluate({query: dict(hits) for query, hits in found.items()})
    key = measure.replace(".", "_")
    return Items("mean", [by_query.get(query, {}).get(key, 0.0) for query in relevant])


def sizes_of(task: AbsTask) -> dict[str, int]:
    """Return what a task measures on: our own tasks say; of mteb's, the rows of each split."""
    own = getattr(task, "sizes", None)
    if own:
        return dict(own)
    sizes: dict[str, int] = {}
    for subset, splits in (task.dataset or {}).items():
        for name, rows in (splits if isinstance(splits, Mapping) else {subset: splits}).items():
            if isinstance(rows, Mapping):
                for part, label in (("queries", "queries"), ("corpus", "documents")):
                    sizes[label] = sizes.get(label, 0) + _length(rows.get(part))
            elif name in task.metadata.eval_splits:
                sizes["rows"] = sizes.get("rows", 0) + _length(rows)
    return sizes


def _length(rows: Sequence[Any] | None) -> int:
    return 0 if rows is None else len(rows)
