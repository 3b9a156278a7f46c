"""The table of a benchmark, with everything that a reader needs to judge it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from afterword.corpus.manifest import write_whole


@dataclass(frozen=True)
class BenchReport:
    """One benchmark.

    Attributes:
        name: train, encode, respond or floor.
        backbone: Name of the LLM.
        settings: How it was done.
        rows: What was measured, a row for each length and batch.
        machine: Processor, threads, device, type, versions.
        day: When.
    """

    name: str
    backbone: str
    settings: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    machine: Mapping[str, str]
    day: str = field(default_factory=lambda: date.today().isoformat())

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    def to_markdown(self) -> str:
        """Return a table with a line on the machine below."""
        machine = ", ".join(f"{key} {value}" for key, value in self.machine.items())
        return f"{markdown_table(self.rows)}\n{self.name}, {self.backbone}; {machine}; {self.day}\n"

    def write(self, folder: Path) -> None:
        """Write `NAME.json` and `NAME.md`."""
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{self.name}.json", self.to_json())
        write_whole(folder / f"{self.name}.md", self.to_markdown())


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a Markdown table, numbers to the right."""
    if not rows:
        return ""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *[[str(row.get(name, "")) for name in names] for row in rows]]
    width = [max(len(row[i]) for row in cells) for i in range(len(names))]
    right = [all(isinstance(row.get(name), int | float) for row in rows) for name in names]
    lines = [
        "| " + " | ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, width, right, strict=True)) + " |"
        for row in cells
    ]
    rule = "|" + "|".join("-" * (w + 1) + (":" if r else "-") for w, r in zip(width, right, strict=True)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"
