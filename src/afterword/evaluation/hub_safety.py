"""AdvBench-IR from the hub."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from datasets import Dataset, load_dataset
from mteb.abstasks import AbsTaskRetrieval

from afterword.errors import InputError
from afterword.evaluation.local_data import RetrievalData
from afterword.evaluation.local_tasks import split_of, task_metadata
from afterword.evaluation.safety import ADVBENCH, safety_data

SOURCE = "McGill-NLP/AdvBench-IR"
_QUERY = ("query", "question", "instruction", "prompt", "goal")
_PASSAGE = ("passage", "document", "text", "contents", "response", "answer")


class AdvBenchIR(AbsTaskRetrieval):
    """Harmful requests and a passage that fulfils each one, cut to 100 words; the top-5 rate is better when lower."""

    metadata = task_metadata(ADVBENCH, "Retrieval", "hit_rate_at_5", "t2t", "main", path=SOURCE)
    safety = True

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, int] = {}

    def load_data(self, num_proc: int | None = None, **options: Any) -> None:
        """Load the set from the hub, or from the cache of an earlier run."""
        if self.data_loaded:
            return
        data = safety_data(pairs_of(load_dataset(SOURCE, split="train")))
        self.sizes = {"queries": len(data.queries), "documents": len(data.corpus)}
        self.dataset = split_of(data, lambda rows, name: Dataset.from_list(list(rows)), lambda data: None)
        self.data_loaded = True


def pairs_of(rows: Iterable[Mapping[str, Any]]) -> RetrievalData:
    """Read rows of a request and the passage that fulfils it.

    Raises:
        InputError: No column holds the one or the other; the names there are listed, no text is.
    """
    queries, corpus, relevant = {}, {}, {}
    for number, row in enumerate(rows):
        query, passage = (_first(row, names, number) for names in (_QUERY, _PASSAGE))
        title = row.get("title")
        queries[f"q{number}"] = query
        corpus[f"d{number}"] = (title if isinstance(title, str) else "", passage)
        relevant[f"q{number}"] = {f"d{number}": 1}
    return RetrievalData(queries, corpus, relevant)


def _first(row: Mapping[str, Any], names: Sequence[str], number: int) -> str:
    found = next((row[name] for name in names if isinstance(row.get(name), str)), None)
    if found is None:
        raise InputError(f"no text under any of {', '.join(names)}; the columns are {', '.join(map(str, row))}", number)
    return str(found)
