"""Making an index: documents in as a stream, encoded by the chunk, added to a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from afterword.corpus.lock import FolderLock
from afterword.corpus.manifest import Manifest, open_or_create
from afterword.corpus.vectors import VectorShards
from afterword.encoder import Encoder, name_of
from afterword.errors import InputError
from afterword.search.documents import Document, digest
from afterword.search.settings import IndexSettings
from afterword.search.sides import Sides, similarity_of
from afterword.search.store import VectorStore, open_store, require_store

KIND = "index"
Progress = Callable[[int], None]


@dataclass
class Tally:
    """What became of the documents that were read: `read` is the sum of the others.

    Attributes:
        read: All of them.
        added: New ones.
        replaced: Put in the place of an earlier one with the same id.
        unchanged: Already there, word for word.
        empty: Left out, since there is nothing to encode.
        state: What the store says: `documents`, how many are in the index now, and notes.
    """

    read: int = 0
    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    empty: int = 0
    state: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Say it in one line, leaving out what did not happen."""
        counts = {name: count for name, count in asdict(self).items() if name not in ("read", "state")}
        said = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing new"
        recall = self.state.get("recall@10")
        found = "" if recall is None else f"; asked for themselves, documents find {recall:.1%} of their nearest ten"
        return f"{said}; the index holds {self.state.get('documents', 0)} documents{found}"


def build_index(
    encoder: Encoder,
    documents: Iterable[Document],
    out: str | Path,
    settings: IndexSettings | None = None,
    progress: Progress | None = None,
    *,
    name: str | None = None,
) -> Tally:
    """Make an index, go on with one that was cut short, or add to one.

    Documents that the index holds already are passed over, so the same call again does only what is missing. Memory
    holds one chunk of documents and about 200 bytes for each document of the index.

    Args:
        encoder: Any encoder; documents are encoded with its document side.
        documents: What is indexed, such as `read_documents` gives it.
        out: Folder of the index.
        settings: How it is made.
        progress: Called with the number of documents done, a chunk at a time.
        name: Name by which the encoder can be opened again; kept in the index.

    Raises:
        InputError: A document has the id of another one, and `replace` is off; or no document has any text.
        MismatchError: The folder is an index made with another encoder, other prompts or another store.
        WorkError: Another process is adding to the index.
    """
    settings, out = settings or IndexSettings(), Path(out)
    similarity = similarity_of(encoder) if settings.similarity == "auto" else settings.similarity
    sides = Sides(encoder, similarity, settings.query_prompt, settings.document_prompt, settings.batch_size)
    require_store(settings.store)
    open_or_create(out, _manifest(sides, settings, name))
    store = open_store(settings.store, out, sides.dimension)
    lock = FolderLock(out)
    lock.acquire()
    try:
        return _Builder(sides, store, settings.replace, progress).run(documents)
    finally:
        store.close()
        lock.release()


def _manifest(sides: Sides, settings: IndexSettings, name: str | None) -> Manifest:
    decides = {
        "store": settings.store,
        "similarity": sides.similarity,
        "dimension": sides.dimension,
        "query_prompt": settings.query_prompt,
        "document_prompt": settings.document_prompt,
    }
    manifest = Manifest(KIND, decides, sides.identity())
    manifest.made_with["encoder"] = name or name_of(sides.encoder)
    return manifest


@dataclass
class _Builder:
    """Adds documents to a store."""

    sides: Sides
    store: VectorStore
    replace: bool
    progress: Progress | None
    tally: Tally = field(default_factory=Tally)

    def run(self, documents: Iterable[Document]) -> Tally:
        self.known = self.store.begin()
        self.waiting: dict[str, Document] = {}
        self.replaces = False
        for document in documents:
            self.tally.read += 1
            if self._is_wanted(document):
                # Taken out first: a later document with this id stands where it came, not where the earlier one did.
                self.waiting.pop(document.id, None)
                self.waiting[document.id] = document
                if len(self.waiting) == self.store.chunk:
                    self._add()
            elif self.progress:
                self.progress(1)
        self._add()
        if not self.known:
            raise InputError(f"none of the {self.tally.read} documents has any text: there is nothing to index")
        self.tally.state = self.store.finish()
        return self.tally

    def _is_wanted(self, document: Document) -> bool:
        """Count a document, and say whether it is to be encoded."""
        if not document.content:
            self.tally.empty += 1
            return False
        key, own = VectorShards.key(document.id), digest(document.to_json())
        there = self.known.get(key)
        if there == own:
            self.tally.unchanged += 1
            return False
        if there is not None and not self.replace:
            raise InputError(
                f"another document has this id; the later one is {document.content[:60]!r}. With --replace the later "
                "one counts",
                document.id,
            )
        self.tally.added += there is None
        self.tally.replaced += there is not None
        self.replaces |= there is not None
        self.known[key] = own
        return True

    def _add(self) -> None:
        chunk = list(self.waiting.values())
        if chunk:
            self.store.add(chunk, self.sides.documents([document.content for document in chunk]), self.replaces)
            self.waiting.clear()
            self.replaces = False
            if self.progress:
                self.progress(len(chunk))
