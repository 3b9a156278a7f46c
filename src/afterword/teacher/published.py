"""LLM2Vec as its authors publish it: a base LLM, an adapter from MNTP, and one from SimCSE or supervised training.

`McGill-NLP/LLM2Vec-…-mntp` holds an adapter whose config names the base LLM; `…-mntp-unsup-simcse` and
`…-mntp-supervised` hold a second one that stands on the first, merged. Their own modelling code only makes attention
bidirectional, which transformers does by itself, so none of it is run.
"""

from __future__ import annotations

import re
from pathlib import Path

from afterword.backbone.hub import fetch_folder, has_any
from afterword.backbone.load import load_backbone
from afterword.backbone.settings import BackboneSettings, Device, DType
from afterword.errors import SettingError
from afterword.teacher.adapters import CONFIG, WEIGHTS, check_adapter
from afterword.teacher.checkpoint import adapted_teacher
from afterword.teacher.llm import LLMTeacher
from afterword.teacher.settings import PoolingSettings

SECOND_STAGE = re.compile(r"(?P<first>.+-mntp)-[^/]+")
PREFIX = "llm2vec:"
LONGEST = 512


def open_published(name: str, device: Device = "auto", dtype: DType = "auto") -> LLMTeacher:
    """Open an LLM2Vec by the name of its last adapter, or by all of its parts.

    Args:
        name: An adapter on the hub or in a folder, whose config names what it stands on; or `llm2vec:BASE+ADAPTER+…`.
        device: Where it runs.
        dtype: Type of the LLM's weights.

    Raises:
        MissingPartError: A part is not there.
        MismatchError: An adapter does not fit the LLM.
    """
    base, *adapters = name.removeprefix(PREFIX).split("+") if name.startswith(PREFIX) else adapter_chain(name)
    if not base:
        raise SettingError(f"{name!r} names no model: write {PREFIX}BASE or {PREFIX}BASE+ADAPTER")
    folders = [adapter_folder(adapter) for adapter in adapters]
    backbone = load_backbone(BackboneSettings(base, device=device, dtype=dtype))
    return adapted_teacher(backbone, folders, published_pooling(bool(backbone.text.tokenizer.chat_template)), name)


def published_pooling(chat: bool) -> PoolingSettings:
    """Return how LLM2Vec embeds: the mean over the text, in the user's turn where the base LLM is a chat model."""
    return PoolingSettings(
        attention="bidirectional", prompt="", around="user" if chat else "raw", max_seq_length=LONGEST
    )


def adapter_chain(name: str) -> list[str]:
    """Return the base LLM and the adapters that must be merged into it, the last being `name`.

    Raises:
        MissingPartError: An adapter is not there.
        SettingError: An adapter does not say what it stands on.
    """
    below = SECOND_STAGE.fullmatch(name.rstrip("/"))
    if below:
        return [*adapter_chain(below["first"]), name]
    base = check_adapter(adapter_folder(name)).get("base_model_name_or_path")
    if not base:
        raise SettingError(f"the adapter {name} does not name its LLM: write {PREFIX}BASE+{name}")
    return [*adapter_chain(base), name] if is_adapter(base) else [base, name]


def is_adapter(name: str) -> bool:
    """Return whether a folder, or a model on the hub where there is no such folder, is an adapter of peft."""
    return has_any(name, (CONFIG,))


def adapter_folder(name: str) -> Path:
    """Return the folder of an adapter, fetched from the hub where it is not here.

    Raises:
        MissingPartError: It is neither here nor there.
    """
    return fetch_folder(name, (CONFIG, WEIGHTS), "an adapter")
