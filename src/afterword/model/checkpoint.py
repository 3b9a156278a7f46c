"""A model on disk: one safetensors file, one JSON config, one card. No pickles."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from afterword.backbone.backbone import Backbone
from afterword.backbone.offline import hub_is_silent
from afterword.errors import CorruptError, MismatchError, MissingPartError
from afterword.model.card import render_card
from afterword.model.config import ModelConfig
from afterword.model.heads import LearnedParts

WEIGHTS = "model.safetensors"
CONFIG = "afterword.json"
CARD = "README.md"


def save_model(folder: Path, config: ModelConfig, parts: LearnedParts) -> None:
    """Write a model folder; each file replaces the old one at once, the config last."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in parts.state_dict().items()}
    scratch = folder / f".{WEIGHTS}.part"
    save_file(tensors, scratch, metadata={"format": "pt"})
    scratch.replace(folder / WEIGHTS)
    for name, text in ((CARD, render_card(config)), (CONFIG, config.to_json())):
        scratch = folder / f".{name}.part"
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(folder / name)


def load_parts(path: str, revision: str | None = None) -> tuple[ModelConfig, LearnedParts]:
    """Read config and learned parts from a folder, or from the hub where no such folder exists.

    Raises:
        MissingPartError: A file or a tensor is not there; it is named.
        CorruptError: A file cannot be read, or a tensor has another shape than the config says.
    """
    folder = _folder(path, revision)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise MissingPartError(f"no {name} in {folder}: this is not a saved Afterword model, or it is incomplete")
    config = ModelConfig.from_json((folder / CONFIG).read_bytes(), str(folder / CONFIG))
    try:
        tensors = load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise CorruptError(f"{folder / WEIGHTS} is damaged: {error}") from None
    parts = LearnedParts(torch.zeros(config.n_tokens, config.hidden_size), config.embedding_dimension)
    _check_tensors(tensors, parts, folder)
    parts.load_state_dict(tensors)
    return config, parts


def is_checkpoint(path: str) -> bool:
    """Return whether a folder, or a model on the hub where there is no such folder, is one of ours."""
    folder = Path(path).expanduser()
    if folder.is_dir() or path.startswith((".", "/", "~")) or path.count("/") != 1:
        return (folder / CONFIG).is_file()
    from huggingface_hub import file_exists, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(path, CONFIG), str):
        return True
    if hub_is_silent():
        return False
    try:
        return bool(file_exists(path, CONFIG))
    except Exception:  # no network, no such model: whoever loads it says so in words
        return False


def _folder(path: str, revision: str | None) -> Path:
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    if path.startswith((".", "/", "~")) or path.count("/") != 1:
        raise MissingPartError(f"no folder {path}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        wanted, cached = [WEIGHTS, CONFIG, CARD], hub_is_silent()
        return Path(snapshot_download(path, revision=revision, allow_patterns=wanted, local_files_only=cached))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise MissingPartError(f"no folder {path}, and the hub did not give a model of that name: {error}") from None


def _check_tensors(tensors: dict[str, torch.Tensor], parts: LearnedParts, folder: Path) -> None:
    expected = parts.state_dict()
    missing = sorted(set(expected) - set(tensors))
    if missing:
        raise MissingPartError(f"{folder / WEIGHTS} lacks {', '.join(missing)}")
    extra = sorted(set(tensors) - set(expected))
    if extra:
        raise CorruptError(f"{folder / WEIGHTS} holds {', '.join(extra)}, which its config does not know")
    for name, tensor in expected.items():
        if tensors[name].shape != tensor.shape:
            found, wanted = tuple(tensors[name].shape), tuple(tensor.shape)
            raise CorruptError(f"{folder / WEIGHTS}: {name} has shape {found}, the config says {wanted}")


def check_backbone(config: ModelConfig, backbone: Backbone, path: str) -> None:
    """Refuse a backbone that a model was not trained on.

    Raises:
        MismatchError: Its fingerprint is another; both are named.
    """
    if backbone.fingerprint != config.backbone_fingerprint:
        raise MismatchError(
            f"{path} was trained on {config.backbone} ({config.backbone_fingerprint}), but the backbone given is "
            f"{backbone.name} ({backbone.fingerprint}): its tokens and heads mean nothing there"
        )
