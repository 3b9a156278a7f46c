"""Any encoder by name: what the command line means by ENCODER."""

from __future__ import annotations

from pathlib import Path

from afterword.backbone.load import load_backbone
from afterword.backbone.settings import BackboneSettings, Device, DType
from afterword.encoder import Encoder
from afterword.errors import SettingError
from afterword.model.checkpoint import is_checkpoint
from afterword.model.model import Afterword
from afterword.teacher.llm import LLMTeacher
from afterword.teacher.open import open_teacher

TYPES = ("float32", "bfloat16")


def open_encoder(name: str, device: Device = "auto", dtype: DType = "auto") -> Encoder:
    """Open an encoder.

    Args:
        name: A saved Afterword model (a folder, or a hub name); `hf:NAME`, the mean of the last states of a causal LM;
            `teacher:NAME`, a teacher, `teacher:demo` being the packaged one; or any SentenceTransformer. With
            `@float32` or `@bfloat16` behind it, the LLM is loaded in that type whatever `dtype` says.
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
        return open_teacher(_named(rest, name), device=device)
    if is_checkpoint(name):
        return Afterword.from_pretrained(name, device=device, dtype=dtype)
    if Path(name, "model").is_dir() and is_checkpoint(str(Path(name, "model"))):  # the folder of a training
        return Afterword.from_pretrained(str(Path(name, "model")), device=device, dtype=dtype)
    return open_teacher(name, device=device)


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
