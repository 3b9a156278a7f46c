"""The `afterword` command."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast, runtime_checkable

from afterword.errors import AfterwordError

COMMANDS = {
    "respond": "let the frozen LLM answer queries",
    "target": "embed the responses with a teacher",
    "train": "train tokens and heads on responses and targets",
    "encode": "turn texts into vectors, as a stream",
    "decode": "say what the embedding of a text holds",
    "index": "make documents searchable, with any encoder",
    "search": "find documents of an index",
    "evaluate": "measure encoders on mteb's tasks or your own files",
    "teacher": "train an LLM2Vec teacher, embed with one, merge one",
    "serve": "serve an encoder over HTTP, as OpenAI's endpoint",
    "run": "carry out all stages of a recipe",
    "export": "write a model for plain sentence-transformers",
    "convert": "write a checkpoint of the paper's authors as a model of ours",
    "bench": "measure speed and memory on this machine",
    "demo": "all of it on a small real LLM, with a report",
}

INTERRUPTED = 130


@runtime_checkable
class Command(Protocol):
    """What a command module offers as `Command`: a dataclass of flags that can run."""

    def run(self) -> None:
        """Do it."""
        ...


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code.

    0: done. 1: the work failed. 2: you asked for something that cannot be. 3: an artefact is missing, damaged or
    belongs to something else. 130: interrupted.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    _show_any_sign()
    try:
        code = _run(given)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


def _run(given: Sequence[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(_help())
        return 0 if given else 2
    if given[0] == "--version":
        from afterword import __version__

        print(f"afterword {__version__}")
        return 0
    if given[0] not in COMMANDS:
        return _complain(f"there is no command {given[0]!r}; there are {', '.join(COMMANDS)}", 2)
    try:
        module = import_module(f"afterword.cli.{given[0]}")
        command = cast("Command", module.parse(given[1:]))
        command.run()
    except SystemExit as leave:  # the help of a command, or a wrong flag
        return cast("int", leave.code)
    except AfterwordError as error:
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _complain("interrupted; run the same command again to go on", INTERRUPTED)
    return 0


def _show_any_sign() -> None:
    """Let a terminal with an old code page show the code of a sign that it does not have, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _complain(message: str, code: int) -> int:
    print(f"afterword: {message}", file=sys.stderr)
    return code


def _help() -> str:
    rows = "\n".join(f"  {name:<9} {what}" for name, what in COMMANDS.items())
    return f"""usage: afterword COMMAND [flags]      (afterword COMMAND --help explains one, with an example)

Embeddings of what a language model would answer.

commands:
{rows}

exit codes: 0 done, 1 failed, 2 wrong request, 3 wrong artefact, 130 interrupted"""
