"""`afterword evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated
from warnings import filterwarnings

import tyro

from afterword.backbone.settings import Device, DType
from afterword.cli.bars import Bars
from afterword.cli.flags import parse_flags, quiet_libraries
from afterword.evaluation.settings import EvaluateSettings


@dataclass(frozen=True)
class Evaluate:
    """Measure encoders on mteb's tasks and on your own labelled files, side by side.

    An ENCODER is a saved Afterword model (a folder or a hub name), hf:NAME (mean of a causal LM's last states),
    teacher:NAME (teacher:demo is the packaged one), or any SentenceTransformer; @bfloat16 behind it loads the LLM in
    that type. Differences are to the first one.

    Example: afterword evaluate runs/first/model hf:demo teacher:demo --data my-data --out scores
    """

    encoders: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Encoders to measure."""
    suites: Annotated[tuple[str, ...], tyro.conf.arg(aliases=("-s",))] = ()
    """mteb-eng-v2, mteb-lite, bright, advbench-ir, or the name of any benchmark or task of mteb."""
    data: Path | None = None
    """Folder of labelled files: sentence pairs with scores or labels, texts with labels, reranking and retrieval sets
    (JSONL, CSV, TSV, Parquet; BEIR's layout)."""
    out: Path = Path("evaluation")
    """Folder of the results and the report; what is there already is not done again."""
    settings: EvaluateSettings = field(default_factory=EvaluateSettings)
    device: Device = "auto"
    """Where the encoders run."""
    dtype: DType = "auto"
    """Type of an LLM's weights."""
    json: bool = False
    """Print all scores as JSON instead of a table."""

    def run(self) -> None:
        """Measure, report, and print the table of means."""
        quiet_libraries()
        from datasets import disable_progress_bars

        from afterword.errors import MissingPartError, SettingError
        from afterword.evaluation.report import means_table, write_report
        from afterword.evaluation.report_json import to_json
        from afterword.evaluation.run import evaluate
        from afterword.evaluation.summary import summarise
        from afterword.extras import require_extra
        from afterword.flow.open_encoder import open_encoder

        require_extra("evaluate", "mteb")
        disable_progress_bars()
        # Small samples leave classes without a guess; the main scores do not stand on those measures.
        filterwarnings("ignore", message=".*ill-defined")
        if len(set(self.encoders)) < len(self.encoders):
            raise SettingError(f"an encoder is named twice: {', '.join(self.encoders)}")
        bars = Bars()
        bars.stage("evaluate")

        now = ""

        def report(encoder: str, task: str, number: int, tasks: int) -> None:
            nonlocal now
            if number == 0:
                bars.stage(encoder, tasks)
            now = task
            bars.advance(1 if number else 0, task)

        def progress(done: int, texts: int) -> None:
            bars.advance(0, f"{now}, {done} of {texts} texts")

        sources = {name: partial(open_encoder, name, self.device, self.dtype) for name in self.encoders}
        found = evaluate(sources, self.suites, self.data, self.out, self.settings, report=report, progress=progress)
        bars.done(f"{sum(len(encoder.tasks) for encoder in found.encoders)} scores, {len(found.skipped)} tasks skipped")
        summary = summarise(found)
        files = write_report(summary, self.out)
        if self.json:
            print(to_json(summary))
        else:
            print(means_table(summary))
            for task, reason in found.skipped.items():
                bars.say(f"skipped {task}: {reason}")
            print(f"\n{files[1]}")
        if not any(encoder.tasks for encoder in found.encoders):
            raise MissingPartError(f"none of the {len(found.skipped)} tasks could run; the reasons stand above")


def parse(arguments: Sequence[str]) -> Evaluate:
    """Read the flags."""
    return parse_flags(Evaluate, "evaluate", arguments)
