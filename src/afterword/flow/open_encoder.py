"""Any encoder by name: what the command line means by ENCODER."""

from __future__ import annotations

import json
from pathlib import Path

from afterword.backbone.backbone import Backbone
from afterword.backbone.load import load_backbone
from afterword.backbone.settings import BackboneSettings, Device, DType
from afterword.corpus.targets import TargetSettings
from afterword.encoder import Encoder, fingerprint_of
from afterword.errors import MismatchError, MissingPartError, SettingError
from afterword.model.checkpoint import is_checkpoint
from afterword.model.model import Afterword
from afterword.space import InSpace
from afterword.teacher.llm import LLMTeacher
from afterword.teacher.open import open_teacher
from afterword.teacher.settings import PoolingSettings

TYPES = ("float32", "bfloat16")


def open_encoder(name: str, device: Device = "auto", dtype: DType = "auto") -> Encoder:
    """Open an encoder.

    Args:
        name: A saved Afterword model (a folder, or a hub name); `hf:NAME`, the mean of the last states of a causal LM;
            `teacher:NAME`, a teacher, `teacher:demo` being the packaged one; `target:MODEL`, the teacher of a saved
            model in the space of its targets; or any SentenceTransformer. With `@float32` or `@bfloat16` behind it, the
            LLM is loaded in that type whatever `dtype` says.
        device: Where it runs.
        dtype: Type of the LLM's weights; a SentenceTransformer keeps its own.

    Raises:
        MissingPartError: There is no such folder.
        SettingError: Nothing can be loaded under that name.
        MissingExtraError: A SentenceTransformer was asked for and the package is not installed.
    """
    base, _, kind = name.rpartition("@")
    if base and kind in TYPES:
        name, dtype = base, kind  # type: ignore[assignment]
    prefix, _, rest = name.partition(":")
    if prefix == "hf":
        return LLMTeacher(load_backbone(BackboneSettings(_named(rest, name), device=device, dtype=dtype)), prompt="")
    if prefix == "teacher":
        return open_teacher(_named(rest, name), device=device, dtype=dtype)
    if prefix == "target":
        return _teacher_of(_named(rest, name), device, dtype)
    if (model := _checkpoint(name)) is not None:
        return Afterword.from_pretrained(model, device=device, dtype=dtype)
    return open_teacher(name, device=device, dtype=dtype)


def chosen_teacher(settings: TargetSettings, backbone: Backbone | None, device: Device) -> Encoder:
    """Open the teacher that target settings name; the LLM itself with the prompt, layer and pooling they say.

    Raises:
        SettingError: There is no such model, or a setting of teacher llm stands beside another teacher.
    """
    if settings.teacher == "llm":
        if backbone is None:
            raise SettingError("the teacher 'llm' is the backbone itself: give the backbone")
        pooling = PoolingSettings(pooling=settings.llm_pooling, prompt=settings.llm_prompt, layer=settings.llm_layer)
        return LLMTeacher(backbone, pooling)
    check_llm_settings(settings)
    return open_teacher(settings.teacher, device=device)


def check_llm_settings(settings: TargetSettings) -> None:
    """Refuse settings of teacher llm beside another teacher.

    Raises:
        SettingError: There is one.
    """
    for name in ("llm_prompt", "llm_layer", "llm_pooling"):
        if settings.teacher != "llm" and getattr(settings, name) != getattr(TargetSettings(), name):
            raise SettingError(f"{name} is for teacher llm, but the teacher is {settings.teacher}")


def _teacher_of(name: str, device: Device, dtype: DType) -> Encoder:
    """Return the teacher of a saved model, in the space of the targets that the model was trained on."""
    path = _checkpoint(name)
    if path is None:
        raise MissingPartError(f"no saved Afterword model {name}: target:MODEL is the teacher of one")
    model = Afterword.from_pretrained(path, device=device, dtype=dtype)
    teacher = model.config.teacher
    if teacher.get("name") == "llm":
        settings = TargetSettings("llm", **json.loads(teacher.get("llm", "{}")))
        encoder = chosen_teacher(settings, model.backbone, device)
    else:
        encoder = open_teacher(teacher.get("name", ""), device=device, dtype=dtype)
    if fingerprint_of(encoder) != teacher.get("fingerprint"):
        raise MismatchError(
            f"{name} was trained on targets of {teacher.get('name')} ({teacher.get('fingerprint')}), but what is found "
            f"under that name is {fingerprint_of(encoder)}"
        )
    return InSpace(encoder, model.parts.space, teacher.get("prompt", ""))


def _checkpoint(name: str) -> str | None:
    """Return the folder or hub name of a saved model, also by the folder of its training."""
    if is_checkpoint(name):
        return name
    inner = str(Path(name, "model"))
    return inner if Path(inner).is_dir() and is_checkpoint(inner) else None


def lasting_name(name: str) -> str:
    """Return the name of an encoder in a form that means the same in every working folder: folders absolute."""
    prefix, colon, rest = name.partition(":") if name.startswith(("hf:", "teacher:")) else ("", "", name)
    base, at, kind = rest.rpartition("@")
    path, kind = (base, at + kind) if base and kind in TYPES else (rest, "")
    folder = Path(path).expanduser()
    return f"{prefix}{colon}{folder.resolve() if path and folder.is_dir() else path}{kind}"


def _named(rest: str, whole: str) -> str:
    if not rest:
        raise SettingError(f"{whole!r} names no model: write {whole}NAME")
    return rest
