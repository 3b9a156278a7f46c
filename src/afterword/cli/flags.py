"""What all commands share: flags from dataclasses, with the field docstrings as help."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TypeVar, cast

import tyro

from afterword.errors import SettingError

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
    """Return the value of a flag that must be known before the others are parsed; the last one counts.

    It is None where the flag is not given, or has no value: what is wrong is then said when all flags are parsed.

    Raises:
        SettingError: The value is empty, as that of a shell variable that is not set.
    """
    found = None
    for argument, following in zip(arguments, [*arguments[1:], "--"], strict=True):
        flag, equals, value = argument.partition("=")
        if flag == name:
            found = value if equals else following
            if not found:
                raise SettingError(f"{name} is empty: name one, or leave the flag out")
    return None if found is None or found == "None" or found.startswith("--") else found


def quiet_libraries() -> None:
    """Keep transformers' own bars and advice off the terminal; ours say what matters."""
    import warnings

    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if not sys.warnoptions:
        warnings.simplefilter("ignore", FutureWarning)
