"""Pairs of texts with a score: what an encoder's similarities are measured by."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from afterword.corpus.formats import file_rows
from afterword.errors import InputError, MissingPartError

FIELDS = ("sentence1", "sentence2", "score")


@dataclass(frozen=True)
class StsPairs:
    """Pairs of texts and how similar people find them."""

    first: list[str] = field(default_factory=list)
    second: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)


def read_pairs(path: str | Path) -> StsPairs:
    """Read a file with the fields sentence1, sentence2 and score (JSONL, CSV, TSV or Parquet, also .gz).

    Raises:
        MissingPartError: There is no such file.
        InputError: A row lacks a field, or its score is no number; or there are fewer than two rows.
    """
    if not Path(path).is_file():
        raise MissingPartError(f"no file {path}")
    pairs = StsPairs()
    for where, row in file_rows(str(path)):
        missing = [name for name in FIELDS if row.get(name) is None]
        if missing:
            raise InputError(f"a pair needs {', '.join(FIELDS)}; {', '.join(missing)} is missing", where)
        try:
            pairs.scores.append(float(str(row["score"])))
        except (TypeError, ValueError):
            raise InputError(f"score is {row['score']!r}: it must be a number", where) from None
        pairs.first.append(str(row["sentence1"]))
        pairs.second.append(str(row["sentence2"]))
    if len(pairs.scores) < 2:
        raise InputError(f"{path} has {len(pairs.scores)} pairs: a correlation needs two at least")
    return pairs
