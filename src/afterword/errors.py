"""Every error that Afterword raises on purpose.

    AfterwordError
    ├── UsageError               you asked for something that cannot be (exit code 2)
    │   ├── InputError           one item of your data is wrong; `item` says which
    │   ├── SettingError         a flag, a recipe key or an argument is wrong
    │   └── MissingExtraError    an optional package is not installed
    ├── ArtefactError            a file or folder is not what it should be (exit code 3)
    │   ├── MissingPartError     a part of it is not there
    │   ├── MismatchError        it belongs to something else; both sides are named
    │   └── CorruptError         its bytes are damaged
    └── WorkError                the work itself failed (exit code 1)

The two upper branches are the caller's to mend, the last one is not: a server maps them to 4xx and 5xx, the command
line to exit codes, without asking which exact class it has.
"""

from __future__ import annotations


class AfterwordError(Exception):
    """Base of all errors below; catching it catches everything raised on purpose."""

    exit_code = 1


class UsageError(AfterwordError, ValueError):
    """The request cannot be fulfilled as it was made."""

    exit_code = 2


class InputError(UsageError):
    """One item of the input is wrong.

    Args:
        message: What was found and what to do about it.
        item: Index or id of the item, as the caller counts.
    """

    def __init__(self, message: str, item: int | str | None = None) -> None:
        super().__init__(message if item is None else f"item {item}: {message}")
        self.item = item


class SettingError(UsageError):
    """A flag, a recipe key or an argument has a value that cannot be used."""


class MissingExtraError(UsageError, ImportError):
    """An optional package is missing; the message holds the command that installs it."""


class ArtefactError(AfterwordError):
    """A file or folder that a stage reads is not what it should be."""

    exit_code = 3


class MissingPartError(ArtefactError, FileNotFoundError):
    """A part of an artefact is not there; the message names the part."""


class MismatchError(ArtefactError):
    """Two artefacts do not belong together; the message names both sides."""


class CorruptError(ArtefactError):
    """The bytes of an artefact are damaged."""


class WorkError(AfterwordError, RuntimeError):
    """The work was well specified and failed all the same."""
