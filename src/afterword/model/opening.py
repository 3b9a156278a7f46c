"""Opening a saved model, whoever wrote it."""

from __future__ import annotations

from afterword.backbone.backbone import Backbone
from afterword.backbone.load import load_backbone
from afterword.backbone.settings import BackboneSettings, Device, DType
from afterword.model.checkpoint import check_backbone, find_folder, load_parts
from afterword.model.config import ModelConfig
from afterword.model.heads import LearnedParts
from afterword.model.official import is_official, read_official


def open_model(
    path: str,
    backbone: Backbone | None,
    revision: str | None,
    device: Device,
    dtype: DType,
    trust_remote_code: bool,
) -> tuple[Backbone, LearnedParts, ModelConfig]:
    """Read a folder, or a model on the hub, and load its backbone unless one is given.

    Raises:
        MissingPartError: The folder lacks a part, which is named.
        CorruptError: A part is not what its config says.
        MismatchError: The backbone is not the one that the model was trained on.
    """
    folder = find_folder(path, revision)

    def loaded(name: str, at: str | None) -> Backbone:
        return backbone or load_backbone(BackboneSettings(name, at, device, dtype, trust_remote_code))

    if is_official(folder):
        theirs = read_official(folder)
        found = loaded(theirs.backbone, None)
        return (found, *theirs.on(found))
    config, parts = load_parts(folder)
    found = loaded(config.backbone, config.backbone_revision)
    check_backbone(config, found, path)
    return found, parts, config
