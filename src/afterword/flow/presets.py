"""Named sets of settings. Values given beside a preset win over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afterword.errors import SettingError

_PAPER: dict[str, Any] = {
    "placement": "query",
    "token_init": "random",
    "max_length": 512,
    "max_query_tokens": 512,
    "max_new_tokens": 512,
    "max_response_tokens": 512,
    "lr": 3e-4,
    "lr_scale": "absolute",
    "warmup_steps": 100,
    "batch_size": 32,
    "epochs": 1.0,
    "warm_start": False,
    "refit": False,
    "recon_share": 1.0,
    "recon_every": 1,
    "position_share": 1.0,
    "document_share": 0.0,
    "w_recon": 1.0,
    "w_align": 1.0,
}

PRESETS: dict[str, dict[str, Any]] = {
    # The paper's text: 10 thought and 10 compression tokens, losses as sums. It trains Qwen2.5 and Llama at lr 5e-4.
    "paper-v1": {**_PAPER, "n_thought": 10, "n_compression": 10, "recon_reduction": "sum", "align_reduction": "sum"},
    # What the authors released in April 2026: no thought tokens, losses as means.
    "paper-v2": {**_PAPER, "n_thought": 0, "n_compression": 10, "recon_reduction": "mean", "align_reduction": "mean"},
}


def preset_values(name: str | None) -> Mapping[str, Any]:
    """Return the values of a preset, or none for no name.

    Raises:
        SettingError: There is no preset of that name.
    """
    if name is None:
        return {}
    if name not in PRESETS:
        raise SettingError(f"no preset is named {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]
