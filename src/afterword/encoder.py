"""The one door: what every encoder here can do.

Teachers, baselines and our own model implement it; targets, evaluation, serving and search accept it and know no
concrete model. A `SentenceTransformer` satisfies it as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from afterword.errors import SettingError


@runtime_checkable
class Encoder(Protocol):
    """Anything that turns texts into vectors."""

    def encode(self, inputs: Sequence[str], *, batch_size: int = 32, show_progress_bar: bool | None = None) -> Any:
        """Turn `N` texts into a float32 array of shape `(N, d)`, in the order given."""
        ...

    def get_embedding_dimension(self) -> int | None:
        """Return `d`."""
        ...


def encode_array(encoder: Encoder, texts: Sequence[str], batch_size: int = 32) -> np.ndarray:
    """Encode through the door and hand back what it promises.

    Returns:
        A float32 array of shape `(N, d)`.

    Raises:
        SettingError: The encoder returned another shape, or a value that is not finite; the item is named.
    """
    vectors = np.asarray(encoder.encode(list(texts), batch_size=batch_size, show_progress_bar=False), dtype=np.float32)
    expected = (len(texts), encoder.get_embedding_dimension())
    if vectors.shape != expected:
        raise SettingError(f"{name_of(encoder)} returned vectors of shape {vectors.shape}, expected {expected}")
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        text = texts[bad[0]][:60]
        raise SettingError(f"{name_of(encoder)} returned a vector with NaN or infinity for item {bad[0]}: {text!r}")
    return vectors


def name_of(encoder: Encoder) -> str:
    """Return a name a reader recognises: the encoder's own, or that of its class."""
    own = getattr(encoder, "name", None) or getattr(getattr(encoder, "model_card_data", None), "base_model", None)
    return str(own or type(encoder).__name__)


def fingerprint_of(encoder: Encoder) -> str:
    """Return a short hash that changes when the encoder's vectors could.

    Our own encoders say it themselves; any `torch.nn.Module` is hashed tensor by tensor.

    Raises:
        SettingError: The encoder has no `fingerprint` and no `state_dict`.
    """
    own = getattr(encoder, "fingerprint", None)
    if isinstance(own, str):
        return own
    if not hasattr(encoder, "state_dict"):
        raise SettingError(f"{name_of(encoder)} has neither a `fingerprint` nor a `state_dict`: give it a fingerprint")
    return hash_tensors(encoder.state_dict().items())


def hash_tensors(tensors: Iterable[tuple[str, Tensor]], sample: int = 4096) -> str:
    """Hash names, shapes and an even sample of the values of tensors.

    Values are taken as bfloat16, so that one checkpoint has one hash in whatever type it is loaded. Sampling keeps
    this under a second for models of any size; a fine-tuned or merged model changes every matrix, and so its hash.

    Args:
        tensors: Pairs of a name and a tensor, in a stable order.
        sample: How many values of each tensor to look at.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        flat = tensor.detach().reshape(-1)
        step = max(1, flat.numel() // sample)
        values = flat[::step].to(device="cpu", dtype=torch.bfloat16).contiguous()
        digest.update(values.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def hash_text(text: str) -> str:
    """Hash a text: 16 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
