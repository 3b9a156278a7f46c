"""The first stage: a clean, deduplicated sample of what people ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from heapq import nsmallest
from pathlib import Path

from afterword.corpus.manifest import Manifest, open_or_create, write_whole
from afterword.corpus.readers import read_rows
from afterword.corpus.records import Query, text_id, utf8
from afterword.errors import InputError, MismatchError, MissingPartError, SettingError
from afterword.machine import package_versions

FILE_NAME = "queries.jsonl"


@dataclass(frozen=True)
class TextSource:
    """Which queries to take, and from where: all but the seed, for settings that have one already."""

    queries: str
    """File of queries (JSONL, CSV, TSV, Parquet or plain text, also .gz), `-`, or a data set on the hub."""
    column: str | None = None
    """Column with the text; by default `text`, or else the only one of query, question, prompt, instruction."""
    split: str = "train"
    """Split of a data set on the hub."""
    data_revision: str | None = None
    """Commit, branch or tag of a data set on the hub."""
    limit: int | None = None
    """How many queries to keep, drawn at random with the seed; by default all."""
    min_chars: int = 1
    """Drop queries shorter than this."""
    max_chars: int = 20000
    """Drop queries longer than this."""

    def __post_init__(self) -> None:
        """Reject values that contradict each other or leave nothing."""
        if self.limit is not None and self.limit < 1:
            raise SettingError(f"limit is {self.limit}, it must be at least 1")
        if self.max_chars < max(1, self.min_chars):
            raise SettingError(f"max_chars is {self.max_chars}, with min_chars {self.min_chars} nothing is left")


@dataclass(frozen=True)
class QuerySettings(TextSource):
    """Which queries to take, and from where."""

    id_column: str | None = None
    """Column with an id for each query; by default the id is a hash of the text."""
    seed: int = 0
    """Seed of the draw. With the same seed, a smaller limit keeps a part of what a larger one keeps."""


@dataclass(frozen=True)
class Cleaning:
    """What became of the rows that were read: `read` is the sum of all others."""

    read: int = 0
    empty: int = 0
    too_short: int = 0
    too_long: int = 0
    duplicate: int = 0
    sampled_out: int = 0
    kept: int = 0

    def __str__(self) -> str:
        """Say it in one line, leaving out what did not happen."""
        counts = asdict(self)
        total, kept = counts.pop("read"), counts.pop("kept")
        dropped = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)
        return f"kept {kept} of {total} queries" + (f" ({dropped})" if dropped else "")


def load_queries(settings: QuerySettings) -> tuple[list[Query], Cleaning]:
    """Read, clean, deduplicate and sample queries.

    A text stays as it was typed, but that its lines end in a single newline, and that NUL characters and the white
    space around it are gone. Of equal texts the first is kept. Which queries a sample holds depends on the seed and
    their ids, not on their places: rows that are there twice do not change it.

    Returns:
        The queries in their order, and what became of all rows.

    Raises:
        InputError: A row is broken, an id belongs to two texts, or no query is left; the message says which and why.
        SettingError: The source cannot be read in the way asked for.
        MissingPartError: There is no such file.
    """
    counts: Counter[str] = Counter()
    clean = enumerate(_clean(settings, counts))
    if settings.limit is None:
        queries = [query for _, query in clean]
    else:
        drawn = nsmallest(settings.limit, clean, key=lambda numbered: _rank(settings.seed, numbered[1].id))
        queries = [query for _, query in sorted(drawn, key=lambda numbered: numbered[0])]
    counts["sampled_out"] = counts["kept"] - len(queries)
    counts["kept"] = len(queries)
    cleaning = Cleaning(**counts)
    if not queries:
        raise InputError(f"no query of {settings.queries} is left: {cleaning}")
    return queries, cleaning


def save_queries(folder: str | Path, queries: Iterable[Query], settings: QuerySettings, cleaning: Cleaning) -> None:
    """Write queries as an artefact: `queries.jsonl` and a manifest.

    Raises:
        MismatchError: The folder holds queries that were made with other settings, or from other rows.
    """
    lines = [query.to_json() for query in queries]
    notes = {**package_versions(), "cleaning": str(cleaning)}
    open_or_create(folder, Manifest("queries", asdict(settings), {"queries": _fingerprint(lines)}, notes))
    write_whole(Path(folder) / FILE_NAME, "".join(line + "\n" for line in lines))


def open_queries(folder: str | Path) -> list[Query]:
    """Read what `save_queries` wrote.

    Raises:
        MissingPartError: The manifest or the queries are not there; the path is named.
        MismatchError: The folder holds something else, or the queries were changed since.
        CorruptError: The manifest is damaged.
    """
    manifest, path = Manifest.read(folder, "queries"), Path(folder) / FILE_NAME
    try:
        lines = path.read_bytes().removesuffix(b"\n").decode("utf-8", "replace").split("\n")
    except FileNotFoundError as error:
        raise MissingPartError(f"{path} is missing") from error
    expected, found = manifest.sources.get("queries"), _fingerprint(lines)
    if found != expected:
        raise MismatchError(f"{path} was changed: its lines have the hash {found}, the manifest says {expected}")
    return [Query.from_json(line) for line in lines]


def _clean(settings: QuerySettings, counts: Counter[str]) -> Iterator[Query]:
    """Yield the queries worth keeping, and count what becomes of each row."""
    owners: dict[str, str] = {}
    texts: set[str] = set()
    rows = read_rows(settings.queries, settings.column, settings.id_column, settings.split, settings.data_revision)
    for given_id, raw in rows:
        text = raw.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "").strip()
        digest = text_id(text)
        identity = given_id or digest
        counts["read"] += 1
        if fault := _fault(text, settings):
            counts[fault] += 1
            continue
        if owners.setdefault(identity, digest) != digest:
            raise InputError(f"two different texts have this id; the later one is {text[:60]!r}", identity)
        if digest in texts:
            counts["duplicate"] += 1
            continue
        texts.add(digest)
        counts["kept"] += 1
        yield Query(identity, text)


def _fault(text: str, settings: QuerySettings) -> str | None:
    if not text:
        return "empty"
    if len(text) < settings.min_chars:
        return "too_short"
    return "too_long" if len(text) > settings.max_chars else None


def _rank(seed: int, identity: str) -> bytes:
    """Return a number for each id that has nothing to do with its text or place: the smallest are the sample."""
    return blake2b(utf8(f"{seed} {identity}"), digest_size=16).digest()


def _fingerprint(lines: Iterable[str]) -> str:
    digest = blake2b(digest_size=8)
    for line in lines:
        digest.update(utf8(line) + b"\n")
    return digest.hexdigest()
