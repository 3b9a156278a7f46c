"""Help: quick, complete, with an example."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from afterword import __version__
from afterword.cli.main import COMMANDS, main

HEAVY = ("torch", "transformers", "datasets", "accelerate", "numpy", "pyarrow", "sentence_transformers", "tyro", "rich")


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return int(left.value.code or 0)


def test_help_imports_nothing_heavy() -> None:
    code = f"""
import sys
from afterword.cli.main import main
try:
    main(["--help"])
except SystemExit as left:
    print("LEFT", left.code, [name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LEFT 0 []"
    assert all(f"  {command} " in done.stdout for command in COMMANDS)


@pytest.mark.parametrize("arguments", [("--help",), ("-h",)])
def test_help_names_every_command_and_exit_code(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert called(*arguments) == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"^  {command} +\w", out, re.MULTILINE) for command in COMMANDS)
    assert "0 done, 1 failed, 2 wrong request, 3 wrong artefact, 130 interrupted" in out


def test_no_command_is_a_wrong_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert called() == 2
    assert "usage: afterword COMMAND" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert called("--version") == 0
    assert capsys.readouterr().out == f"afterword {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(command, "--help") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"usage: afterword {command}" in out
    assert f"Example: afterword {command} " in out
    assert "--out" in out or command in ("decode", "search", "serve")


def test_flags_of_settings_have_no_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    called("train", "--help")
    out = capsys.readouterr().out
    for flag in ("--n-compression", "--lr", "--backbone", "--epochs", "--preset", "--resume", "--warm-start"):
        assert re.search(rf"^\W*{flag}\b", out, re.MULTILINE), flag


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"]], ids=["all", "one"])
def test_help_into_a_pipe_that_nobody_reads_is_quiet(arguments: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "afterword", *arguments]
    try:
        done = subprocess.run(command, env=environment, stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_command_is_installed_under_its_name() -> None:
    script = Path(sys.executable).with_name("afterword")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"afterword {__version__}\n"
