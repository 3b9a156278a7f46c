"""LoRA adapters in the layers of an LLM, by the peft library: train, save, read, merge."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import nn

from afterword.backbone.backbone import Backbone
from afterword.encoder import hash_tensors
from afterword.errors import CorruptError, MismatchError, MissingPartError, SettingError
from afterword.extras import require_extra

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True)
class LoraSettings:
    """Shape of the adapters (LoRA, arXiv 2106.09685); the values are those of LLM2Vec (arXiv 2404.05961, appendix)."""

    lora_rank: int = 16
    """Rank of the change of each matrix."""
    lora_alpha: int = 32
    """The change is multiplied by this over the rank."""
    lora_dropout: float = 0.05
    """Share of the inputs of an adapter that are dropped in training."""
    lora_targets: str = "all-linear"
    """Names of the matrices that are adapted, with commas between; all-linear takes those of attention and MLP."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be used."""
        if self.lora_rank < 1:
            raise SettingError(f"lora_rank is {self.lora_rank}: it must be at least 1")
        if not 0 <= self.lora_dropout < 1:
            raise SettingError(f"lora_dropout is {self.lora_dropout}: it is at least 0 and below 1")


class Adapter(nn.Module):
    """Fresh LoRA weights inside an LLM; as a module it has these weights and nothing else.

    The LLM's own weights stay as they are until `merge`. A fresh adapter changes nothing.

    Args:
        backbone: The LLM; its layers are wrapped in place.
        settings: Shape of the adapter.
        seed: Seed of the first values.

    Raises:
        MissingExtraError: peft is not installed.
        SettingError: The LLM has no matrix of such a name.
    """

    def __init__(self, backbone: Backbone, settings: LoraSettings, seed: int) -> None:
        super().__init__()
        peft = _peft()
        import torch

        names = settings.lora_targets
        config = peft.LoraConfig(
            r=settings.lora_rank,
            lora_alpha=settings.lora_alpha,
            lora_dropout=settings.lora_dropout,
            target_modules=names if names == "all-linear" else [name.strip() for name in names.split(",")],
            base_model_name_or_path=backbone.name,
            revision=backbone.revision,
        )
        try:
            with torch.random.fork_rng(devices=[]), _quiet():
                torch.manual_seed(seed)
                # In a list, so that the whole LLM does not become a part of this module.
                self._wrapped = [peft.PeftModel(backbone.body, config)]
        except ValueError as error:
            raise SettingError(f"lora_targets is {names!r}: {str(error).strip()}") from None
        self.backbone_of = [backbone]
        for name, parameter in backbone.body.named_parameters():
            if parameter.requires_grad:
                self.register_parameter(name.replace(".", "/"), parameter)

    @contextmanager
    def dropping(self) -> Iterator[None]:
        """Let the adapter's own dropout act meanwhile."""
        found = [module for module in self._wrapped[0].modules() if isinstance(module, nn.Dropout)]
        for module in found:
            module.train()
        try:
            yield
        finally:
            for module in found:
                module.eval()

    def save(self, folder: Path, card: str) -> None:
        """Write a folder that peft reads: weights, config and a card."""
        with _quiet():
            self._wrapped[0].save_pretrained(str(folder), save_embedding_layers=False)
        (folder / "README.md").write_text(card, encoding="utf-8")

    def remove(self) -> None:
        """Unwrap the LLM's layers; their weights are what they were."""
        self._wrapped[0].unload()

    def merge(self) -> None:
        """Add the adapter to the LLM's weights for good and unwrap its layers."""
        self._wrapped[0].merge_and_unload()
        self.backbone_of[0].weights_changed()


def merge_adapter(backbone: Backbone, folder: Path) -> None:
    """Read an adapter and add it to the LLM's weights.

    Raises:
        MissingExtraError: peft is not installed.
        MissingPartError: The folder lacks its config, or its weights as safetensors (pickles are not read).
        CorruptError: A file is damaged.
        MismatchError: It was made for an LLM of another shape.
    """
    peft = _peft()
    check_adapter(folder)
    try:
        with _quiet():
            wrapped = peft.PeftModel.from_pretrained(backbone.body, str(folder))
    except SafetensorError as error:
        raise CorruptError(f"{folder / WEIGHTS} is damaged: {error}") from None
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise MismatchError(f"the adapter {folder} does not fit {backbone.name}: {reason}") from None
    untouched = [name for name, tensor in wrapped.named_parameters() if ".lora_B." in name and not tensor.any()]
    if untouched:
        raise MismatchError(
            f"the adapter {folder} does not fit {backbone.name}: it has no weights for {len(untouched)} matrices, such "
            f"as {untouched[0]}"
        )
    wrapped.merge_and_unload()
    backbone.weights_changed()


def check_adapter(folder: Path) -> dict[str, Any]:
    """Return the config of an adapter folder that has all it needs.

    Raises:
        MissingPartError: A file is not there.
        CorruptError: The config is no JSON.
    """
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise MissingPartError(f"no {name} in {folder}: an adapter is its config and its weights as safetensors")
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except ValueError as error:
        raise CorruptError(f"{folder / CONFIG} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise CorruptError(f"{folder / CONFIG} is not the config of an adapter")
    return config


def adapter_hash(folder: Path) -> str:
    """Hash the weights and the scaling of an adapter.

    Raises:
        CorruptError: Its weights are damaged.
    """
    import torch
    from safetensors.torch import load_file

    config = check_adapter(folder)
    scaling = {key: config.get(key) for key in ("r", "lora_alpha", "use_rslora", "use_dora", "rank_pattern")}
    try:
        weights = load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise CorruptError(f"{folder / WEIGHTS} is damaged: {error}") from None
    return hash_tensors([*sorted(weights.items()), (json.dumps(scaling, sort_keys=True), torch.empty(0))])


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep peft's warnings to itself: old names it asks transformers for, a config it looks for on the hub."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _peft() -> Any:
    require_extra("teacher", "peft")
    import peft

    return peft
