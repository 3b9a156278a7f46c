"""The checkpoints of the paper's authors (`llm2vec-gen`), read as weights only.

run_config.yml               the LLM's name, the learned tokens, the longest text
encoder_decoder_config.json  how many of the tokens are compression tokens
encoder/                     a PEFT adapter: the rows of the learned tokens, and nothing that changes the LLM
reconstruction_mlp           the heads, each a file of torch.save
alignment_mlp
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from afterword.backbone.backbone import Backbone
from afterword.errors import CorruptError, MismatchError, MissingPartError
from afterword.model.config import ModelConfig
from afterword.model.heads import LearnedParts
from afterword.model.safe_files import load_saved, member, named_tensors, read_settings, read_tensors
from afterword.model.tokens import row_scale

RUN_CONFIG = "run_config.yml"
MODEL_CONFIG = "encoder_decoder_config.json"
ADAPTER_CONFIG = "encoder/adapter_config.json"
ADAPTERS = ("encoder/adapter_model.safetensors", "encoder/adapter_model.bin")
HEADS = {"recon": "reconstruction_mlp", "align": "alignment_mlp"}
OFFICIAL_FILES = (RUN_CONFIG, MODEL_CONFIG, ADAPTER_CONFIG, *ADAPTERS, *HEADS.values())

MOST_YAML = 256 * 1024
"""Bytes of a run config; real ones have a few thousand, and a parser of YAML is slow."""


@dataclass(frozen=True)
class OfficialCheckpoint:
    """What such a folder holds.

    Attributes:
        source: Where it was.
        backbone: Name of the LLM.
        rows: The learned tokens as rows of a vocabulary. *Shape:* `(m + n, hidden)`.
        ids: Ids that they have in the authors' vocabulary.
        heads: Weight and bias of both heads, under the names of `LearnedParts`.
        n_compression: How many of the tokens, the last ones, are compression tokens.
        max_length: Most tokens of a text with the learned ones.
        vocabulary: The embeddings of the LLM that the adapter may carry along.
    """

    source: Path
    backbone: str
    rows: Tensor
    ids: tuple[int, ...]
    heads: dict[str, Tensor]
    n_compression: int
    max_length: int
    vocabulary: Tensor | None

    def on(self, backbone: Backbone) -> tuple[LearnedParts, ModelConfig]:
        """Return it as a model of ours on its LLM.

        Raises:
            MismatchError: The LLM is another.
        """
        if self.rows.shape[1] != backbone.hidden_size:
            raise MismatchError(
                f"{self.source} has tokens for a width of {self.rows.shape[1]}, {backbone.name} is "
                f"{backbone.hidden_size} wide"
            )
        self._check_vocabulary(backbone)
        align = self.heads["align.weight"]
        parts = LearnedParts(self.rows.float() * row_scale(backbone), align.shape[0])
        parts.load_state_dict({"tokens": parts.tokens.detach(), **self.heads})
        config = ModelConfig(
            backbone=backbone.name,
            backbone_revision=backbone.revision,
            backbone_fingerprint=backbone.fingerprint,
            hidden_size=backbone.hidden_size,
            embedding_dimension=align.shape[0],
            n_thought=len(self.rows) - self.n_compression,
            n_compression=self.n_compression,
            max_length=self.max_length,
            decode_behind_start=False,
        )
        return parts, config

    def _check_vocabulary(self, backbone: Backbone) -> None:
        if self.vocabulary is None:
            return
        ours = backbone.embedding_matrix
        learned = set(self.ids)
        count = min(len(ours), len(self.vocabulary))
        kept = [i for i in range(0, count, max(1, count // 1024)) if i not in learned]
        same = self.vocabulary[kept].float(), ours[kept].float().cpu()
        if same[0].shape != same[1].shape or not torch.allclose(*same, rtol=2e-2, atol=1e-6):
            raise MismatchError(f"{self.source} was trained on {self.backbone}; {backbone.name} has other embeddings")


def is_official(folder: Path) -> bool:
    """Return whether a folder is laid out as the authors' checkpoints are."""
    return (folder / RUN_CONFIG).is_file() and (folder / ADAPTER_CONFIG).is_file()


def read_official(folder: Path) -> OfficialCheckpoint:
    """Read a checkpoint of the authors.

    Raises:
        MissingPartError: A file or a setting is not there; it is named.
        CorruptError: A file is damaged, holds anything but settings and weights, or has parts that do not fit.
    """
    run = _read_yaml(_there(folder, RUN_CONFIG))
    mode = _read_json(folder, MODEL_CONFIG).get("encoding_mode", run.get("encoding_mode"))
    matched = re.fullmatch(r"last_(\d{1,6})_tokens", str(mode))
    if matched is None:
        raise CorruptError(f"{folder}: encoding_mode is {mode!r}; read are checkpoints of the form last_N_tokens")
    adapter = _read_json(folder, ADAPTER_CONFIG)
    name = run.get("model_name_or_path") or adapter.get("base_model_name_or_path")
    if not isinstance(name, str):
        raise MissingPartError(f"{folder / RUN_CONFIG} does not name the LLM (model_name_or_path)")
    rows, vocabulary = _read_adapter(folder)
    ids = _token_ids(adapter, len(rows), folder)
    heads = _read_heads(folder, rows.shape[1])
    n_compression, length = int(matched[1]), run.get("max_input_length")
    if not 1 <= n_compression <= len(rows):
        raise CorruptError(f"{folder}: {mode!r}, but {len(rows)} learned tokens")
    length = 512 if length is None else length
    if type(length) is not int or length <= len(rows):
        raise CorruptError(f"{folder / RUN_CONFIG}: max_input_length is {length!r}, and {len(rows)} tokens are learned")
    return OfficialCheckpoint(folder, name, rows, ids, heads, n_compression, length, vocabulary)


def _there(folder: Path, name: str) -> Path:
    path = member(folder, name)
    if not path.is_file():
        raise MissingPartError(f"no {name} in {folder}: this checkpoint of the authors is incomplete")
    return path


def _read_json(folder: Path, name: str) -> Mapping[str, Any]:
    path = member(folder, name)
    if name == MODEL_CONFIG and not path.is_file():
        return {}  # the run config has it too
    try:
        found = json.loads(read_settings(_there(folder, name)))
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, Mapping):
        raise CorruptError(f"{path} holds {type(found).__name__}, expected settings by name")
    return found


class _PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML without its dangers: tags mean nothing, so no object is made, and nothing may be repeated by reference."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("references (*name) are not read")
        return super().compose_node(parent, index)

    def untagged(self, _: str, node: yaml.Node) -> Any:
        """Return the plain content of a node with a tag."""
        if isinstance(node, yaml.MappingNode):
            return self.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return self.construct_sequence(node, deep=True)
        return self.construct_scalar(node)


_PlainLoader.add_multi_constructor("", _PlainLoader.untagged)


def _read_yaml(path: Path) -> Mapping[str, Any]:
    try:
        found = yaml.load(read_settings(path, MOST_YAML), _PlainLoader)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        raise CorruptError(f"{path} is not plain YAML: {error}") from None
    if not isinstance(found, Mapping):
        raise CorruptError(f"{path} holds {type(found).__name__}, expected settings by name")
    return found


def _read_adapter(folder: Path) -> tuple[Tensor, Tensor | None]:
    """Return the rows of the learned tokens, and the LLM's embeddings where they are there too."""
    name = next((name for name in ADAPTERS if member(folder, name).is_file()), ADAPTERS[0])
    path = _there(folder, name)
    tensors = read_tensors(path)
    rows = [tensor for name, tensor in tensors.items() if name.endswith("trainable_tokens_delta")]
    vocabulary = [t for name, t in tensors.items() if re.search(r"embed_tokens\.(\w+\.)*weight$", name)]
    changing = [name for name, tensor in tensors.items() if ".lora_" in name and ".lora_A" not in name and tensor.any()]
    known = len(rows) + len(vocabulary) + sum(".lora_" in name for name in tensors)
    if changing:
        raise CorruptError(f"{path} changes the LLM itself ({changing[0]}): only a frozen LLM with tokens is read")
    if len(rows) != 1 or rows[0].dim() != 2 or known != len(tensors):
        raise CorruptError(f"{path} holds {', '.join(sorted(tensors)[:4])}: expected the rows of learned tokens alone")
    return rows[0], vocabulary[0] if vocabulary else None


def _token_ids(adapter: Mapping[str, Any], count: int, folder: Path) -> tuple[int, ...]:
    found = adapter.get("token_indices") or adapter.get("trainable_token_indices")
    if isinstance(found, Mapping) and len(found) == 1:
        found = next(iter(found.values()))
    if not isinstance(found, list) or len(found) != count or not all(type(i) is int for i in found):
        raise CorruptError(f"{folder / ADAPTER_CONFIG} names the tokens {found!r}, and there are {count} rows")
    return tuple(found)


def _read_heads(folder: Path, hidden: int) -> dict[str, Tensor]:
    heads: dict[str, Tensor] = {}
    for ours, name in HEADS.items():
        path = _there(folder, name)
        saved = load_saved(path)
        if not isinstance(saved, Mapping) or not isinstance(saved.get("config"), Mapping):
            raise CorruptError(f"{path} is no head of the authors: expected state_dict and config in it")
        config, tensors = saved["config"], named_tensors(saved.get("state_dict"), path)
        if (config.get("size", 1), config.get("pooling_mode", "linear")) != (1, "linear"):
            raise CorruptError(f"{path} is no linear head: {dict(config)}")
        if set(tensors) != {"projection.weight", "projection.bias"}:
            raise CorruptError(f"{path} holds {', '.join(sorted(tensors))}, expected projection.weight and .bias")
        weight, bias = tensors["projection.weight"], tensors["projection.bias"]
        width = weight.shape[0] if ours == "align" and weight.dim() == 2 else hidden
        if (tuple(weight.shape), tuple(bias.shape)) != ((width, hidden), (width,)) or width < 1:
            raise CorruptError(
                f"{path}: weight {tuple(weight.shape)} and bias {tuple(bias.shape)} do not fit tokens that are "
                f"{hidden} wide"
            )
        heads |= {f"{ours}.weight": weight.float(), f"{ours}.bias": bias.float()}
    return heads
