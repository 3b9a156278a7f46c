"""The settings of several stages in one flat file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from afterword.corpus.manifest import write_whole
from afterword.errors import MissingPartError, SettingError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KEPT = "recipe.toml"
R = TypeVar("R", bound="FlatRecipe")


@dataclass(frozen=True)
class FlatRecipe:
    """What all recipes have in common: each field holds the settings of a stage, and the file knows no stages.

    A name that two stages have (`seed`, `system`) means the same in both.

    Attributes:
        beside: Keys that a file may have beside the settings.
    """

    beside: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def read(cls: type[R], path: str | Path, **absent: Any) -> R:
        """Read a TOML file.

        Args:
            path: Where it is.
            absent: Values of settings that the file does not give.

        Raises:
            MissingPartError: There is no such file, or it cannot be read.
            SettingError: It is no TOML, has an unknown key (the nearest known one is named) or a value of a wrong type.
        """
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise MissingPartError(f"no recipe {path}") from None
        except OSError as error:
            raise MissingPartError(f"cannot read the recipe {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingError(f"{path} is not TOML: {error}") from None
        return cls.from_values(values, str(path), **absent)

    @classmethod
    def from_values(cls: type[R], values: Mapping[str, Any], source: str = "recipe", **absent: Any) -> R:
        """Build a recipe from flat values; `absent` has those of settings that they do not give."""
        stages = _typed(cls)
        known = {field.name: hint for _, kind in stages for field, hint in _typed(kind)}
        checked = {key: _checked(key, value, known, cls.beside, source) for key, value in values.items()}
        merged = {**absent, **checked}
        if "queries" not in merged:
            raise SettingError(f'{source} does not say which queries to use: add queries = "FILE"')
        return cls(**{stage.name: _settings(stage, kind, merged) for stage, kind in stages})

    def values(self) -> dict[str, Any]:
        """Return all settings, flat."""
        return {key: value for stage in vars(self).values() for key, value in asdict(stage).items()}

    def to_toml(self) -> str:
        """Return the recipe as a file with every setting in it; one that is None is left out."""
        lines = []
        for name, stage in vars(self).items():
            lines.append(f"# {name}")
            lines += [f"{key} = {_literal(value)}" for key, value in asdict(stage).items() if value is not None]
            lines.append("")
        return _without_repeats(lines)

    def keep(self, folder: Path) -> None:
        """Write the recipe into the folder of what it made."""
        write_whole(folder / KEPT, self.to_toml())


def _without_repeats(lines: list[str]) -> str:
    """Join lines, leaving out a key that an earlier stage has written (TOML allows each once)."""
    seen: set[str] = set()
    kept = []
    for line in lines:
        key = line.partition(" = ")[0]
        if " = " not in line or key not in seen:
            kept.append(line)
        seen.add(key)
    return "\n".join(kept)


def _literal(value: bool | int | float | str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML wants it escaped, JSON does not


def _typed(kind: type) -> list[tuple[Field[Any], Any]]:
    hints = get_type_hints(kind)
    return [(field, hints[field.name]) for field in fields(kind)]


def _settings(stage: Field[Any], kind: type, values: Mapping[str, Any]) -> Any:
    """Return the settings of a stage, over those that the recipe has where nothing is said."""
    given = {field.name: values[field.name] for field in fields(kind) if field.name in values}
    return kind(**given) if stage.default_factory is MISSING else replace(stage.default_factory(), **given)


def _checked(key: str, value: Any, known: Mapping[str, Any], beside: tuple[str, ...], source: str) -> Any:
    """Return a value in the type of its setting; a whole number is fine where any number is."""
    if isinstance(value, dict):
        raise SettingError(f"{source}: {key} is a table, but a recipe is flat: write its settings without [{key}]")
    if key not in known:
        near = get_close_matches(key, [*known, *beside], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SettingError(f"{source}: unknown setting {key}{hint}")
    if not _fits(value, known[key]):
        raise SettingError(f"{source}: {key} is {value!r}, expected {_spoken(known[key])}")
    return float(value) if known[key] is float else value


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    options = get_args(hint) or (hint,)
    if isinstance(value, bool):
        return bool in options
    return isinstance(value, tuple(options)) or (float in options and isinstance(value, int))


def _spoken(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    options = get_args(hint) or (hint,)
    return " or ".join("nothing" if option is NoneType else option.__name__ for option in options)
