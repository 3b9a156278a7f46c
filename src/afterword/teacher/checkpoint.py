"""A teacher on disk: which LLM, which adapters in which order, and how its states become an embedding."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from afterword.backbone.backbone import Backbone
from afterword.backbone.load import load_backbone
from afterword.backbone.settings import BackboneSettings, Device, DType
from afterword.encoder import hash_text
from afterword.errors import CorruptError, MismatchError, MissingPartError, SettingError
from afterword.machine import package_versions
from afterword.teacher.adapters import adapter_hash, check_adapter, merge_adapter
from afterword.teacher.llm import LLMTeacher
from afterword.teacher.settings import PoolingSettings

FILE_NAME = "teacher.json"
ADAPTERS = "adapters"
FORMAT = 1


@dataclass(frozen=True)
class TeacherConfig:
    """What a teacher's folder says about it.

    Attributes:
        backbone: Name by which the LLM can be loaded.
        backbone_revision: Its revision on the hub.
        backbone_fingerprint: Hash of its weights without any adapter.
        adapters: Folders below `adapters/`, in the order in which they are merged.
        pooling: How states become an embedding.
        made_with: Package versions.
        format: Version of this file.
    """

    backbone: str
    backbone_revision: str | None
    backbone_fingerprint: str
    adapters: list[str]
    pooling: dict[str, Any]
    made_with: dict[str, str] = field(default_factory=package_versions)
    format: int = FORMAT


def is_teacher(folder: Path) -> bool:
    """Return whether a folder holds one of our teachers."""
    return (folder / FILE_NAME).is_file()


def save_teacher(
    folder: Path, backbone: Backbone, base: str, pooling: PoolingSettings, adapters: Sequence[Path]
) -> None:
    """Write a teacher's folder: its config, a card, and copies of its adapters.

    Args:
        folder: Where to.
        backbone: The LLM; only its name and revision are kept.
        base: Fingerprint of the LLM without any adapter.
        pooling: How states become an embedding.
        adapters: Folders of the adapters, in order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for adapter in adapters:
        target = folder / ADAPTERS / adapter.name
        if adapter.resolve() != target.resolve():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(adapter, target)
    names = [adapter.name for adapter in adapters]
    config = TeacherConfig(backbone.name, backbone.revision, base, names, pooling.to_dict())
    (folder / "README.md").write_text(_card(config), encoding="utf-8")
    scratch = folder / f".{FILE_NAME}.part"
    scratch.write_text(json.dumps(vars(config), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    scratch.replace(folder / FILE_NAME)


def load_teacher(folder: Path, device: Device = "auto", dtype: DType = "auto") -> LLMTeacher:
    """Load a teacher that was saved here.

    Raises:
        MissingPartError: A file is not there.
        CorruptError: A file is damaged.
        MismatchError: The LLM of that name is another one now; both are named.
    """
    config = read_config(folder)
    adapters = [folder / ADAPTERS / name for name in config.adapters]
    try:
        pooling = PoolingSettings(**config.pooling)
    except (TypeError, SettingError) as error:
        raise CorruptError(f"{folder / FILE_NAME}: {error}") from None
    settings = BackboneSettings(config.backbone, config.backbone_revision, device=device, dtype=dtype)
    backbone = load_backbone(settings)
    if backbone.fingerprint != config.backbone_fingerprint:
        raise MismatchError(
            f"{folder} was trained on {config.backbone} ({config.backbone_fingerprint}), but what is found under that "
            f"name is {backbone.fingerprint}: its adapters mean nothing there"
        )
    return adapted_teacher(backbone, adapters, pooling, str(folder))


def load_adapted(backbone: Backbone, folder: Path, base: str) -> LLMTeacher:
    """Return the teacher of a folder on an LLM that has its adapters merged already.

    Args:
        backbone: The LLM as it is now.
        folder: The teacher's folder.
        base: Fingerprint of the LLM without any adapter.
    """
    config = read_config(folder)
    adapters = [folder / ADAPTERS / name for name in config.adapters]
    return LLMTeacher(backbone, PoolingSettings(**config.pooling), name=str(folder), identity=_identity(base, adapters))


def adapted_teacher(
    backbone: Backbone, adapters: Sequence[Path], pooling: PoolingSettings, name: str | None = None
) -> LLMTeacher:
    """Merge adapters into an LLM, one after the other, and use it as a teacher.

    Args:
        backbone: The LLM; its weights are changed.
        adapters: Folders of the adapters.
        pooling: How states become an embedding.
        name: A name for reports.
    """
    identity = _identity(backbone.fingerprint, adapters)
    for adapter in adapters:
        merge_adapter(backbone, adapter)
    return LLMTeacher(backbone, pooling, name=name, identity=identity)


def _identity(base: str, adapters: Sequence[Path]) -> str:
    return hash_text(" ".join([base, *map(adapter_hash, adapters)]))


def read_config(folder: Path) -> TeacherConfig:
    """Read `teacher.json` and make sure that the adapters are there.

    Raises:
        MissingPartError: A file is not there.
        CorruptError: A file is damaged.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        raise MissingPartError(f"no {FILE_NAME} in {folder}: this is no saved teacher, or it is incomplete")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CorruptError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        found = values.get("format") if isinstance(values, dict) else type(values).__name__
        raise CorruptError(f"{path} has format {found!r}; this version reads format {FORMAT}")
    try:
        config = TeacherConfig(**values)
    except TypeError as error:
        raise CorruptError(f"{path}: {error}") from None
    for name in config.adapters:
        if Path(name).name != name:
            raise CorruptError(f"{path} names the adapter {name!r}: it must be a folder below {ADAPTERS}/")
        check_adapter(folder / ADAPTERS / name)
    return config


def _card(config: TeacherConfig) -> str:
    steps = " → ".join([f"`{config.backbone}`", *config.adapters])
    pooling = config.pooling
    return f"""---
library_name: afterword
pipeline_tag: sentence-similarity
base_model: {config.backbone}
tags: [afterword, embeddings, llm2vec]
---

# An LLM2Vec teacher on {config.backbone}

{steps}. Adapters only: the language model is not part of this folder (fingerprint `{config.backbone_fingerprint}`).

| | |
|---|---|
| attention | {pooling["attention"]} |
| pooling | {pooling["pooling"]}, {"with" if pooling["pool_prompt"] else "without"} what stands before the text |
| prompt | `{pooling["prompt"] or "none"}` |
| longest text | {pooling["max_seq_length"]} tokens |

```bash
afterword teacher encode this/folder texts.jsonl --out vectors.npy
afterword target --responses corpus/responses --teacher this/folder --out corpus/targets
afterword teacher merge this/folder --out merged
```
"""
