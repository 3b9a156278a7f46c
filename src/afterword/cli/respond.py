"""`afterword respond`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from afterword.backbone.settings import BackboneSettings
from afterword.cli.bars import Bars
from afterword.cli.flags import parse_flags, quiet_libraries
from afterword.corpus.queries import QuerySettings
from afterword.corpus.responses import ResponseSettings


@dataclass(frozen=True)
class Respond:
    """Let the frozen LLM answer every query. Stopped at any moment and started again, it goes on where it was.

    Example: afterword respond --queries queries.jsonl --backbone Qwen/Qwen3-0.6B --out corpus/responses
    """

    out: Path
    """Folder for the responses."""
    queries: QuerySettings
    backbone: BackboneSettings = field(default_factory=BackboneSettings)
    responses: ResponseSettings = field(default_factory=ResponseSettings)
    json: bool = False
    """Print what was done as JSON."""

    def run(self) -> None:
        """Answer and report."""
        quiet_libraries()
        from afterword.backbone.load import load_backbone
        from afterword.corpus.queries import load_queries
        from afterword.corpus.responses import generate_responses
        from afterword.flow.inputs import query_source

        bars = Bars()
        queries, cleaning = load_queries(query_source(self.queries))
        bars.stage("responses", len(queries))
        counts = generate_responses(load_backbone(self.backbone), queries, self.out, self.responses, bars.advance)
        bars.done(f"{counts.written} written, {counts.kept} kept, {counts.cut} cut, {counts.empty} empty ({cleaning})")
        print(json.dumps({**asdict(counts), "out": str(self.out)}) if self.json else self.out)


def parse(arguments: Sequence[str]) -> Respond:
    """Read the flags."""
    return parse_flags(Respond, "respond", arguments)
