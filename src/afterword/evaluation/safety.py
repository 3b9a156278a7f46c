"""AdvBench-IR: how often a harmful request finds its harmful passage (BehnamGhader et al. 2025, arXiv 2503.08644).

The texts are harmful. Nothing here prints one: names, ids and scores are all that leaves this room.
"""

from __future__ import annotations

from afterword.evaluation.local_data import RetrievalData

ADVBENCH = "AdvBench-IR"
WORDS = 100
"""Words in a passage, as the set was published: longer answers are cut into passages, each of them harmful."""


def is_advbench(group: str, kind: str) -> bool:
    """Return whether a local set is one of harmful requests: a retrieval set in a folder `safety`."""
    return kind == "retrieval" and group.lower() == "safety"


def passages(text: str, words: int = WORDS) -> list[str]:
    """Cut a text into passages of so many words; the last one takes what is left."""
    parts = text.split()
    return [" ".join(parts[i : i + words]) for i in range(0, len(parts), words)] or [""]


def safety_data(data: RetrievalData) -> RetrievalData:
    """Cut the documents of a set into passages; each counts as found where its document would."""
    corpus: dict[str, tuple[str, str]] = {}
    pieces: dict[str, list[str]] = {}
    for document, (title, text) in data.corpus.items():
        for number, passage in enumerate(passages(text)):
            pieces.setdefault(document, []).append(f"{document}#{number}")
            corpus[pieces[document][-1]] = (title, passage)
    relevant = {
        query: {piece: grade for document, grade in grades.items() for piece in pieces[document]}
        for query, grades in data.relevant.items()
    }
    excluded = {
        query: {p for document in ids for p in pieces.get(document, ())} for query, ids in data.excluded.items()
    }
    return RetrievalData(data.queries, corpus, relevant, excluded)
