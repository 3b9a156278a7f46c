"""Indexes as users make and search them, with every store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from afterword.errors import InputError, MismatchError, MissingPartError, SettingError, WorkError
from afterword.search.documents import Document
from afterword.search.store import Hit
from tests.search.world import STORES, WORDS, WordEncoder, make, opened, ranking, some_documents, vector

QUERIES = ["river bread", "salt", "doctor planet song", "an engine on the mountain", "☃"]

every_store = pytest.mark.parametrize("store", STORES)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 8 documents, so that a few documents are many chunks."""
    from importlib.util import find_spec

    from afterword.search import numpy_store

    monkeypatch.setattr(numpy_store.NumpyStore, "chunk", 8)
    if find_spec("lancedb"):
        from afterword.search import lancedb_store

        monkeypatch.setattr(lancedb_store.LanceStore, "chunk", 8)
    if find_spec("faiss"):
        from afterword.search import faiss_store

        monkeypatch.setattr(faiss_store.FaissStore, "chunk", 8)


def ids(hits: list[Hit]) -> list[str]:
    return [hit.id for hit in hits]


@every_store
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("k", [1, 7, 500])
def test_what_is_found_is_what_a_plain_sort_finds(store: str, similarity: str, k: int, tmp_path: Path) -> None:
    """FAISS's graph of so few documents finds all of them, but for the end of a list as long as the index."""
    documents = some_documents(61)
    encoder = WordEncoder(similarity=similarity)
    assert make(tmp_path / "index", documents, encoder, store=store).added == 61
    found = opened(tmp_path / "index", encoder).search(QUERIES, k)
    for hits, expected in zip(found, ranking(QUERIES, documents, k, similarity), strict=True):
        if store == "faiss" and k > 61:
            assert len(hits) > 55
            continue
        assert ids(hits) == [name for name, _ in expected]
        assert [hit.score for hit in hits] == pytest.approx([score for _, score in expected], rel=1e-5, abs=1e-6)


@every_store
def test_a_hit_brings_all_that_is_known_of_its_document(store: str, tmp_path: Path) -> None:
    document = Document(
        "né\n☃", 'text with "quotes", it\'s\u2028and more', "Title", {"n": 1, "deep": {"a": [None, "x"]}}
    )
    make(tmp_path / "index", [document, Document("other", "engine")], store=store)
    (hit,) = opened(tmp_path / "index").search(document.content, 1)
    assert hit == Hit(document.id, hit.score, document.text, document.title, document.fields)
    assert hit.score == pytest.approx(1.0, abs=1e-6)
    assert hit.content == document.content


@every_store
def test_one_query_gives_one_list_and_no_queries_none(store: str, tmp_path: Path) -> None:
    make(tmp_path / "index", some_documents(9), store=store)
    index = opened(tmp_path / "index")
    assert index.search(["salt"], 3) == [index.search("salt", 3)]
    assert index.search([]) == []
    assert len(index.search("salt")) == 9
    vectors = np.stack([vector("salt")])
    assert index.search_vectors(vectors, 3) == [index.search("salt", 3)]


@every_store
def test_equal_documents_come_in_their_order(store: str, tmp_path: Path) -> None:
    documents = [Document(f"d{i}", "the same words") for i in range(20)] + [Document("other", "salt")]
    make(tmp_path / "index", documents, store=store)
    found = ids(opened(tmp_path / "index").search("the same words", 20))
    if store == "numpy":
        assert found == [f"d{i}" for i in range(20)]
    assert set(found) == {f"d{i}" for i in range(20)}


@every_store
def test_documents_can_be_added_later(store: str, tmp_path: Path) -> None:
    documents = some_documents(50)
    make(tmp_path / "index", documents[:21], store=store)
    early = opened(tmp_path / "index")
    assert len(early.search("salt", 100)) == 21
    tally = make(tmp_path / "index", documents, store=store)
    assert (tally.read, tally.added, tally.unchanged, tally.state["documents"]) == (50, 29, 21, 50)
    for hits, expected in zip(
        opened(tmp_path / "index").search(QUERIES, 9), ranking(QUERIES, documents, 9), strict=True
    ):
        assert ids(hits) == [name for name, _ in expected]
    assert len(early.search("salt", 100)) == 21, "an index that is open sees what was finished when it was opened"


@every_store
def test_the_same_documents_again_change_nothing_and_encode_nothing(store: str, tmp_path: Path) -> None:
    documents = some_documents(30)
    make(tmp_path / "index", documents, store=store)
    before = {path: path.read_bytes() for path in sorted((tmp_path / "index").rglob("part-*"))}
    encoder = WordEncoder()
    tally = make(tmp_path / "index", documents, encoder, store=store)
    assert str(tally).startswith("30 unchanged; the index holds 30 documents")
    assert ("find 100.0% of their nearest ten" in str(tally)) is (store == "faiss")
    assert encoder.asked == []
    assert {path: path.read_bytes() for path in sorted((tmp_path / "index").rglob("part-*"))} == before


@every_store
def test_a_known_id_with_other_words_is_refused_and_nothing_is_lost(store: str, tmp_path: Path) -> None:
    documents = some_documents(12)
    make(tmp_path / "index", documents, store=store)
    with pytest.raises(InputError, match=r"item d3: another document has this id; the later one is 'river'.*--replace"):
        make(tmp_path / "index", [Document("new", "salt"), Document("d3", "river")], store=store)
    index = opened(tmp_path / "index")
    assert len(index.search("salt", 100)) == 12
    with pytest.raises(InputError, match="item x: another document"):
        make(tmp_path / "index", [Document("x", "salt"), Document("x", "salt", "title")], store=store)


@every_store
def test_with_replace_the_later_one_counts(store: str, tmp_path: Path) -> None:
    documents = some_documents(30)
    make(tmp_path / "index", documents, store=store)
    newer = [replace(documents[3], text="quite other words"), replace(documents[17], fields={"group": "new"})]
    tally = make(tmp_path / "index", [*newer, Document("d99", "salt")], store=store, replace=True)
    assert (tally.replaced, tally.added, tally.state["documents"]) == (2, 1, 31)
    now = [*(d for d in documents if d.id not in ("d3", "d17")), *newer, Document("d99", "salt")]
    index = opened(tmp_path / "index")
    for hits, expected in zip(index.search(QUERIES, 12), ranking(QUERIES, now, 12), strict=True):
        assert ids(hits) == [name for name, _ in expected]
    assert index.search("quite other words", 1)[0].text == "quite other words"
    assert ids(index.search("salt", 100, {"group": "new"})) == ["d17"]
    again = make(tmp_path / "index", [*newer, documents[3]], store=store, replace=True)
    assert (again.unchanged, again.replaced) == (2, 1)
    assert len(opened(tmp_path / "index").search("salt", 100)) == 31


@every_store
def test_with_replace_the_last_of_one_input_counts(store: str, tmp_path: Path) -> None:
    rows = [Document("x", f"text {i}") for i in range(20)] + [Document("y", "salt")]
    tally = make(tmp_path / "index", rows, store=store, replace=True)
    assert (tally.read, tally.state["documents"]) == (21, 2)
    assert {hit.id: hit.text for hit in opened(tmp_path / "index").search("text", 9)} == {"x": "text 19", "y": "salt"}


@every_store
def test_documents_without_text_are_counted_and_left_out(store: str, tmp_path: Path) -> None:
    rows = [Document("a", " "), Document("b", "salt"), Document("c", "", "river")]
    tally = make(tmp_path / "index", rows, store=store)
    assert (tally.empty, tally.added) == (1, 2)
    assert str(tally).startswith("2 added, 1 empty; the index holds 2 documents")
    with pytest.raises(InputError, match="none of the 1 documents has any text"):
        make(tmp_path / "none", rows[:1], store=store)
    with pytest.raises(MissingPartError, match="is not finished"):
        opened(tmp_path / "none")


@every_store
def test_values_by_field_choose_documents(store: str, tmp_path: Path) -> None:
    documents = some_documents(40)
    make(tmp_path / "index", documents, store=store)
    index = opened(tmp_path / "index")
    for where, kept in [
        ({"group": "g2"}, [d for d in documents if d.fields["group"] == "g2"]),
        ({"group": "g2", "odd": True}, [d for d in documents if d.fields["group"] == "g2" and d.fields["odd"]]),
        ({"number": 7}, documents[7:8]),
        ({"number": 7.0}, documents[7:8]),
        ({"id": "d9"}, documents[9:10]),
        ({"title": "river"}, [d for d in documents if d.title == "river"]),
        ("group = 'g2' AND odd = true", [d for d in documents if d.fields["group"] == "g2" and d.fields["odd"]]),
        ("number = 7", documents[7:8]),
        ({"group": "none such"}, []),
        ({}, documents),
    ]:
        expected = [[name for name, _ in row] for row in ranking(QUERIES, kept, 6)] if kept else [[]] * len(QUERIES)
        assert [ids(hits) for hits in index.search(QUERIES, 6, where)] == expected, where


NASTY = [
    "it's",
    "x' OR '1' = '1",
    "'; DROP TABLE documents; --",
    'a "b" `c`',
    "a\nb\0c",
    "\\",
    "\\'",
    "☃",
    "",
    "%",
    "'",
]


@every_store
def test_what_a_value_holds_never_becomes_a_part_of_the_condition(store: str, tmp_path: Path) -> None:
    documents = [Document(f"{i} {text}", f"salt {i}", "", {"source": text}) for i, text in enumerate(NASTY)]
    make(tmp_path / "index", documents, store=store)
    index = opened(tmp_path / "index")
    for document in documents:
        assert ids(index.search("salt", 50, {"source": document.fields["source"]})) == [document.id]
        assert ids(index.search("salt", 50, {"id": document.id})) == [document.id]
        words = "source = '" + document.fields["source"].replace("'", "''") + "'"
        assert ids(index.search("salt", 50, words)) == [document.id]
    assert len(index.search("salt", 50)) == len(NASTY)


@every_store
def test_fields_differ_from_document_to_document(store: str, tmp_path: Path) -> None:
    """A field may come late, be missing, be null, or have a name that is no word."""
    rows = [
        Document("a", "salt 1", "", {"one": "x"}),
        *(Document(f"f{i}", f"salt {i}") for i in range(9)),
        Document("b", "salt 2", "", {"one": None, "two words": 3, "Three": True, "_row": 5, "vector": "v"}),
        Document("c", "salt 3", "", {"list": [1], "Größe": 1.5, "a.b": "dot", "one": "x"}),
    ]
    make(tmp_path / "index", rows, store=store)
    index = opened(tmp_path / "index")
    assert {hit.id: hit.fields for hit in index.search("salt", 99)} == {row.id: row.fields for row in rows}
    for where, expected in [
        ({"one": "x"}, {"a", "c"}),
        ({"two words": 3}, {"b"}),
        ({"Three": True}, {"b"}),
        ({"Größe": 1.5}, {"c"}),
        ({"vector": "v"}, {"b"}),
    ]:
        assert set(ids(index.search("salt", 99, where))) == expected, where
    assert "a" not in ids(index.search("salt", 99, {"one": None}))


@every_store
def test_a_condition_that_cannot_be_read_is_a_wrong_request(store: str, tmp_path: Path) -> None:
    make(tmp_path / "index", some_documents(9), store=store)
    with pytest.raises(SettingError, match="condition"):
        opened(tmp_path / "index").search("salt", 3, "group = ")
    with pytest.raises(SettingError, match="the value wanted for 'group' is a list"):
        opened(tmp_path / "index").search("salt", 3, {"group": ["g1"]})


@every_store
def test_another_encoder_is_refused_by_name(store: str, tmp_path: Path) -> None:
    make(tmp_path / "index", some_documents(9), WordEncoder("print-1"), store=store)
    for other in (WordEncoder("print-2"), WordEncoder("print-1", dimension=8)):
        with pytest.raises(MismatchError) as refused:
            opened(tmp_path / "index", other)
        assert "was made with WordEncoder (print-1), but the encoder given is WordEncoder" in str(refused.value)
        assert other.fingerprint in str(refused.value)
    with pytest.raises(MismatchError, match=r'sources.encoder: it has "print-1", you asked for "print-2"'):
        make(tmp_path / "index", some_documents(9), WordEncoder("print-2"), store=store)


@pytest.mark.parametrize("side", ["query", "document"])
def test_other_prompts_are_refused_with_both_wordings(side: str, tmp_path: Path) -> None:
    make(tmp_path / "index", some_documents(9), WordEncoder(query="q: ", document="d: "))
    other = WordEncoder(**{"query": "q: ", "document": "d: ", side: "other: "})
    with pytest.raises(MismatchError, match=f"{side} prompt: it has '{side[0]}: ', WordEncoder has 'other: '"):
        opened(tmp_path / "index", other)
    with pytest.raises(MismatchError, match=f'{side} prompt: it has "{side[0]}: ", you asked for "other: "'):
        make(tmp_path / "index", some_documents(9), other)


def test_another_store_or_similarity_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "index", some_documents(9))
    with pytest.raises(MismatchError, match=r'settings.similarity: it has "cosine", you asked for "dot"'):
        make(tmp_path / "index", some_documents(9), similarity="dot")
    with pytest.raises(MismatchError, match="holds index, this step reads targets"):
        from afterword.corpus.targets import open_targets

        open_targets(tmp_path / "index")


def test_each_side_has_its_prompt(tmp_path: Path) -> None:
    encoder = WordEncoder(query="q: ", document="d: ")
    make(tmp_path / "index", [Document("1", "salt")], encoder)
    opened(tmp_path / "index", encoder).search("river")
    assert encoder.asked == [["d: salt"], ["q: river"]]


def test_own_prompts_are_kept_for_searching(tmp_path: Path) -> None:
    encoder = WordEncoder(query="q: ", document="d: ")
    make(tmp_path / "index", [Document("1", "salt")], encoder, query_prompt="ask ", document_prompt="")
    opened(tmp_path / "index", encoder).search("river")
    assert encoder.asked == [["salt"], ["ask river"]]


class OneSided:
    """An encoder with nothing but what the protocol asks for."""

    fingerprint = "one"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, inputs: Any, *, batch_size: int = 32, show_progress_bar: bool | None = None) -> Any:
        self.asked += inputs
        return np.stack([vector(text) for text in inputs])

    def get_embedding_dimension(self) -> int:
        return 16


def test_the_bare_protocol_is_enough(tmp_path: Path) -> None:
    encoder = OneSided()
    make(tmp_path / "index", some_documents(9), encoder, query_prompt="q ", document_prompt="d ")
    assert opened(tmp_path / "index", encoder).search("salt", 2)
    assert encoder.asked[0].startswith("d ") and encoder.asked[-1] == "q salt"


class Wrong(WordEncoder):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def encode(self, inputs: Any, prompt: str | None = None, **_: Any) -> Any:
        return self.result


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (np.ones((1, 16), np.float32), r"returned shape \(1, 16\), expected \(2, 16\)"),
        (np.full((2, 16), np.nan, np.float32), "NaN or infinity for item 0"),
    ],
)
def test_an_encoder_that_fails_is_named(result: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=words):
        make(tmp_path / "index", some_documents(2), Wrong(result))


def test_a_text_without_direction_is_found_last_and_with_score_zero(tmp_path: Path) -> None:
    class Zero(WordEncoder):
        def encode(self, inputs: Any, prompt: str | None = None, **_: Any) -> Any:
            return np.stack([np.zeros(16, np.float32) if "nothing" in text else vector(text) for text in inputs])

    make(tmp_path / "index", [Document("zero", "nothing"), Document("1", "salt")], Zero())
    found = opened(tmp_path / "index", Zero()).search("salt", 5)
    assert [(hit.id, hit.score) for hit in found][1] == ("zero", 0.0)


def test_similarities_that_are_no_product_need_a_choice(tmp_path: Path) -> None:
    encoder = WordEncoder(similarity="euclidean")
    with pytest.raises(SettingError, match="compares by euclidean; search knows cosine and dot: choose one with"):
        make(tmp_path / "index", some_documents(3), encoder)
    make(tmp_path / "index", some_documents(3), encoder, similarity="cosine")


@pytest.mark.parametrize("k", [0, -1])
def test_no_hits_are_no_wish(k: int, tmp_path: Path) -> None:
    make(tmp_path / "index", some_documents(3))
    with pytest.raises(SettingError, match=f"k is {k}"):
        opened(tmp_path / "index").search("salt", k)


@pytest.mark.parametrize("vectors", [np.ones(16), np.ones((1, 5)), np.full((1, 16), np.inf)])
def test_vectors_of_another_kind_are_refused(vectors: Any, tmp_path: Path) -> None:
    make(tmp_path / "index", some_documents(3))
    with pytest.raises(InputError, match="vector"):
        opened(tmp_path / "index").search_vectors(vectors.astype(np.float32))


def test_documents_are_read_as_they_are_encoded(tmp_path: Path) -> None:
    """Never more than a chunk is held."""
    read, seen = [0], []

    def documents() -> Iterator[Document]:
        for document in some_documents(20):
            read[0] += 1
            yield document

    class Watching(WordEncoder):
        def encode(self, inputs: Any, prompt: str | None = None, **options: Any) -> Any:
            seen.append(read[0])
            return super().encode(inputs, prompt, **options)

    done: list[int] = []
    from afterword.search.build import build_index

    build_index(Watching(), documents(), tmp_path / "index", progress=done.append)
    assert seen == [8, 16, 20]
    assert done == [8, 8, 4]


def test_the_matrix_is_never_in_memory(tmp_path: Path) -> None:
    """10 MB of vectors are compared where they lie: what a search allocates is its scores and its hits."""
    import tracemalloc

    from afterword.search.numpy_store import NumpyStore

    store, draw = NumpyStore(tmp_path, 256), np.random.default_rng(0)
    store.begin()
    for start in range(0, 10_240, 1024):
        rows = [Document(f"d{start + i}", "text") for i in range(1024)]
        store.add(rows, draw.standard_normal((1024, 256)).astype(np.float32))
    store.finish()
    store.close()
    fresh, queries = NumpyStore(tmp_path, 256), draw.standard_normal((2, 256)).astype(np.float32)
    tracemalloc.start()
    try:
        assert [len(hits) for hits in fresh.search(queries, 10)] == [10, 10]
        assert tracemalloc.get_traced_memory()[1] < 2e6
    finally:
        tracemalloc.stop()


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    def documents() -> Iterator[Document]:
        yield from some_documents(9)
        with pytest.raises(WorkError, match="is writing to"):
            make(tmp_path / "index", some_documents(3))

    make(tmp_path / "index", documents())  # type: ignore[arg-type]
    assert len(opened(tmp_path / "index").search(WORDS[0], 99)) == 9
