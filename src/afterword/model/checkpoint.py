"""A model on disk: one safetensors file, one JSON config, one card. No pickles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from afterword.backbone.backbone import Backbone
from afterword.backbone.hub import fetch_folder, has_any
from afterword.errors import CorruptError, MismatchError, MissingPartError
from afterword.model.card import render_card
from afterword.model.config import ModelConfig
from afterword.model.heads import LearnedParts
from afterword.model.official import OFFICIAL_FILES, RUN_CONFIG
from afterword.model.safe_files import member, read_settings, read_tensors
from afterword.model.st_folder import sentence_transformer_files
from afterword.space import TargetSpace

WEIGHTS = "model.safetensors"
CONFIG = "afterword.json"
CARD = "README.md"


def save_model(folder: Path, config: ModelConfig, parts: LearnedParts) -> None:
    """Write a model folder, which is a SentenceTransformer folder too."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in sentence_transformer_files(config).items():
        _replace_text(folder / name, text)
    save_parts(folder, config, parts)


def save_parts(folder: Path, config: ModelConfig, parts: LearnedParts) -> None:
    """Write weights, card and config; each file replaces the old one at once, the config last."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in parts.state_dict().items()}
    scratch = folder / f".{WEIGHTS}.part"
    save_file(tensors, scratch, metadata={"format": "pt"})
    scratch.replace(folder / WEIGHTS)
    for name, text in ((CARD, render_card(config)), (CONFIG, config.to_json())):
        _replace_text(folder / name, text)


def _replace_text(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}.part")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)


def load_parts(folder: Path) -> tuple[ModelConfig, LearnedParts]:
    """Read config and learned parts from a folder.

    Raises:
        MissingPartError: A file or a tensor is not there; it is named.
        CorruptError: A file cannot be read or leads out of the folder, or a tensor has another shape than the config
            says.
    """
    paths = {name: member(folder, name) for name in (CONFIG, WEIGHTS)}
    for name, path in paths.items():
        if not path.is_file():
            raise MissingPartError(f"no {name} in {folder}: this is not a saved Afterword model, or it is incomplete")
    config = ModelConfig.from_json(read_settings(paths[CONFIG]), str(folder / CONFIG))
    tensors = read_tensors(paths[WEIGHTS])
    check_tensors(tensors, config, folder / WEIGHTS)  # before anything is made as large as the config says
    space = TargetSpace(tensors["space.mean"], tensors["space.transform"]) if "space.mean" in tensors else None
    parts = LearnedParts(tensors["tokens"], config.embedding_dimension, space=space)
    parts.load_state_dict(tensors)
    return config, parts


def is_checkpoint(path: str) -> bool:
    """Return whether a folder, or a model on the hub where there is no such folder, can be loaded: ours or theirs."""
    return has_any(path, (CONFIG, RUN_CONFIG))


def find_folder(path: str, revision: str | None = None, **hub: Any) -> Path:
    """Return the folder of a model, fetched from the hub where there is none of that name; only the files we know.

    Args:
        path: A folder or a hub name.
        revision: Revision on the hub.
        hub: Further arguments of `huggingface_hub.snapshot_download`.

    Raises:
        MissingPartError: There is no such folder, and the hub gave none.
    """
    return fetch_folder(path, [WEIGHTS, CONFIG, CARD, *OFFICIAL_FILES], "a model", revision, **hub)


def check_tensors(tensors: Mapping[str, Tensor], config: ModelConfig, path: Path) -> None:
    """Compare names and shapes of tensors with what a config says.

    Raises:
        MissingPartError: One is not there.
        CorruptError: One has another shape, or there is one too many.
    """
    hidden, dimension = config.hidden_size, config.embedding_dimension
    expected = {
        "tokens": (config.n_tokens, hidden),
        "recon.weight": (hidden, hidden),
        "recon.bias": (hidden,),
        "align.weight": (dimension, hidden),
        "align.bias": (dimension,),
    }
    if "space.transform" in tensors:  # statistics of the targets, where they were standardised or whitened
        matrix = tensors["space.transform"].dim() == 2
        expected |= {"space.mean": (dimension,), "space.transform": (dimension, dimension) if matrix else (dimension,)}
    missing = sorted(set(expected) - set(tensors))
    if missing:
        raise MissingPartError(f"{path} lacks {', '.join(missing)}")
    extra = sorted(set(tensors) - set(expected))
    if extra:
        raise CorruptError(f"{path} holds {', '.join(extra)}, which its config does not know")
    for name, wanted in expected.items():
        if (found := tuple(tensors[name].shape)) != wanted:
            raise CorruptError(f"{path}: {name} has shape {found}, the config says {wanted}")


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
