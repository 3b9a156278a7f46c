"""Local sets as mteb tasks, so that the metrics are mteb's own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from datasets import Dataset, DatasetDict
from mteb.abstasks import (
    AbsTask,
    AbsTaskClassification,
    AbsTaskClustering,
    AbsTaskPairClassification,
    AbsTaskRetrieval,
    AbsTaskSTS,
)
from mteb.abstasks.task_metadata import TaskMetadata

from afterword.encoder import hash_text
from afterword.evaluation.local import Kind, LocalSet
from afterword.evaluation.local_data import (
    RetrievalData,
    Sampling,
    labelled_rows,
    pair_rows,
    rerank_data,
    retrieval_data,
    split_rows,
)
from afterword.evaluation.safety import is_advbench, safety_data

# mteb's type, main score and category of each kind of set.
_KINDS: dict[Kind, tuple[str, str, str]] = {
    "sts": ("STS", "cosine_spearman", "t2t"),
    "pairs": ("PairClassification", "max_ap", "t2t"),
    "rerank": ("Reranking", "map_at_1000", "t2t"),
    "clustering": ("Clustering", "v_measure", "t2c"),
    "classification": ("Classification", "accuracy", "t2c"),
    "retrieval": ("Retrieval", "ndcg_at_10", "t2t"),
}


def local_task(found: LocalSet, sampling: Sampling) -> AbsTask:
    """Return the mteb task of a local set; the files are read when it runs.

    Args:
        found: The set.
        sampling: How much of it is used; part of the revision of its data, as are the bytes of its files.
    """
    kinds: dict[Kind, Callable[[LocalSet, Sampling], AbsTask]] = {
        "sts": LocalSTS,
        "pairs": LocalPairs,
        "rerank": LocalReranking,
        "clustering": LocalClustering,
        "classification": LocalClassification,
        "retrieval": LocalRetrieval,
    }
    return kinds[found.kind](found, sampling)


def task_metadata(
    name: str, kind: Any, score: str, category: Any, revision: str, path: str | None = None
) -> TaskMetadata:
    """Describe a task that mteb does not know, of local files or of a data set on the hub."""
    return TaskMetadata(
        name=name,
        description=f"A local set for {kind}.",
        type=kind,
        category=category,
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score=score,
        dataset={"path": path or f"local/{name}", "revision": revision},
        bibtex_citation="",
    )


class LocalTask:
    """What all local tasks have: their set, how much of it is used, and sizes once it is read."""

    data_loaded: bool
    metadata: TaskMetadata

    def __init__(self, found: LocalSet, sampling: Sampling) -> None:
        self.found, self.sampling = found, sampling
        self.sizes: dict[str, int] = {}
        kind, score, category = _KINDS[found.kind]
        self.safety = is_advbench(found.group, found.kind)
        if self.safety:
            score = "hit_rate_at_5"
        decides = f"{found.content_hash()} {sampling}"
        self.metadata = task_metadata(found.name, kind, score, category, hash_text(decides))
        super().__init__()
        self.seed = sampling.seed

    def load_data(self, num_proc: int | None = None, **options: Any) -> None:
        """Read the files."""
        if not self.data_loaded:
            self.dataset: Any = self._read()
            self.data_loaded = True

    def unload_data(self) -> None:
        """Let go of what was read; it can be read again."""
        self.dataset, self.data_loaded = None, False

    @abstractmethod
    def _read(self) -> Any:
        """Return the data in mteb's form, and note its sizes."""

    def _sized(self, rows: Sequence[Any], name: str) -> Dataset:
        self.sizes[name] = len(rows)
        return Dataset.from_list(list(rows))


class LocalSTS(LocalTask, AbsTaskSTS):
    """Pairs with a score."""

    def _read(self) -> DatasetDict:
        rows = pair_rows(self.found.files[0], "score", self.sampling)
        scores = [row["score"] for row in rows]
        self.min_score, self.max_score = min(scores), max(scores)
        return DatasetDict(test=self._sized(rows, "pairs"))


class LocalPairs(LocalTask, AbsTaskPairClassification):
    """Pairs that mean the same or do not."""

    def _read(self) -> DatasetDict:
        rows = pair_rows(self.found.files[0], "label", self.sampling)
        renamed = [{**row, "labels": int(row.pop("label"))} for row in rows]
        return DatasetDict(test=self._sized(renamed, "pairs"))


class LocalClustering(LocalTask, AbsTaskClustering):
    """Texts with a label, all of them embedded."""

    max_fraction_of_documents_to_embed = None

    def _read(self) -> DatasetDict:
        rows = labelled_rows(self.found.files[0], self.sampling)
        renamed = [{"sentences": row["text"], "labels": row["label"]} for row in rows]
        return DatasetDict(test=self._sized(renamed, "texts"))


class LocalClassification(LocalTask, AbsTaskClassification):
    """Texts with a label, some to learn from."""

    def _read(self) -> DatasetDict:
        train, test = split_rows(self.found.files[0], self.sampling)
        number = {label: i for i, label in enumerate(sorted({row["label"] for row in train}))}
        train, test = ([{**row, "label": number[row["label"]]} for row in part] for part in (train, test))
        self.sizes["labels"] = len(number)
        return DatasetDict(train=self._sized(train, "training texts"), test=self._sized(test, "test texts"))


class LocalRetrieval(LocalTask, AbsTaskRetrieval):
    """Queries, a corpus, and what belongs together."""

    ignore_identical_ids = False

    def _read(self) -> Any:
        data = retrieval_data(self.found.files, self.sampling)
        return split_of(safety_data(data) if self.safety else data, self._sized, self._ranked)

    def _ranked(self, data: RetrievalData) -> dict[str, list[str]] | None:
        return ranked_without(data.corpus, data.queries, data.excluded) if data.excluded else None


class LocalReranking(LocalRetrieval):
    """Queries, each with candidates of its own."""

    def _read(self) -> Any:
        return split_of(rerank_data(self.found.files[0], self.sampling), self._sized, self._ranked)

    def _ranked(self, data: RetrievalData) -> dict[str, list[str]]:
        return {query: list(grades) for query, grades in data.relevant.items()}


def ranked_without(corpus: Any, queries: Any, excluded: dict[str, set[str]]) -> dict[str, list[str]]:
    """Return for each query the documents that may be ranked: all but those excluded (BRIGHT, arXiv 2407.12883).

    mteb ranks only what it is told to where it is told anything, and encodes each document once all the same.
    """
    everything = list(corpus)
    return {
        query: [document for document in everything if document not in excluded[query]]
        if query in excluded
        else everything
        for query in queries
    }


def split_of(
    data: RetrievalData,
    sized: Callable[[Sequence[Any], str], Dataset],
    ranked: Callable[[RetrievalData], dict[str, list[str]] | None],
) -> Any:
    """Return queries, corpus and relevance in mteb's form, one subset with one split."""
    queries = [{"id": query, "text": text} for query, text in data.queries.items()]
    corpus = [{"id": document, "title": title, "text": text} for document, (title, text) in data.corpus.items()]
    parts = {
        "queries": sized(queries, "queries"),
        "corpus": sized(corpus, "documents"),
        "relevant_docs": data.relevant,
        "top_ranked": ranked(data),
    }
    return {"default": {"test": parts}}
