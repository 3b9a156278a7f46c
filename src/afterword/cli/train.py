"""`afterword train`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from afterword.backbone.settings import BackboneSettings
from afterword.cli.bars import Bars
from afterword.cli.flags import flag_value, parse_flags, quiet_libraries
from afterword.flow.presets import preset_values
from afterword.flow.progress import Steps
from afterword.model.settings import ModelSettings
from afterword.training.settings import TrainSettings

T = TypeVar("T")


@dataclass(frozen=True)
class Train:
    """Train tokens and heads; the LLM stays as it is. A run that was stopped goes on from its last checkpoint.

    Example: afterword train --responses corpus/responses --targets corpus/targets --out runs/first --epochs 2
    """

    responses: Path
    """Folder that `afterword respond` wrote."""
    targets: Path
    """Folder that `afterword target` wrote."""
    out: Path
    """Run folder; the model is saved in its `model`."""
    preset: str | None = None
    """Start from a named set of settings (paper-v1, paper-v2); other flags win over it."""
    other_writer: bool = False
    """Accept responses that another LLM wrote (an ablation of the paper)."""
    plan: bool = False
    """Say how long it would take on this machine and how much memory, and do nothing."""
    resume: bool = True
    """Go on with the run in this folder, if there is one; --no-resume refuses instead."""
    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainSettings = field(default_factory=TrainSettings)
    backbone: BackboneSettings = field(default_factory=BackboneSettings)
    json: bool = False
    """Print the measures as JSON."""

    def run(self) -> None:
        """Train and report."""
        quiet_libraries()
        from afterword.backbone.load import load_backbone
        from afterword.corpus.responses import open_responses
        from afterword.corpus.targets import open_targets
        from afterword.training.train import train

        bars = Bars()
        targets, backbone = open_targets(self.targets), load_backbone(self.backbone)
        responses = open_responses(self.responses, None if self.other_writer else backbone)
        if self.plan:
            from afterword.bench.plan import plan_training

            estimate = plan_training(backbone, responses, targets, self.model, self.training)
            print(json.dumps(asdict(estimate)) if self.json else estimate)
            return
        bars.stage("training")
        report = partial(Steps(bars), "training")
        result = train(
            backbone, responses, targets, self.out, self.model, self.training, resume=self.resume, report=report
        )
        bars.done(f"{result.steps} steps, {result.skipped} empty responses left out")
        model = str(result.folder / "model")
        print(json.dumps({"model": model, "validation": result.validation}) if self.json else model)


def parse(arguments: Sequence[str]) -> Train:
    """Read the flags, over the values of a preset if one is named."""
    values = preset_values(flag_value(arguments, "--preset"))
    if not values:
        return parse_flags(Train, "train", arguments)
    from tyro import MISSING

    blank: Any = MISSING
    start = Train(blank, blank, blank, model=_over(ModelSettings(), values), training=_over(TrainSettings(), values))
    return parse_flags(Train, "train", arguments, start)


def _over(settings: T, values: Mapping[str, Any]) -> T:
    known = {f.name for f in fields(settings)}  # type: ignore[arg-type]
    return replace(settings, **{key: value for key, value in values.items() if key in known})  # type: ignore[type-var]
