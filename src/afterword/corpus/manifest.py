"""What made an artefact: the file beside its records that says whether work can go on there.

A stage that resumes must not mix records made under two settings. So the settings and the fingerprints of the sources
are compared, key by key; the package versions are kept for the reader and never compared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from afterword.errors import CorruptError, MismatchError, MissingPartError, SettingError
from afterword.machine import package_versions

FILE_NAME = "manifest.json"
FORMAT = 1
_ABSENT = "nothing"


@dataclass(frozen=True)
class Manifest:
    """What made an artefact.

    Attributes:
        kind: What the folder holds: `"queries"`, `"responses"`, `"targets"`.
        settings: Everything that decides the records; JSON values only. Must match to go on.
        sources: Name and fingerprint of each thing the records were made from. Must match to go on.
        made_with: Package versions, and other notes for a reader; never compared.
        format: Version of the layout of the folder.
    """

    kind: str
    settings: dict[str, Any]
    sources: dict[str, str]
    made_with: dict[str, str] = field(default_factory=package_versions)
    format: int = FORMAT

    def __post_init__(self) -> None:
        """Bring the settings into the form they have when read back, so that a tuple equals the list it becomes."""
        try:
            plain = json.loads(json.dumps(self.settings))
        except TypeError as error:
            raise SettingError(f"the settings of a manifest are JSON values: {error}") from error
        object.__setattr__(self, "settings", plain)

    def write(self, folder: str | Path) -> None:
        """Write `manifest.json`, whole or not at all."""
        text = json.dumps(asdict(self), ensure_ascii=False, indent=2)
        write_whole(Path(folder) / FILE_NAME, text + "\n")

    @classmethod
    def read(cls, folder: str | Path, kind: str | None = None) -> Manifest:
        """Read the manifest of a folder.

        Args:
            folder: The artefact.
            kind: What the artefact must be; None takes any.

        Raises:
            MissingPartError: There is no manifest; the path is named.
            CorruptError: It is not a manifest.
            MismatchError: It is of another kind, or of another format than this version reads.
        """
        path = Path(folder) / FILE_NAME
        values = _load(path)
        if values.get("format") != FORMAT:
            found = values.get("format")
            raise MismatchError(f"{path} has format {found!r}, this version of Afterword reads format {FORMAT}")
        if values.keys() != {item.name for item in fields(cls)}:
            raise CorruptError(f"{path} is not a manifest: its keys are {', '.join(sorted(values))}")
        if kind is not None and values["kind"] != kind:
            raise MismatchError(f"{folder} holds {values['kind']}, this step reads {kind}")
        return cls(**values)


def check(found: Manifest, expected: Manifest, folder: str | Path) -> None:
    """Make sure that work asked for as `expected` may go on in a folder made as `found`.

    Raises:
        MismatchError: Names each key that differs, both values, and the way out.
    """
    if found.kind != expected.kind:
        raise MismatchError(f"{folder} holds {found.kind}, not {expected.kind}: choose another --out")
    has, asked = dict(_leaves(found)), dict(_leaves(expected))
    pairs = {key: (has.get(key, _ABSENT), asked.get(key, _ABSENT)) for key in {**has, **asked}}
    differing = [f"  {key}: it has {old}, you asked for {new}" for key, (old, new) in pairs.items() if old != new]
    if differing:
        way_out = "choose another --out, or ask for what the folder has"
        raise MismatchError("\n".join([f"{folder} was made in another way:", *differing, way_out]))


def open_or_create(folder: str | Path, manifest: Manifest) -> bool:
    """Make a folder ready for the work that a manifest describes.

    Returns:
        Whether the folder existed, with a manifest that matches: the work resumes.

    Raises:
        SettingError: The path is a file, or cannot be written to.
        MissingPartError: The folder holds shards and no manifest: nobody knows what they are, so nothing is added.
        MismatchError: The folder was made in another way.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise SettingError(f"{folder} is a file: choose another --out")
    if (folder / FILE_NAME).exists():
        check(Manifest.read(folder), manifest, folder)
        return True
    if shard := next(folder.glob("part-*"), None):
        raise MissingPartError(f"{folder / FILE_NAME} is missing, but {shard.name} is there: choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        manifest.write(folder)
    except OSError as error:
        raise SettingError(f"{folder} cannot be written to ({error}): choose another --out") from error
    return False


def write_whole(path: Path, text: str) -> None:
    """Write a UTF-8 file of JSON so that a reader, or a kill, meets the old content or the new one and never a part.

    A path that is not UTF-8 reaches Python as a text with lone surrogates; they are written as their JSON escapes.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb") as file:
            file.write(text.encode("utf-8", "backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _load(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise MissingPartError(f"{path} is missing") from error
    except ValueError as error:
        raise CorruptError(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise CorruptError(f"{path} is not a manifest: it holds a {type(values).__name__}")
    return values


def _leaves(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield what is compared: each setting and source."""
    yield from _flat(manifest.settings, "settings.")
    yield from _flat(manifest.sources, "sources.")


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield each leaf as its dotted name and its JSON text, which also tells 1 from True and from "1"."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value, ensure_ascii=False)
