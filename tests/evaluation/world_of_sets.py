"""A folder of small labelled sets, one of each kind, and an encoder whose vectors can be worked out by hand."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ["river", "bank", "money", "loan", "boat", "fish", "court", "judge", "law", "tree", "leaf", "root"]


class CountingEncoder:
    """Counts the words of `WORDS`; remembers every text it was given. `shift` makes another checkpoint of it."""

    name = "spy"

    def __init__(self, shift: float = 0.0) -> None:
        self.shift = shift
        self.seen: list[str] = []

    @property
    def fingerprint(self) -> str:
        return f"counting{self.shift}"

    def get_embedding_dimension(self) -> int:
        return len(WORDS)

    def encode(self, inputs: Sequence[str], *, batch_size: int = 32, show_progress_bar: bool | None = None) -> Any:
        self.seen += list(inputs)
        return count_words(inputs) + np.float32(self.shift)


class PromptedEncoder(CountingEncoder):
    """The same, with an argument for the prompt: it keeps prompt and text apart."""

    def __init__(self, prompts: dict[str, str] | None = None) -> None:
        super().__init__()
        self.prompts = prompts or {}
        self.calls: list[tuple[str, list[str]]] = []

    def encode(self, inputs: Sequence[str], *, prompt: str | None = None, **options: Any) -> Any:  # type: ignore[override]
        self.calls.append((str(prompt), list(inputs)))
        return super().encode(inputs, **options)


def count_words(texts: Sequence[str]) -> np.ndarray:
    """Counts of words, with a little that depends on the length so that no two texts are equal."""
    rows = [[text.split().count(word) + 0.001 * len(text) for word in WORDS] for text in texts]
    return np.array(rows, dtype=np.float32).reshape(len(texts), len(WORDS))


def sentences(count: int, seed: int, words: Sequence[str] = WORDS) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(3, 7))) for _ in range(count)]


def write_jsonl(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def sts_rows(count: int = 30) -> list[dict[str, Any]]:
    first, second, draw = sentences(count, 1), sentences(count, 2), random.Random(3)
    return [
        {"sentence1": a, "sentence2": b, "score": round(draw.uniform(0, 5), 2)}
        for a, b in zip(first, second, strict=True)
    ]


def pair_rows(count: int = 30) -> list[dict[str, Any]]:
    return [
        {**{k: row[k] for k in ("sentence1", "sentence2")}, "label": i % 3 == 0}
        for i, row in enumerate(sts_rows(count))
    ]


def topic_rows(each: int = 20) -> list[dict[str, Any]]:
    topics = {"nature": WORDS[9:], "law": WORDS[6:9], "money": WORDS[1:4]}
    rows = [
        {"text": t, "label": label}
        for i, (label, words) in enumerate(topics.items())
        for t in sentences(each, 10 + i, words)
    ]
    noise = [{"text": t, "label": "law"} for t in sentences(6, 99)]
    return rows + noise


def split_topic_rows() -> list[dict[str, Any]]:
    return [{**row, "split": "test" if i % 3 == 0 else "train"} for i, row in enumerate(topic_rows())]


def rerank_rows(count: int = 8) -> list[dict[str, Any]]:
    rows = []
    for i, query in enumerate(sentences(count, 20)):
        rows.append({"query": query, "positive": sentences(2, 100 + i), "negative": sentences(5, 200 + i)})
    return rows


def retrieval_files(folder: Path, excluded: dict[str, list[str]] | None = None) -> None:
    corpus = [{"id": f"d{i}", "title": f"title {i}", "text": text} for i, text in enumerate(sentences(40, 30))]
    queries = [{"id": f"q{i}", "text": text} for i, text in enumerate(sentences(6, 31))]
    for query in queries:
        if excluded and query["id"] in excluded:
            query["excluded_ids"] = excluded[query["id"]]
    qrels = [
        {"query_id": f"q{i}", "doc_id": f"d{(7 * i + j) % 40}", "score": 1 + j} for i in range(6) for j in range(2)
    ]
    write_jsonl(folder / "corpus.jsonl", corpus)
    write_jsonl(folder / "queries.jsonl.gz", queries)
    write_jsonl(folder / "qrels.jsonl", qrels)


def all_sets(folder: Path) -> Path:
    """Write one set of each kind."""
    write_jsonl(folder / "sts" / "news.jsonl.gz", sts_rows())
    write_jsonl(folder / "pairs" / "same.jsonl", pair_rows())
    write_jsonl(folder / "classification" / "topics.jsonl", split_topic_rows())
    write_jsonl(folder / "clustering" / "topics.jsonl", topic_rows())
    write_jsonl(folder / "rerank" / "answers.jsonl", rerank_rows())
    retrieval_files(folder / "retrieval" / "library")
    retrieval_files(folder / "safety" / "harm")
    retrieval_files(folder / "reasoning" / "theorems")
    return folder
