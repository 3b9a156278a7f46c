"""`afterword convert`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from afterword.backbone.settings import DType
from afterword.cli.flags import parse_flags, quiet_libraries


@dataclass(frozen=True)
class Convert:
    """Write a checkpoint of the paper's authors as a saved Afterword model. Only weights are read, no code is run.

    Example: afterword convert McGill-NLP/LLM2Vec-Gen-Qwen3-8B --out qwen3-8b
    """

    model: Annotated[str, tyro.conf.Positional]
    """The authors' checkpoint: a folder or a hub name."""
    out: Path
    """Folder for the model."""
    backbone: str | None = None
    """The LLM, a folder or a hub name, where it is not to be had under the name in the checkpoint."""
    revision: str | None = None
    """Branch, tag or commit of the checkpoint on the hub."""
    dtype: DType = "auto"
    """Type in which the LLM is loaded; it is needed for its fingerprint."""
    json: bool = False
    """Print what was written as JSON."""

    def run(self) -> None:
        """Convert and report."""
        quiet_libraries()
        from afterword.backbone.load import load_backbone
        from afterword.backbone.settings import BackboneSettings
        from afterword.model.model import Afterword

        backbone = load_backbone(BackboneSettings(self.backbone, dtype=self.dtype)) if self.backbone else None
        model = Afterword.from_pretrained(self.model, backbone=backbone, dtype=self.dtype, revision=self.revision)
        model.save_pretrained(self.out)
        config = model.config
        summary = {
            "out": str(self.out),
            "backbone": config.backbone,
            "n_thought": config.n_thought,
            "n_compression": config.n_compression,
            "dimension": config.embedding_dimension,
        }
        print(json.dumps(summary) if self.json else self.out)


def parse(arguments: Sequence[str]) -> Convert:
    """Read the flags."""
    return parse_flags(Convert, "convert", arguments)
