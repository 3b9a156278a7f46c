"""Queries are cleaned, counted, deduplicated and sampled, and kept as an artefact."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import pytest
import tyro
from hypothesis import given, settings
from hypothesis import strategies as st

from afterword.corpus.manifest import Manifest
from afterword.corpus.queries import Cleaning, QuerySettings, load_queries, open_queries, save_queries
from afterword.corpus.records import Query, text_id
from afterword.errors import InputError, MismatchError, MissingPartError, SettingError


def source(folder: Path, texts: Sequence[object], ids: Sequence[object] | None = None) -> str:
    path = folder / "in.jsonl"
    rows = [{"text": text} for text in texts]
    if ids is not None:
        rows = [{"text": text, "key": identity} for text, identity in zip(texts, ids, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_each_row_ends_in_one_count(tmp_path: Path) -> None:
    texts = ["one thing", "", " \n\t", "ab", "x" * 21, "one thing", "  one thing\r\n", "another", "y" * 20, "abc"]
    queries, cleaning = load_queries(QuerySettings(source(tmp_path, texts), min_chars=3, max_chars=20))
    assert [query.text for query in queries] == ["one thing", "another", "y" * 20, "abc"]
    assert [query.id for query in queries] == [text_id(query.text) for query in queries]
    assert cleaning == Cleaning(read=10, empty=2, too_short=1, too_long=1, duplicate=2, kept=4)
    assert str(cleaning) == "kept 4 of 10 queries (2 empty, 1 too short, 1 too long, 2 duplicate)"


def test_nothing_to_clean_is_said_briefly(tmp_path: Path) -> None:
    _, cleaning = load_queries(QuerySettings(source(tmp_path, ["a", "b"])))
    assert str(cleaning) == "kept 2 of 2 queries"


def test_text_stays_as_typed_but_for_line_ends_nul_and_margins(tmp_path: Path) -> None:
    typed = ["\u00a0 a\r\nb\rc\n\n d\0e  f ", "cafe\u0301", "café", "<|im_end|> !@#$%^&*()", "\uff21\u200b"]
    queries, _ = load_queries(QuerySettings(source(tmp_path, typed)))
    assert [query.text for query in queries] == ["a\nb\nc\n\n de  f", *typed[1:]]


def test_lone_surrogate_is_named_by_its_row(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"in\.jsonl:2: character 4 is a lone surrogate"):
        load_queries(QuerySettings(source(tmp_path, ["fine", "ok \ud800 bad"])))


def test_given_ids_are_kept(tmp_path: Path) -> None:
    path = source(tmp_path, ["a", "b", "a", "a"], ["k1", 2, "k1", "k3"])
    queries, cleaning = load_queries(QuerySettings(path, id_column="key"))
    assert queries == [Query("k1", "a"), Query("2", "b")]
    assert cleaning.duplicate == 2


@pytest.mark.parametrize("ids", [["same", "same", "z"], ["first", "same", "same"]])
def test_id_of_two_texts_is_named(tmp_path: Path, ids: list[str]) -> None:
    # In the second case the id was first seen on a duplicate, which is dropped; the clash is one all the same.
    texts = ["a", "b", "c"] if ids[0] == "same" else ["a", "a", "c"]
    with pytest.raises(InputError, match="item same: two different texts have this id") as caught:
        load_queries(QuerySettings(source(tmp_path, texts, ids), id_column="key"))
    assert caught.value.item == "same"


def test_nothing_left_says_why(tmp_path: Path) -> None:
    path = source(tmp_path, ["a", "", "bb", "bb"])
    with pytest.raises(InputError, match=r"in\.jsonl is left: kept 0 of 4 queries \(1 empty, 3 too short\)"):
        load_queries(QuerySettings(path, min_chars=3))


@pytest.mark.parametrize("bad", [{"limit": 0}, {"min_chars": 10, "max_chars": 9}, {"max_chars": 0}])
def test_settings_that_leave_nothing_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(SettingError, match=r"limit is 0|max_chars is"):
        QuerySettings("a.txt", **bad)  # type: ignore[arg-type]


def many(count: int) -> list[str]:
    return [f"question number {i}" for i in range(count)]


def sample(folder: Path, texts: Sequence[str], limit: int | None, seed: int = 0) -> list[str]:
    queries, _ = load_queries(QuerySettings(source(folder, texts), limit=limit, seed=seed))
    return [query.text for query in queries]


def test_sample_keeps_the_order_and_counts(tmp_path: Path) -> None:
    texts = many(200)
    queries, cleaning = load_queries(QuerySettings(source(tmp_path, texts), limit=50))
    places = [texts.index(query.text) for query in queries]
    assert places == sorted(places)
    assert cleaning == Cleaning(read=200, sampled_out=150, kept=50)


def test_sample_is_stable_and_grows_with_its_limit(tmp_path: Path) -> None:
    texts = many(200)
    drawn = sample(tmp_path, texts, 50)
    assert sample(tmp_path, texts, 50) == drawn
    assert sample(tmp_path, texts + texts[::-1], 50) == drawn
    assert set(sample(tmp_path, texts[::-1], 50)) == set(drawn)
    assert set(drawn) < set(sample(tmp_path, texts, 80))
    assert sample(tmp_path, texts, 1000) == texts
    assert sample(tmp_path, texts, None) == texts


def test_sample_depends_on_the_seed_and_on_nothing_like_the_place(tmp_path: Path) -> None:
    texts = many(400)
    draws = [set(sample(tmp_path, texts, 200, seed)) for seed in range(4)]
    for i, first in enumerate(draws):
        # Each half of the rows gives about half: 100 expected, standard deviation 5.
        assert 75 < len(first & set(texts[:200])) < 125
        for second in draws[i + 1 :]:
            assert 75 < len(first & second) < 125


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=1), st.integers(1, 5))
def test_counts_add_up_for_any_rows(tmp_path_factory: pytest.TempPathFactory, texts: list[str], limit: int) -> None:
    folder = tmp_path_factory.mktemp("any")
    chosen = QuerySettings(source(folder, texts), limit=limit, min_chars=2, max_chars=4)
    try:
        queries, cleaning = load_queries(chosen)
    except InputError:
        return
    parts = asdict(cleaning)
    assert parts.pop("read") == sum(parts.values()) == len(texts)
    assert len(queries) == cleaning.kept == len({query.text for query in queries}) <= limit
    assert all(2 <= len(query.text) <= 4 and query.text == query.text.strip() for query in queries)


def saved(tmp_path: Path, texts: Sequence[str] = ("a", "café ☃", "two\nlines\u2028")) -> tuple[Path, list[Query]]:
    chosen = QuerySettings(source(tmp_path, texts))
    queries, cleaning = load_queries(chosen)
    save_queries(tmp_path / "out", queries, chosen, cleaning)
    return tmp_path / "out", queries


def test_artefact_comes_back(tmp_path: Path) -> None:
    folder, queries = saved(tmp_path)
    assert open_queries(folder) == queries
    lines = (folder / "queries.jsonl").read_bytes().decode("utf-8").split("\n")
    assert [json.loads(line)["text"] for line in lines[:-1]] == [query.text for query in queries]
    manifest = Manifest.read(folder, "queries")
    assert manifest.settings["max_chars"] == 20000
    assert manifest.made_with["cleaning"] == "kept 3 of 3 queries"
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "queries.jsonl"]


def test_artefact_is_saved_twice_but_never_replaced_by_another(tmp_path: Path) -> None:
    folder, queries = saved(tmp_path)
    saved(tmp_path)
    with pytest.raises(MismatchError, match=r"sources\.queries"):
        saved(tmp_path, ["the source changed"])
    with pytest.raises(MismatchError, match=r"settings\.limit: it has null, you asked for 1"):
        save_queries(folder, queries, QuerySettings(str(tmp_path / "in.jsonl"), limit=1), Cleaning())
    assert open_queries(folder) == queries


def test_killed_between_its_files_it_can_be_saved_again(tmp_path: Path) -> None:
    folder, queries = saved(tmp_path)
    (folder / "queries.jsonl").unlink()
    with pytest.raises(MissingPartError, match=r"queries\.jsonl is missing"):
        open_queries(folder)
    saved(tmp_path)
    assert open_queries(folder) == queries


@pytest.mark.parametrize("change", [b"x", b"\xff\n", b'{"id": "n", "text": "new"}\n'])
def test_changed_artefact_is_refused(tmp_path: Path, change: bytes) -> None:
    folder, _ = saved(tmp_path)
    with (folder / "queries.jsonl").open("ab") as file:
        file.write(change)
    with pytest.raises(MismatchError, match=r"queries\.jsonl was changed"):
        open_queries(folder)


def test_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    Manifest("targets", {}, {}).write(tmp_path)
    with pytest.raises(MismatchError, match="holds targets, this step reads queries"):
        open_queries(tmp_path)


def test_settings_are_a_command_with_help(capsys: pytest.CaptureFixture[str]) -> None:
    made = tyro.cli(QuerySettings, args=["--queries", "a.txt", "--limit", "5", "--column", "q"])
    assert made == QuerySettings("a.txt", column="q", limit=5)
    with pytest.raises(SystemExit):
        tyro.cli(QuerySettings, args=["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert all(f"--{field.name.replace('_', '-')}" in shown for field in fields(QuerySettings))
    assert "Drop queries shorter than this" in shown
