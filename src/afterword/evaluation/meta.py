"""What an encoder is, in the words of mteb and of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mteb.models.model_meta import ModelMeta, ScoringFunction

from afterword.encoder import Encoder, fingerprint_of, hash_text, name_of
from afterword.evaluation.instructions import Prompter

UNKNOWN = (
    "n_parameters",
    "n_embedding_parameters",
    "memory_usage_mb",
    "license",
    "open_weights",
    "public_training_code",
    "public_training_data",
    "reference",
    "training_datasets",
    "release_date",
    "languages",
)
"""Fields of mteb's description that must be given and are left empty."""


def facts_of(encoder: Encoder, batch_size: int, prompter: Prompter) -> dict[str, str | int]:
    """Return what a reader needs to know about an encoder."""
    facts: dict[str, str | int] = {"dimension": encoder.get_embedding_dimension() or 0, "batch size": batch_size}
    facts["dtype"] = dtype_of(encoder)
    device = getattr(encoder, "device", None) or getattr(getattr(encoder, "backbone", None), "device", None)
    if device is not None:
        facts["device"] = str(device)
    facts["instructions"] = prompter.policy
    length = max_length_of(encoder)
    if length is not None:
        facts["length"] = length
    return facts


def dtype_of(encoder: Encoder) -> str:
    """Return the type of an encoder's weights, or `float32` where it does not say."""
    own = getattr(getattr(encoder, "backbone", None), "dtype", None) or getattr(encoder, "dtype", None)
    return str(own or "float32").removeprefix("torch.")


def max_length_of(encoder: Encoder) -> int | None:
    """Return the most tokens that an encoder reads of a text, if it says."""
    length = getattr(getattr(encoder, "config", None), "max_length", None) or getattr(encoder, "max_seq_length", None)
    return length if isinstance(length, int) else None


def count_tokens(encoder: Encoder, texts: Sequence[str]) -> int | None:
    """Return the tokens of texts, each cut to the encoder's length; None where it has no tokenizer."""
    text = getattr(getattr(encoder, "backbone", None), "text", None)
    tokenizer = getattr(text, "tokenizer", None) or getattr(encoder, "tokenizer", None)
    if tokenizer is None or not texts:
        return None if tokenizer is None else 0
    most = max_length_of(encoder)
    rows = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return sum(len(row) if most is None else min(len(row), most) for row in rows)


def model_meta(encoder: Encoder, name: str, prompter: Prompter, facts: dict[str, str | int]) -> ModelMeta:
    """Describe an encoder to mteb, with a revision that no other checkpoint, prompt, type or length has."""
    decides = f"{fingerprint_of(encoder)}{prompter.identity()}{facts['dtype']}{facts.get('length')}"
    unknown: dict[str, Any] = dict.fromkeys(UNKNOWN)
    return ModelMeta(
        loader=None,
        name=folder_name(name, encoder),
        revision=hash_text(decides),
        max_tokens=max_length_of(encoder),
        embed_dim=encoder.get_embedding_dimension(),
        framework=["PyTorch"],
        similarity_fn_name=ScoringFunction("cosine"),
        use_instructions=prompter.policy != "none",
        **unknown,
    )


def folder_name(name: str, encoder: Encoder) -> str:
    """Return `owner/model`, which mteb wants: the last two parts of a name, with letters, digits, `.`, `_` and `-`."""
    parts = [
        "".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in part)
        for part in (name or name_of(encoder)).split("/")
    ]
    kept = [part.strip("-.") for part in parts if part.strip("-.")][-2:] or ["encoder"]
    return "/".join(kept if len(kept) == 2 else ["local", *kept])
