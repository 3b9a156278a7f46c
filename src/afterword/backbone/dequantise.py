"""From one GGUF file to a plain Hugging Face folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from afterword.extras import require_extra


def dequantise(folder: Path, file: str, target: Path) -> None:
    """Write the weights of a GGUF file as bfloat16 safetensors, with config and tokenizer.

    Raises:
        MissingExtraError: The package `gguf` is not installed.
    """
    require_extra("demo", "gguf")
    with reading_once():
        model = AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=file, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
        )
        model.save_pretrained(target)
        AutoTokenizer.from_pretrained(folder, gguf_file=file).save_pretrained(target)


@contextmanager
def reading_once() -> Iterator[None]:
    """Let transformers share one reader of a file, which it otherwise opens for config, weights and tokenizer each.

    Reading is what takes the time: the vocabulary is millions of slices of a memory map. They are taken of a plain
    array over the same memory, which is several times as fast as of numpy's `memmap` class.
    """
    gguf: Any = import_module("gguf")  # a module whose class is replaced for a while has no type
    original = gguf.GGUFReader

    class PlainReader(original):  # type: ignore[valid-type, misc]
        @property
        def data(self) -> np.ndarray:
            return self._plain

        @data.setter
        def data(self, mapped: np.ndarray) -> None:
            self._plain = mapped.view(np.ndarray)

    @lru_cache(maxsize=1)
    def reader(path: Any, *more: Any) -> Any:
        return PlainReader(path, *more)

    gguf.GGUFReader = reader
    try:
        yield
    finally:
        gguf.GGUFReader = original
