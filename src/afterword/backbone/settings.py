"""How a backbone is chosen and loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Device = Literal["auto", "cpu", "cuda", "mps"]
DType = Literal["auto", "float32", "bfloat16"]
Style = Literal["auto", "chat", "examples", "raw"]


@dataclass(frozen=True)
class BackboneSettings:
    """Which language model, and how it runs."""

    backbone: str = "demo"
    """Frozen LLM: a hub name, a folder, or a packaged one (demo, demo-qwen)."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""
    device: Device = "auto"
    """Where it runs; auto takes cuda, then mps, then cpu."""
    dtype: DType = "auto"
    """Type of its weights; auto takes bfloat16 where the hardware computes in it, else float32."""
    trust_remote_code: bool = False
    """Run code that comes with the model. Only for models whose code you have read."""
