"""`afterword index` and `afterword search` as users run them."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from afterword.cli.main import main
from afterword.model.model import Afterword
from tests.cli.conftest import done
from tests.model.embedders import make_embedder
from tests.world import make_model, make_tokenizer

ROWS: list[dict[str, Any]] = [
    {"_id": "sky", "title": "Sky", "text": "The sky is blue.", "source": "it's"},
    {"_id": "bread", "title": "", "text": "Bread is baked. café ☃ 👩‍👩‍👧", "source": "b"},
    {"_id": "id\nwith\x1b[31m line\u202e", "title": "T", "text": "Rivers\nflow.", "source": "b"},
    *({"_id": f"n{i}", "title": "", "text": f"number {i} of many", "source": "c"} for i in range(20)),
]
ON_CPU = ["--device", "cpu", "--dtype", "float32"]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Afterword model with prompts for both sides, saved with its backbone."""
    folder = tmp_path_factory.mktemp("search")
    make_model("llama").save_pretrained(folder / "backbone")
    make_tokenizer().save_pretrained(folder / "backbone")
    from afterword.backbone.load import load_backbone
    from afterword.backbone.settings import BackboneSettings

    backbone = load_backbone(BackboneSettings(str(folder / "backbone"), device="cpu", dtype="float32"))
    embedder = make_embedder(backbone, prompts={"query": "Q: ", "document": "D: "}, max_length=200)
    embedder.save_pretrained(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def index(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    with pytest.raises(SystemExit) as left:
        docs = str(write(folder / "corpus.jsonl.gz", ROWS))
        main(["index", docs, "--model", str(model), "--out", str(folder / "index"), *ON_CPU])
    assert left.value.code == 0
    return folder / "index"


def results(text: str) -> list[Any]:
    """What was printed as JSON, scores only as exact as an encoder repeats itself from run to run."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        for hit in line["hits"]:
            hit["score"] = pytest.approx(hit["score"], abs=1e-5)
    return lines


def failed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert out == ""
    return int(left.value.code or 0), " ".join(err.split())


def test_what_is_printed_is_what_the_model_says(index: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queries = ["Why is the sky blue?", "café ☃"]
    out = done(capsys, "search", index, *queries, "--json", "--top-k", 4, *ON_CPU)
    lines = [json.loads(line) for line in out.splitlines()]
    embedder = Afterword.from_pretrained(model, device="cpu", dtype="float32")
    contents = [f"{row['title']} {row['text']}".strip() for row in ROWS]
    scores = embedder.similarity(embedder.encode_query(queries), embedder.encode_document(contents)).numpy()
    assert [line["query"] for line in lines] == queries
    for line, row in zip(lines, scores, strict=True):
        best = np.argsort(-row, kind="stable")[:4]
        assert [hit["id"] for hit in line["hits"]] == [ROWS[i]["_id"] for i in best]
        assert [hit["rank"] for hit in line["hits"]] == [1, 2, 3, 4]
        assert [hit["score"] for hit in line["hits"]] == pytest.approx(row[best].tolist(), abs=1e-5)
        assert [hit["fields"] for hit in line["hits"]] == [{"source": ROWS[i]["source"]} for i in best]
        assert "decoded" not in line


def test_explanations_stand_beside_the_scores(index: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer of the query behind its prompt, that of each hit behind the prompt of documents."""
    flags = ["--json", "-k", 3, "--explain", "--max-new-tokens", 5, *ON_CPU]
    (line,) = [json.loads(text) for text in done(capsys, "search", index, "a sky", *flags).splitlines()]
    embedder = Afterword.from_pretrained(model, device="cpu", dtype="float32")
    assert line["decoded"] == embedder.decode(embedder.latents(["a sky"], "Q: "), 5)[0]
    contents = [f"{hit['title']} {hit['text']}".strip() for hit in line["hits"]]
    assert [hit["decoded"] for hit in line["hits"]] == embedder.decode(embedder.latents(contents, "D: "), 5)
    shown = done(capsys, "search", index, "a sky", *[flag for flag in flags if flag != "--json"])
    assert shown.splitlines()[0] == "a sky"
    assert sum("→" in row for row in shown.splitlines()) == 4


def test_what_a_terminal_would_obey_is_shown_as_a_code(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = done(capsys, "search", index, "rivers", "--where", "title = 'T'", *ON_CPU)
    query, hit = out.splitlines()
    assert query == "rivers"
    assert hit.endswith("id with\\x1b[31m line\\u202e  T Rivers flow.")


def test_queries_come_from_a_file_or_from_stdin(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "queries.jsonl", [{"text": "Why is the sky blue?"}, {"text": "café ☃"}])
    flags = ["--json", "--top-k", 2, *ON_CPU]
    expected = done(capsys, "search", index, "Why is the sky blue?", "café ☃", *flags)
    assert results(done(capsys, "search", index, "--input", path, *flags)) == [
        json.loads(line) for line in expected.splitlines()
    ]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "afterword", "search", str(index), "--input", "-", *map(str, flags)]
    ran = subprocess.run(command, input="Why is the sky blue?\ncafé ☃\n".encode(), capture_output=True, env=environment)
    assert ran.returncode == 0, ran.stderr.decode()
    assert results(ran.stdout.decode("ascii")) == [json.loads(line) for line in expected.splitlines()]


def test_conditions_choose_documents(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def ids(*flags: object) -> set[str]:
        return {hit["id"] for hit in json.loads(done(capsys, "search", index, "x", "--json", *flags, *ON_CPU))["hits"]}

    assert ids("--where", "source = 'it''s'") == {"sky"}
    assert ids("--where", "source = 'b' AND title = 'T'") == {ROWS[2]["_id"]}
    assert ids("--where", "source = 'none'") == set()
    assert "nothing found" in done(capsys, "search", index, "x", "--where", "source = 'none'", *ON_CPU)


def test_run_again_it_adds_what_is_new(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    docs, out = tmp_path / "docs.jsonl", tmp_path / "index"
    command = ["index", docs, "--model", model, "--out", out, "--json", *ON_CPU]
    write(docs, ROWS[:5])
    first = json.loads(done(capsys, *command))
    assert (first["added"], first["state"]["documents"], first["out"]) == (5, 5, str(out))
    write(docs, [*ROWS, {"_id": "empty", "text": ""}])
    second = json.loads(done(capsys, *command))
    assert (second["read"], second["added"], second["unchanged"], second["empty"]) == (24, 18, 5, 1)
    write(docs, [{"_id": "sky", "title": "Sky", "text": "Grey."}])
    code, err = failed(capsys, *command)
    assert code == 2
    assert "item sky: another document has this id" in err
    assert json.loads(done(capsys, *command, "--replace"))["replaced"] == 1


def test_several_files_and_lines_from_stdin(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = write(tmp_path / "1.jsonl", ROWS[:3]), tmp_path / "2.txt"
    two.write_text("a line\nanother line\n", encoding="utf-8")
    found = json.loads(done(capsys, "index", one, two, "--model", model, "--out", tmp_path / "i", "--json", *ON_CPU))
    assert found["added"] == 5


def test_any_sentence_transformer_makes_an_index_but_explains_nothing(
    teacher_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The encoder is found again from another working folder."""
    docs = write(tmp_path / "docs.jsonl", ROWS)
    monkeypatch.chdir(teacher_folder.parent)
    out = done(capsys, "index", docs, "--model", f"./{teacher_folder.name}", "--out", tmp_path / "i", "--device", "cpu")
    assert out == f"{tmp_path / 'i'}\n"
    monkeypatch.chdir(tmp_path)
    assert "Bread is baked" in done(capsys, "search", "i", "Bread is baked. café ☃ 👩‍👩‍👧", "-k", 1, "--device", "cpu")
    code, err = failed(capsys, "search", "i", "bread", "--explain", "--device", "cpu")
    assert code == 2
    assert "cannot say what its embeddings hold: only the index of an Afterword model is explained" in err


def test_another_encoder_is_refused_by_name(
    index: Path, model: Path, teacher_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = failed(capsys, "search", index, "x", "--model", teacher_folder, "--device", "cpu")
    assert code == 3
    assert f"{index} was made with {model} (" in err and f"the encoder given is {teacher_folder} (" in err
    docs = write(tmp_path / "docs.jsonl", ROWS)
    code, err = failed(capsys, "index", docs, "--model", teacher_folder, "--out", index, "--device", "cpu")
    assert code == 3
    assert "sources.encoder: it has" in err


def test_faults_in_documents_are_named_before_a_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = write(tmp_path / "docs.jsonl", [{"a": 1, "b": 2}])
    code, err = failed(capsys, "index", docs, "--model", "./no-model", "--out", tmp_path / "i")
    assert code == 2
    assert "which column of" in err and "there are a, b" in err
    assert not (tmp_path / "i").exists()


@pytest.mark.parametrize("store", ["lancedb", "faiss"])
def test_a_store_that_is_not_installed_is_named_with_its_extra(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("afterword.extras.find_spec", lambda name: None)
    code, err = failed(capsys, "index", "d.jsonl", "--model", "x", "--out", tmp_path / "i", "--store", store)
    assert code == 2
    assert f"this needs {store}, which is not installed: pip install 'afterword[{store}]'" in err


@pytest.mark.parametrize("store", ["lancedb", "faiss"])
def test_other_stores_find_the_same(
    store: str, index: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_spec(store) is None:
        pytest.skip(f"the extra {store}")
    docs, flags = write(tmp_path / "docs.jsonl", ROWS), ["--json", "--top-k", 5, *ON_CPU]
    done(capsys, "index", docs, "--model", model, "--out", tmp_path / "i", "--store", store, *ON_CPU)
    for asked in (["Why is the sky blue?", "rivers"], ["x", "--where", "source = 'it''s'"]):
        here = done(capsys, "search", tmp_path / "i", *asked, *flags)
        assert results(here) == [
            json.loads(line) for line in done(capsys, "search", index, *asked, *flags).splitlines()
        ]
    if store == "lancedb":
        out = done(capsys, "search", tmp_path / "i", "x", "--where", "source IN ('b') OR id LIKE 'sk%'", *flags)
        assert {hit["id"] for hit in json.loads(out)["hits"]} == {row["_id"] for row in ROWS[:3]}
