"""A folder of labelled files, read for what it is.

A set is known by its columns, whatever its format (JSONL, CSV, TSV, Parquet, all but the last also `.gz`):

| kind | columns |
|---|---|
| sts | sentence1, sentence2, score |
| pairs | sentence1, sentence2, label (1 or 0) |
| rerank | query, positive, negative (lists of texts) |
| clustering | text, label, in a folder whose name begins with `cluster` |
| classification | text, label, and split if there is one |
| retrieval | a folder with `queries`, `corpus` and `qrels`, as files or, for qrels, as BEIR's folder of them |
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from afterword.corpus.formats import LINE_FORMATS, file_rows, format_of
from afterword.errors import InputError, MissingPartError

Kind = Literal["sts", "pairs", "rerank", "clustering", "classification", "retrieval"]
COLUMNS: dict[Kind, frozenset[str]] = {
    "sts": frozenset({"sentence1", "sentence2", "score"}),
    "pairs": frozenset({"sentence1", "sentence2", "label"}),
    "rerank": frozenset({"query", "positive", "negative"}),
    "classification": frozenset({"text", "label"}),
}
PARTS = ("queries", "corpus", "qrels")
_FORMATS = {*LINE_FORMATS, ".parquet"} - {"", ".txt"}


@dataclass(frozen=True)
class LocalSet:
    """One labelled set.

    Attributes:
        name: Its path below the folder, joined by dots, without endings.
        kind: What it measures.
        files: The one file, or the queries, corpus and qrels of a retrieval set.
        group: Name of the folder that it lies in.
    """

    name: str
    kind: Kind
    files: tuple[Path, ...]
    group: str

    def content_hash(self) -> str:
        """Return a hash of the bytes of all files."""
        digest = hashlib.sha256()
        for path in self.files:
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        return digest.hexdigest()[:16]


def find_sets(folder: str | Path) -> tuple[list[LocalSet], dict[str, str]]:
    """Find all labelled sets below a folder.

    Args:
        folder: Looked through to any depth; names that begin with a dot are passed over.

    Returns:
        The sets by name, and for files that are none, what was found in them.

    Raises:
        MissingPartError: There is no such folder.
        InputError: There is no labelled set in it, or a file is broken.
    """
    top = Path(folder).expanduser()
    if not top.is_dir():
        raise MissingPartError(f"there is no folder {folder} with data to evaluate on")
    sets: list[LocalSet] = []
    passed: dict[str, str] = {}
    for place in [top, *sorted(path for path in top.rglob("*") if path.is_dir())]:
        if any(part.startswith(".") for part in place.relative_to(top).parts):
            continue
        files = sorted(path for path in place.iterdir() if path.is_file() and format_of(path.name) in _FORMATS)
        parts = _retrieval_parts(place, files)
        if parts:
            group = place.parent.name if place != top else ""
            sets.append(LocalSet(_name(top, place) or top.resolve().name, "retrieval", parts, group))
        for path in files:
            if path in parts or (place.name == "qrels" and _retrieval_parts(place.parent, None)):
                continue
            kind, columns = _kind(path)
            if kind is None:
                passed[str(path.relative_to(top))] = f"columns {', '.join(columns) or 'none'}: no kind of labelled set"
            else:
                sets.append(LocalSet(_name(top, path), kind, (path,), place.name if place != top else ""))
    if not sets:
        kinds = "; ".join(f"{kind}: {', '.join(sorted(names))}" for kind, names in COLUMNS.items())
        raise InputError(
            f"no labelled set below {folder}; what is known by its columns is {kinds}; or a folder with {PARTS}"
        )
    return sorted(sets, key=lambda found: found.name), passed


def _name(top: Path, path: Path) -> str:
    """Return a path below the top as `folder.file`, endings cut."""
    parts = list(path.relative_to(top).parts)
    if parts and path.is_file():
        parts[-1] = _stem(path)
    return ".".join(parts)


def _stem(path: Path) -> str:
    stem = Path(path.name).stem if path.name.lower().endswith(".gz") else path.name
    return Path(stem).stem


def _retrieval_parts(place: Path, files: list[Path] | None) -> tuple[Path, ...]:
    """Return queries, corpus and qrels of a folder, the latter in BEIR's layout a folder with `test` or one file."""
    files = [path for path in place.iterdir() if path.is_file()] if files is None else files
    named = {_stem(path): path for path in files if format_of(path.name) in _FORMATS}
    below = place / "qrels"
    if below.is_dir() and "qrels" not in named:
        inside = {_stem(path): path for path in sorted(below.iterdir()) if format_of(path.name) in _FORMATS}
        chosen = inside.get("test") or next(iter(inside.values()), None)
        named.update({"qrels": chosen} if chosen else {})
    return tuple(named[part] for part in PARTS) if all(part in named for part in PARTS) else ()


def _kind(path: Path) -> tuple[Kind | None, list[str]]:
    """Tell the kind of a file by the columns of its first row."""
    _, row = next(file_rows(str(path)), ("", {}))
    columns = [str(name) for name in row]
    kind = next((kind for kind, needed in COLUMNS.items() if needed <= set(columns)), None)
    if kind == "classification" and any(part.lower().startswith("cluster") for part in path.parts[-3:-1]):
        kind = "clustering"
    return kind, columns
