"""The rows of a local set, checked and sampled."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from afterword.corpus.formats import file_rows, kind_of
from afterword.errors import InputError

Row = dict[str, Any]
Item = TypeVar("Item")
SHOTS = 16
"""Training texts kept of each label when sampling: twice what mteb draws of them for one experiment."""
CORPUS_RATIO = 10
"""Documents kept for each query when sampling, unless the corpus is smaller or more were judged."""


@dataclass(frozen=True)
class Sampling:
    """How much of each set is used.

    Attributes:
        most: Most items (pairs, texts, queries) of a set; None takes all.
        seed: Seed of what is drawn.
    """

    most: int | None = None
    seed: int = 42

    def draw(self, items: Sequence[Item], most: int | None = None, salt: str = "") -> list[Item]:
        """Return items drawn with the seed, in the order in which they stood."""
        most = self.most if most is None else most
        if self.most is None or most is None or most >= len(items):
            return list(items)
        chosen = random.Random(f"{self.seed}{salt}").sample(range(len(items)), most)
        return [items[i] for i in sorted(chosen)]


@dataclass(frozen=True)
class RetrievalData:
    """Queries, documents, and which belong together.

    Attributes:
        queries: Text by id.
        corpus: Title and text by id.
        relevant: Grade by document, by query; queries without a relevant document are left out.
        excluded: Documents that must not be ranked for a query, by query (BRIGHT).
    """

    queries: dict[str, str]
    corpus: dict[str, tuple[str, str]]
    relevant: dict[str, dict[str, int]]
    excluded: dict[str, set[str]] = field(default_factory=dict)


def pair_rows(path: Path, label: str, sampling: Sampling) -> list[Row]:
    """Read pairs of sentences with a score, or with a label 1 or 0 (also true and false)."""
    rows = []
    for where, row in file_rows(str(path)):
        number = _number(row, label, where)
        if label == "label" and number not in (0, 1):
            raise InputError(f"label is {row[label]!r}: a pair has 1 (same) or 0 (different)", where)
        rows.append(
            {
                "sentence1": text_of(row, "sentence1", where),
                "sentence2": text_of(row, "sentence2", where),
                label: number,
            }
        )
    return sampling.draw(rows, salt=path.name)


def labelled_rows(path: Path, sampling: Sampling) -> list[Row]:
    """Read texts with a label, all of them or drawn."""
    return sampling.draw([_labelled(row, where) for where, row in file_rows(str(path))], salt=path.name)


def split_rows(path: Path, sampling: Sampling) -> tuple[list[Row], list[Row]]:
    """Read texts with a label for training and for testing.

    A file without a column `split` is divided by seed, 7 to 3 within each label. Without a split `test`, the first of
    `validation` and `dev` is tested on. Test texts with a label that no training text has are an error.
    """
    parts: dict[str, list[Row]] = {}
    for where, row in file_rows(str(path)):
        parts.setdefault(str(row.get("split", "")), []).append(_labelled(row, where))
    if set(parts) == {""}:
        train, test = _divide(parts[""], sampling.seed)
    else:
        test = next((parts[name] for name in ("test", "validation", "dev") if name in parts), [])
        train = parts.get("train", [])
        if not train or not test:
            raise InputError(f"{path}: column split has {sorted(parts)}; needed are train and test")
    test = sampling.draw(test, salt=path.name)
    unseen = {row["label"] for row in test} - {row["label"] for row in train}
    if unseen:
        raise InputError(f"{path}: {len(unseen)} labels are tested on and never trained on, such as {min(unseen)!r}")
    return (train if sampling.most is None else _few_of_each(train, sampling)), test


def rerank_data(path: Path, sampling: Sampling) -> RetrievalData:
    """Read queries, each with its own candidates; equal texts are one document."""
    queries, corpus, relevant = {}, {}, {}
    ids: dict[str, str] = {}
    drawn = sampling.draw(list(file_rows(str(path))), salt=path.name)
    for number, (where, row) in enumerate(drawn):
        sides = {side: _texts(row, side, where) for side in ("positive", "negative")}
        own = {text: ids.setdefault(text, f"d{len(ids)}") for texts in sides.values() for text in texts}
        corpus.update({identity: ("", text) for text, identity in own.items()})
        queries[f"q{number}"] = text_of(row, "query", where)
        relevant[f"q{number}"] = {own[text]: int(text in sides["positive"]) for text in own}
    return RetrievalData(queries, corpus, relevant)


def retrieval_data(files: Sequence[Path], sampling: Sampling) -> RetrievalData:
    """Read queries, corpus and qrels, in the layout of BEIR or with plain names (`id`, `query_id`, `doc_id`).

    When sampling, all documents judged for the drawn queries stay, and others are drawn.
    """
    queries_file, corpus_file, qrels_file = files
    queries, excluded = {}, {}
    for where, row in file_rows(str(queries_file)):
        identity = _id(row, ("id", "_id"), where)
        queries[identity] = text_of(row, "text", where)
        if row.get("excluded_ids"):
            excluded[identity] = {str(one) for one in _list(row, "excluded_ids", where)} - {"N/A"}
    corpus = {}
    for where, row in file_rows(str(corpus_file)):
        title = row.get("title")
        corpus[_id(row, ("id", "_id"), where)] = (title if isinstance(title, str) else "", text_of(row, "text", where))
    relevant: dict[str, dict[str, int]] = {}
    for where, row in file_rows(str(qrels_file)):
        query, document = (
            _id(row, ("query_id", "query-id"), where),
            _id(row, ("doc_id", "corpus-id", "corpus_id"), where),
        )
        if document not in corpus:
            raise InputError(f"document {document!r} is judged, but {corpus_file.name} does not have it", where)
        if query in queries:
            relevant.setdefault(query, {})[document] = int(_number(row, "score", where))
    found = [query for query, grades in relevant.items() if any(grade > 0 for grade in grades.values())]
    if not found:
        raise InputError(f"{qrels_file}: no query of {queries_file.name} has a relevant document")
    kept = sampling.draw(found, salt=str(queries_file.name))
    judged = {document for query in kept for document in relevant[query]}
    if sampling.most is not None:
        others = [document for document in corpus if document not in judged]
        wanted = max(0, CORPUS_RATIO * len(kept) - len(judged))
        judged |= set(sampling.draw(others, wanted, salt=str(corpus_file.name)))
        corpus = {document: entry for document, entry in corpus.items() if document in judged}
    return RetrievalData(
        {query: queries[query] for query in kept},
        corpus,
        {query: relevant[query] for query in kept},
        {query: excluded[query] for query in kept if excluded.get(query)},
    )


def text_of(row: Mapping[str, object], column: str, where: str) -> str:
    """Return a text, or say what stands in its place."""
    value = row.get(column)
    if not isinstance(value, str):
        raise InputError(f"column {column!r} holds {kind_of(value)}, not a string", where)
    return value


def _labelled(row: Mapping[str, object], where: str) -> Row:
    label = row.get("label")
    if label is None or isinstance(label, list | dict):
        raise InputError(f"column 'label' holds {kind_of(label)}, not a label", where)
    return {"text": text_of(row, "text", where), "label": str(label)}


def _texts(row: Mapping[str, object], column: str, where: str) -> list[str]:
    texts = _list(row, column, where)
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"column {column!r} is a list with {kind_of(text)} in it, not texts only", where)
    return texts


def _list(row: Mapping[str, object], column: str, where: str) -> list[Any]:
    value = row.get(column)
    if not isinstance(value, list):
        raise InputError(f"column {column!r} holds {kind_of(value)}, not a list", where)
    return value


def _number(row: Mapping[str, object], column: str, where: str) -> float:
    value = row.get(column)
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(f"column {column!r} holds {value!r}, not a number", where) from None


def _id(row: Mapping[str, object], names: tuple[str, ...], where: str) -> str:
    value = next((row[name] for name in names if name in row), None)
    if value is None or value == "":
        raise InputError(f"no id: looked for {' or '.join(names)} among {', '.join(map(str, row))}", where)
    return str(value)


def _by_label(rows: Sequence[Row]) -> Iterator[list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["label"], []).append(row)
    yield from groups.values()


def _divide(rows: Sequence[Row], seed: int) -> tuple[list[Row], list[Row]]:
    train, test = [], []
    for group in _by_label(rows):
        mixed = random.Random(seed).sample(group, len(group))
        cut = max(1, round(0.7 * len(mixed)))
        train += mixed[:cut]
        test += mixed[cut:]
    return train, test


def _few_of_each(rows: Sequence[Row], sampling: Sampling) -> list[Row]:
    return [row for group in _by_label(rows) for row in sampling.draw(group, SHOTS, salt=group[0]["label"])]
