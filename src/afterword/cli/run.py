"""`afterword run`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from afterword.cli.bars import Bars
from afterword.cli.flags import parse_flags, quiet_libraries


@dataclass(frozen=True)
class Run:
    """Carry out all stages of a recipe. What is there already and matches is skipped; what was cut goes on.

    Example: afterword run recipes/open-queries.toml --out runs/open-queries
    """

    recipe: Annotated[Path, tyro.conf.Positional]
    """TOML file with flat settings."""
    out: Path
    """Folder for queries, responses, targets and training."""
    json: bool = False
    """Print the measures as JSON."""

    def run(self) -> None:
        """Run and report."""
        quiet_libraries()
        from afterword.flow.recipe import Recipe
        from afterword.flow.stages import Stages

        result = Stages(Recipe.read(self.recipe), self.out, Bars()).run()
        model = str(result.folder / "model")
        print(json.dumps({"model": model, "validation": result.validation}) if self.json else model)


def parse(arguments: Sequence[str]) -> Run:
    """Read the flags."""
    return parse_flags(Run, "run", arguments)
