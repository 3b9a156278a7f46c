"""Finding and loading a backbone."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from afterword.backbone.backbone import Backbone
from afterword.backbone.offline import from_cache_only
from afterword.backbone.packaged import PACKAGED, packaged_folder
from afterword.backbone.settings import BackboneSettings
from afterword.errors import MissingPartError, SettingError


def load_backbone(settings: BackboneSettings) -> Backbone:
    """Load a frozen causal LM from the hub, a folder, or the packages that carry one.

    Raises:
        SettingError: There is no such model, or it is no causal LM.
        MissingPartError: The folder lacks what a model needs.
    """
    name = settings.backbone
    source = packaged_folder(name) if name in PACKAGED else _local(name)
    _check_folder(name)
    device = choose_device(settings.device)
    cached = from_cache_only(str(source))
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source,
            revision=settings.revision,
            trust_remote_code=settings.trust_remote_code,
            local_files_only=cached,
        )
        model = AutoModelForCausalLM.from_pretrained(
            source,
            revision=settings.revision,
            trust_remote_code=settings.trust_remote_code,
            dtype=choose_dtype(settings.dtype, device),
            local_files_only=cached,
            adapter_kwargs={"local_files_only": cached},  # it looks for adapters by itself
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise SettingError(f"cannot load the backbone {name!r}: {str(error).strip()}") from error
    revision = settings.revision or getattr(model.config, "_commit_hash", None)
    model.to(device)  # type: ignore[arg-type]
    return Backbone(model, tokenizer, name, revision)


def choose_device(device: str) -> torch.device:
    """Resolve `auto` to cuda, then mps, then cpu.

    Raises:
        SettingError: The device is not there.
    """
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    kind = device.partition(":")[0]
    if kind == "auto":
        return torch.device(next(name for name, there in present.items() if there))
    if not present.get(kind, False):
        there = ", ".join(name for name, is_there in present.items() if is_there)
        raise SettingError(f"device {device!r} is not available here; available: {there}")
    return torch.device(device)


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """Resolve `auto` to bfloat16 where the hardware computes in it, else float32.

    A CPU without bfloat16 instructions emulates them, several times slower than float32.
    """
    if dtype != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    if device.type == "mps":
        return torch.bfloat16
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return torch.bfloat16 if supported() else torch.float32


def _check_folder(name: str) -> None:
    if name in PACKAGED:
        return
    folder = Path(_local(name))
    looks_like_path = name.startswith((".", "/", "~")) or folder.is_dir()
    if looks_like_path and not (folder / "config.json").is_file():
        raise MissingPartError(f"no config.json in {name}: a backbone is a Hugging Face folder or hub name")


def _local(name: str) -> str:
    # A recipe is read by no shell, so `~` arrives as it was written; a hub name must stay as it is.
    return str(Path(name).expanduser()) if name.startswith("~") else name
