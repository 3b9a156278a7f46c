"""Dropout in a frozen LLM, for a while: what makes two passes over one text differ."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from afterword.errors import SettingError


@contextmanager
def attention_dropout(model: nn.Module, share: float) -> Iterator[None]:
    """Drop a share of the attention weights meanwhile, whatever the config of the family says.

    Most decoders are published with a share of 0, and no dropout acts in eval mode. Only the attention modules
    themselves are switched, so that nothing else in the model changes its behaviour.

    Raises:
        SettingError: No module of the model has attention dropout.
    """
    if share == 0:
        yield
        return
    found = [
        module for module in model.modules() if isinstance(getattr(module, "attention_dropout", None), int | float)
    ]
    if not found:
        raise SettingError("no attention module of this LLM has dropout: set attention_dropout to 0, drop elsewhere")
    before = [(module.training, module.attention_dropout) for module in found]
    try:
        for module in found:
            module.training, module.attention_dropout = True, share  # type: ignore[assignment]
        yield
    finally:
        for module, (training, own) in zip(found, before, strict=True):
            module.training, module.attention_dropout = training, own
