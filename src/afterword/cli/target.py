"""`afterword target`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from afterword.backbone.settings import BackboneSettings
from afterword.cli.bars import Bars
from afterword.cli.flags import parse_flags, quiet_libraries
from afterword.corpus.targets import TargetSettings


@dataclass(frozen=True)
class Target:
    """Embed every response with the teacher, once. Stopped and started again, it goes on where it was.

    Example: afterword target --responses corpus/responses --teacher demo --out corpus/targets
    """

    responses: Path
    """Folder that `afterword respond` wrote."""
    out: Path
    """Folder for the targets."""
    targets: TargetSettings = field(default_factory=TargetSettings)
    backbone: BackboneSettings = field(default_factory=BackboneSettings)
    json: bool = False
    """Print what was done as JSON."""

    def run(self) -> None:
        """Embed and report."""
        quiet_libraries()
        from afterword.backbone.load import load_backbone
        from afterword.corpus.responses import open_responses
        from afterword.corpus.targets import embed_targets
        from afterword.flow.open_encoder import chosen_teacher

        bars = Bars()
        responses = open_responses(self.responses)
        name = self.targets.teacher
        backbone = load_backbone(self.backbone) if name == "llm" else None
        teacher = chosen_teacher(self.targets, backbone, self.backbone.device)
        bars.stage("targets", len({response.text for response in responses if response.text}))
        added = embed_targets(teacher, responses, self.out, self.targets, bars.advance)
        bars.done(f"{added} embedded by {name}")
        print(json.dumps({"added": added, "out": str(self.out)}) if self.json else self.out)


def parse(arguments: Sequence[str]) -> Target:
    """Read the flags."""
    return parse_flags(Target, "target", arguments)
