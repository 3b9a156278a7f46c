"""What goes wrong: an exit code that means something, and one message on stderr that names the item and the way out."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from afterword.cli import main as module
from afterword.cli.main import main
from tests.cli.conftest import TEXTS, done
from tests.world import make_model, make_tokenizer


def failed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Run a command that fails and return its exit code and what it says."""
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return int(left.value.code or 0), " ".join(err.split())


def test_an_unknown_command_is_named_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    code, err = failed(capsys, "respnd")
    assert code == 2
    assert (
        "there is no command 'respnd'; there are respond, target, train, encode, decode, evaluate, serve, run, bench, "
        "demo" in err
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["respond", "--out", "x", "--querys", "q.jsonl"], "--queries"),
        (["train", "--responses", "r", "--targets", "t", "--out", "x", "--learning-rat", "1"], "--learning-rat"),
        (["train", "--responses", "r", "--targets", "t", "--out", "x", "--epochs", "two"], "two"),
        (["encode", "model", "in.txt"], "--out"),
        (["encode", "model", "in.txt", "--out", "x.npy", "--device", "tpu"], "tpu"),
    ],
)
def test_wrong_flags_are_a_wrong_request(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = failed(capsys, *arguments)
    assert code == 2
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["respond", "--out", "x", "--queries", "q", "--max-new-tokens", "0"],
            "max_new_tokens is 0: it must be at least 1",
        ),
        (["respond", "--out", "x", "--queries", "q", "--limit", "0"], "limit is 0, it must be at least 1"),
        (
            ["train", "--responses", "r", "--targets", "t", "--out", "x", "--lr", "0"],
            "lr is 0.0: it must be a number above 0",
        ),
        (
            ["train", "--responses", "r", "--targets", "t", "--out", "x", "--preset", "paper"],
            "no preset is named 'paper'",
        ),
        (["target", "--responses", "r", "--out", "x", "--target-batch", "0"], "target_batch is 0"),
        (["decode", "model"], "give texts on the command line, or --input FILE, and not both"),
        (["decode", "model", "a", "--input", "f"], "give texts on the command line, or --input FILE, and not both"),
    ],
)
def test_values_that_cannot_be_are_a_wrong_request(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = failed(capsys, *arguments)
    assert code == 2
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["respond", "--queries", "nowhere.jsonl", "--out", "x"], "afterword: there is no file nowhere.jsonl"),
        (["target", "--responses", "nowhere", "--out", "x"], "afterword: nowhere/manifest.json is missing"),
        (
            ["train", "--responses", "a", "--targets", "nowhere", "--out", "x"],
            "afterword: nowhere/manifest.json is missing",
        ),
        (["encode", "./nowhere", "in.txt", "--out", "x.npy"], "afterword: no folder ./nowhere"),
        (["decode", "./nowhere", "a"], "afterword: no folder ./nowhere"),
        (["run", "nowhere.toml", "--out", "x"], "afterword: no recipe nowhere.toml"),
    ],
)
def test_what_is_not_there_is_a_wrong_artefact(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, err = failed(capsys, *arguments)
    assert code == 3
    assert words in err
    assert list(tmp_path.iterdir()) == []


def test_a_typo_in_a_recipe_is_named_with_the_nearest_setting(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('queries = "q.jsonl"\nepoch = 2\n')
    code, err = failed(capsys, "run", recipe, "--out", tmp_path / "out")
    assert (code, err) == (2, f"afterword: {recipe}: unknown setting epoch; did you mean epochs?")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("queries.jsonl", b"", "queries.jsonl is empty"),
        ("queries.jsonl", b'{"question": 1}\n', "column 'question' holds a number"),
        ("queries.csv", b"title,body\na,b\n", "there are title, body"),
        ("queries.jsonl", b'{"text": "ok"}\n{"text": "bad \\ud800"}\n', "queries.jsonl:2"),
        ("queries.xlsx", b"x", "is of no format known here"),
    ],
)
def test_faults_in_queries_are_named_before_the_llm_is_loaded(
    name: str,
    content: bytes,
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("afterword.backbone.load.load_backbone", None)
    (tmp_path / name).write_bytes(content)
    code, err = failed(capsys, "respond", "--queries", tmp_path / name, "--out", tmp_path / "out")
    assert code == 2
    assert words in err


def test_other_settings_in_the_same_folder_are_a_wrong_artefact(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, queries: Path, backbone_flags: list[str]
) -> None:
    command = ["respond", "--queries", queries, "--out", tmp_path / "responses", *backbone_flags, "--max-new-tokens"]
    done(capsys, *command, 4)
    code, err = failed(capsys, *command, 5)
    assert code == 3
    assert "settings.max_new_tokens: it has 4, you asked for 5 choose another --out" in err


def test_training_on_responses_of_another_backbone_is_refused_with_both_names(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    queries: Path,
    backbone_flags: list[str],
    saved_folders: dict[str, Path],
) -> None:
    done(capsys, "respond", "--queries", queries, "--out", tmp_path / "r", *backbone_flags, "--max-new-tokens", 4)
    done(capsys, "target", "--responses", tmp_path / "r", "--out", tmp_path / "t", "--teacher", "llm", *backbone_flags)
    other = ["--backbone", saved_folders["llama"], "--dtype", "float32"]
    code, err = failed(
        capsys, "train", "--responses", tmp_path / "r", "--targets", tmp_path / "t", "--out", tmp_path / "x", *other
    )
    assert code == 3
    assert f"was written by {saved_folders['qwen3']}" in err
    assert f"the backbone given is {saved_folders['llama']}" in err
    assert not (tmp_path / "x").exists()
    asked = ["--other-writer", "--validation", 2, "--epochs", 1, "--batch-size", 4]
    done(
        capsys,
        "train",
        "--responses",
        tmp_path / "r",
        "--targets",
        tmp_path / "t",
        "--out",
        tmp_path / "x",
        *other,
        *asked,
    )
    assert (tmp_path / "x" / "model" / "model.safetensors").is_file()


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """An untrained model on a tiny backbone."""
    from afterword.model.model import Afterword

    make_model("llama").save_pretrained(tmp_path / "backbone")
    make_tokenizer().save_pretrained(tmp_path / "backbone")
    model = Afterword.from_backbone(str(tmp_path / "backbone"), dtype="float32", n_compression=3)
    model.save_pretrained(str(tmp_path / "model"))
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--out", "x.txt"], 2, "vectors are written to a .npy or a .parquet file"),
        (["--out", "x.npy", "--prompt-name", "passage"], 2, "no prompt is named 'passage'"),
        (["--out", "x.npy", "--column", "title"], 2, "has no column 'title'; its columns are text"),
        (["--out", "x.npy", "--batch-size", "0"], 2, "batch_size"),
        (["--out", "queries.jsonl/x.npy"], 2, "queries.jsonl/x.npy cannot be written"),
    ],
)
def test_faults_of_encode_leave_no_file(
    flags: list[str],
    code: int,
    words: str,
    model_folder: Path,
    queries: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    found, err = failed(capsys, "encode", model_folder, queries, "--dtype", "float32", *flags)
    assert found == code
    assert words in err
    assert sorted(tmp_path.iterdir()) == before


def test_a_batch_of_nothing_is_refused_by_decode(model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = failed(capsys, "decode", model_folder, "a", "--dtype", "float32", "--batch-size", 0)
    assert code == 2
    assert "batch_size" in err


def test_a_model_on_a_backbone_that_changed_is_a_wrong_artefact(
    model_folder: Path, queries: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    make_model("llama", rms_norm_eps=1e-3, hidden_size=32, vocab_size=280).save_pretrained(tmp_path / "backbone")
    code, err = failed(capsys, "encode", model_folder, queries, "--out", tmp_path / "x.npy", "--dtype", "float32")
    assert code == 3
    assert "was trained on" in err
    assert "its tokens and heads mean nothing there" in err


class _Raises:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def parse(self, _: object) -> Any:
        raise self.error


def test_an_interrupt_has_its_own_code_and_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "import_module", lambda _: _Raises(KeyboardInterrupt()))
    code, err = failed(capsys, "train")
    assert (code, err) == (130, "afterword: interrupted; run the same command again to go on")


def test_a_mistake_of_ours_is_not_dressed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "import_module", lambda _: _Raises(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["train"])


def test_a_terminal_that_cannot_show_a_sign_shows_its_code(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As with an old code page: neither a riddle about codecs nor nothing."""
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", screen)
    with pytest.raises(SystemExit) as left:
        main(["decode", str(model_folder), TEXTS[0], "--dtype", "float32", "--max-new-tokens", "4"])
    assert left.value.code == 0
    screen.flush()
    assert "caf\\xe9 \\u2603" in screen.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
