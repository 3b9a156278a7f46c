"""`afterword export`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from afterword.backbone.settings import DType
from afterword.cli.flags import parse_flags, quiet_libraries
from afterword.errors import SettingError


@dataclass(frozen=True)
class Export:
    """Write a model for plain sentence-transformers: no Afterword, no remote code. The LLM goes into the folder.

    With Afterword installed no export is needed: every saved model is a SentenceTransformer folder.

    Example: afterword export runs/first/model --stock --out stock-model
    """

    model: Annotated[str, tyro.conf.Positional]
    """A saved model: a folder or a hub name."""
    out: Path
    """A new folder."""
    stock: bool = False
    """Modules of sentence-transformers only. There is no other form so far."""
    without: tuple[str, ...] = ()
    """Names of prompts to leave out."""
    dtype: DType = "float32"
    """Type of the weights: float32 is exact, bfloat16 half as large, with the heads rounded too."""
    json: bool = False
    """Print what was written as JSON."""

    def run(self) -> None:
        """Export and report."""
        if not self.stock:
            raise SettingError("give --stock: a folder for plain sentence-transformers is the one form of an export")
        quiet_libraries()
        from afterword.integrations.stock import export_stock
        from afterword.model.model import Afterword

        model = Afterword.from_pretrained(self.model, device="cpu", dtype=self.dtype)
        done = export_stock(model, self.out, self.without)
        summary = {"out": str(done.folder), "bytes": done.size, "prompts": list(done.prompts)}
        print(json.dumps(summary) if self.json else self.out)


def parse(arguments: Sequence[str]) -> Export:
    """Read the flags."""
    return parse_flags(Export, "export", arguments)
