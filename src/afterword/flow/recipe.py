"""A recipe: one flat file with every setting of every stage."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from afterword.backbone.settings import BackboneSettings
from afterword.corpus.queries import QuerySettings
from afterword.corpus.responses import ResponseSettings
from afterword.corpus.targets import TargetSettings
from afterword.errors import MissingPartError, SettingError
from afterword.flow.presets import preset_values
from afterword.model.settings import ModelSettings
from afterword.training.settings import TrainSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Recipe:
    """The settings of all stages. A name that two stages have (`seed`, `system`) means the same in both."""

    backbone: BackboneSettings
    queries: QuerySettings
    responses: ResponseSettings
    targets: TargetSettings
    model: ModelSettings
    training: TrainSettings

    @classmethod
    def read(cls, path: str | Path) -> Recipe:
        """Read a TOML file.

        Raises:
            MissingPartError: There is no such file.
            SettingError: It is no TOML, has an unknown key (the nearest known one is named) or a value of a wrong type.
        """
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise MissingPartError(f"no recipe {path}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingError(f"{path} is not TOML: {error}") from None
        return cls.from_values(values, str(path))

    @classmethod
    def from_values(cls, values: Mapping[str, Any], source: str = "recipe") -> Recipe:
        """Build a recipe from flat values; `preset` names a set of values that the others win over."""
        given = dict(values)
        merged = {**preset_values(given.pop("preset", None)), **given}
        stages = get_type_hints(cls)
        known = {field.name: hint for kind in stages.values() for field, hint in _typed(kind)}
        merged = {key: _checked(key, value, known, source) for key, value in merged.items()}
        if "queries" not in merged:
            raise SettingError(f'{source} does not say which queries to use: add queries = "FILE"')
        return cls(**{stage: kind(**_of(kind, merged)) for stage, kind in stages.items()})

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
    return json.dumps(value, ensure_ascii=False)


def _typed(kind: type) -> list[tuple[Any, Any]]:
    hints = get_type_hints(kind)
    return [(field, hints[field.name]) for field in fields(kind)]


def _of(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: values[field.name] for field in fields(kind) if field.name in values}


def _checked(key: str, value: Any, known: Mapping[str, Any], source: str) -> Any:
    """Return a value in the type of its setting; a whole number is fine where any number is."""
    if key not in known:
        near = get_close_matches(key, [*known, "preset"], n=1)
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
