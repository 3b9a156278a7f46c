"""`afterword bench`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from afterword.backbone.settings import BackboneSettings
from afterword.bench.grid import Grid
from afterword.cli.bars import Bars
from afterword.cli.flags import parse_flags, quiet_libraries
from afterword.errors import SettingError
from afterword.model.settings import ModelSettings
from afterword.training.settings import TrainSettings

KINDS = ("train", "encode", "respond", "floor", "mntp", "simcse")


@dataclass(frozen=True)
class Bench:
    """Measure how fast and how small this machine does it: train | encode | respond | floor | mntp | simcse.

    With --config NAME, weights are random in the shape of that model, so that a machine can be sized before anything is
    downloaded. `of ceiling` is the share of this machine's best matrix product that useful operations, attention
    included, reach.

    Example: afterword bench train --config Qwen/Qwen3-0.6B --batch-sizes 8 16 --out bench
    """

    config: str | None = None
    """Random weights in the shape of this model: a known name, a config.json, a folder, or a hub name."""
    grid: Grid = field(default_factory=Grid)
    instruction_tokens: int = 0
    """With encode: length of an instruction that all texts share."""
    shared_instruction: bool = False
    """With encode: an instruction that is a third of each text, run once for all and once for each, side by side."""
    compile: bool = False
    """With encode: layers compiled by torch.compile and as they are, side by side."""
    stream: int = 0
    """With encode: so many texts streamed into a file instead, to see whether time and memory stay flat."""
    texts: str | None = None
    """With --stream: file of texts to draw from; the demo's queries otherwise."""
    out: Path | None = None
    """Folder for NAME.json and NAME.md."""
    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainSettings = field(default_factory=TrainSettings)
    backbone: BackboneSettings = field(default_factory=BackboneSettings)
    json: bool = False
    """Print JSON instead of a table."""
    kind: str = "train"
    """Also the first word behind `bench`."""

    def run(self) -> None:
        """Measure and print."""
        quiet_libraries()
        from afterword.bench.report import BenchReport
        from afterword.machine import describe_machine

        name, bars = self._name(), Bars()
        backbone = self._backbone()
        bars.stage(name, self.stream or len(self.grid.query_tokens) * len(self.grid.batch_sizes))
        rows = self._rows(backbone, bars)
        bars.done(f"{len(rows)} rows")
        settings: dict[str, Any] = {
            **{"grid": asdict(self.grid), "model": asdict(self.model), "training": asdict(self.training)},
            **{"instruction_tokens": self.instruction_tokens, "stream": self.stream, "texts": self.texts},
        }
        machine = describe_machine(backbone.device, backbone.dtype)
        report = BenchReport(name, backbone.name, settings, rows, machine)
        if self.out:
            report.write(self.out)
        print(report.to_json() if self.json else report.to_markdown(), end="")

    def _name(self) -> str:
        """Return the name of what is measured."""
        if self.kind not in KINDS:
            raise SettingError(f"there is no benchmark {self.kind!r}; there are {', '.join(KINDS)}")
        asked = {"stream": self.stream, "instruction": self.shared_instruction, "compile": self.compile}
        cases = [f"encode-{name}" for name, wanted in asked.items() if wanted]
        if len(cases) > 1 or (cases and self.kind != "encode"):
            raise SettingError("--stream, --shared-instruction and --compile are for encode, one at a time")
        return cases[0] if cases else self.kind

    def _rows(self, backbone: Any, bars: Bars) -> list[dict[str, Any]]:
        from afterword.bench.pairs import bench_compiled, bench_instruction
        from afterword.bench.run import bench_encode, bench_respond, bench_train, floor
        from afterword.bench.stream import bench_stream

        if self.kind == "train":
            return bench_train(backbone, self.grid, self.model, self.training, bars)
        if self.kind == "respond":
            return bench_respond(backbone, self.grid, bars)
        if self.kind in ("mntp", "simcse"):
            from afterword.bench.teachers import bench_teacher

            return bench_teacher(backbone, self.kind, self.grid, bars)
        if self.kind == "floor":
            return floor(backbone, self.grid, self.model)
        if self.stream:
            return bench_stream(backbone, self.stream, self.grid.batch_sizes[0], self.model, bars, self.texts)
        if self.shared_instruction:
            return bench_instruction(backbone, self.grid, self.model, bars)
        if self.compile:
            return bench_compiled(backbone, self.grid, self.model, bars)
        return bench_encode(backbone, self.grid, self.model, self.instruction_tokens, bars)

    def _backbone(self) -> Any:
        from afterword.backbone.load import load_backbone
        from afterword.bench.sizes import random_backbone

        if self.config is None:
            return load_backbone(self.backbone)
        return random_backbone(self.config, self.backbone.device, self.backbone.dtype)


def parse(arguments: Sequence[str]) -> Bench:
    """Read the flags; the first word says what is measured."""
    kind, rest = (arguments[0], arguments[1:]) if arguments and not arguments[0].startswith("-") else (None, arguments)
    return parse_flags(Bench, "bench", [*rest, *(["--kind", kind] if kind else [])])
