"""What all commands share: flags from dataclasses, with the field docstrings as help."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TypeVar, cast

import tyro

T = TypeVar("T")


def parse_flags(command: type[T], name: str, arguments: Sequence[str], default: T | None = None) -> T:
    """Parse the flags of a command; settings of stages appear without a prefix.

    A wrong flag ends the process with exit code 2 and says which one was near.
    """
    parsed = tyro.cli(
        command,
        prog=f"afterword {name}",
        description=command.__doc__,
        args=list(arguments),
        default=default,
        config=(tyro.conf.OmitArgPrefixes,),
    )
    return cast("T", parsed)


def flag_value(arguments: Sequence[str], name: str) -> str | None:
    """Return the value of a flag that must be known before the others are parsed, or None where it is not given."""
    for place, argument in enumerate(arguments):
        flag, _, value = argument.partition("=")
        if flag == name:
            return value or (arguments[place + 1] if place + 1 < len(arguments) else None)
    return None


def quiet_libraries() -> None:
    """Keep transformers' own bars and advice off the terminal; ours say what matters."""
    import warnings

    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if not sys.warnoptions:
        warnings.simplefilter("ignore", FutureWarning)
