"""torch.compile for the layers of an LLM: where it is asked for, and never by surprise.

One layer is compiled for all, for any number of tokens, so that it takes the time of one. Attention stays as it is:
packed rows are laid side by side there by plain Python, and torch's kernels are called either way. What is gained are
the many small operations around the matrix products, written as one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface

from afterword.backbone.packed import NAME, packed_attention
from afterword.errors import SettingError

COMPILERS = ("g++", "clang++", "c++", "cl")


def compile_layers(body: nn.Module, device: torch.device, backend: str | Callable[..., Any] = "inductor") -> None:
    """Let the layers be compiled when they are next called.

    Args:
        body: The LLM without its vocabulary head.
        device: Where it runs.
        backend: A backend of torch.compile.

    Raises:
        SettingError: What compiling needs is missing.
    """
    if backend == "inductor":
        _check_compiler(device)
    AttentionInterface.register(NAME, torch.compiler.disable(packed_attention))  # type: ignore[no-untyped-call]
    for layer in body.layers:  # type: ignore[union-attr]
        layer.compile(backend=backend, dynamic=True)


def eagerly(eager: bool = True) -> AbstractContextManager[object]:
    """Run layers as if they had not been compiled, meanwhile."""
    return torch.compiler.set_stance("force_eager") if eager else nullcontext()


def _check_compiler(device: torch.device) -> None:
    if device.type == "cpu" and not os.environ.get("CXX") and not any(map(shutil.which, COMPILERS)):
        raise SettingError("compiling for a processor needs a C++ compiler: install g++ or clang++, or name one in CXX")
    if device.type == "cuda" and find_spec("triton") is None:
        raise SettingError("compiling for CUDA needs triton: pip install triton")
