"""What must be known about a `model_type` beyond its config: one table, no names tested anywhere else."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PretrainedConfig


@dataclass(frozen=True)
class Family:
    """Facts about one `model_type`.

    Attributes:
        causal_prefix: Its queries' keys and values can be computed once, without gradient, and be reused (pure causal
            attention with a key/value cache). Others take the plain full pass: slower, the same result.
        logit_scale: Attribute of the config by which logits are multiplied after the head, if there is one.
        logit_divisor: The same for a division.
    """

    causal_prefix: bool = True
    logit_scale: str | None = None
    logit_divisor: str | None = None


FAMILIES: dict[str, Family] = {
    "llama": Family(),
    "mistral": Family(),
    "qwen2": Family(),
    "qwen3": Family(),
    "gemma": Family(),
    "gemma2": Family(),
    "gemma3_text": Family(),
    "phi3": Family(),
    "olmo2": Family(),
    "smollm3": Family(),
    "granite": Family(logit_divisor="logits_scaling"),
    "cohere": Family(logit_scale="logit_scale"),
    "cohere2": Family(logit_scale="logit_scale"),
}
"""Families whose frozen-prefix pass may be used. An unknown one runs by the plain pass."""

UNKNOWN = Family(causal_prefix=False)


def family_of(config: PretrainedConfig) -> Family:
    """Return what is known about the family of this config; one that sees both ways is none that we know."""
    if getattr(config, "use_bidirectional_attention", False):
        return UNKNOWN
    return FAMILIES.get(config.model_type, UNKNOWN)


def sliding_window(config: PretrainedConfig) -> int | None:
    """Return the shortest attention window of any layer, in tokens, or `None` where all layers see everything."""
    kinds = getattr(config, "layer_types", None)
    windowed = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    return getattr(config, "sliding_window", None) if windowed else None
