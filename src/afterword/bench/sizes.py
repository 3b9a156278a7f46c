"""Backbones of a real model's shape with random weights, to size a machine before anything is downloaded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedTokenizerFast

from afterword.backbone.backbone import Backbone
from afterword.backbone.load import choose_device, choose_dtype
from afterword.backbone.settings import Device, DType
from afterword.errors import SettingError


@dataclass(frozen=True)
class Shape:
    """The numbers of a published config that decide what a pass costs."""

    model_type: str
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    width: int
    vocabulary: int
    tied: bool
    window: int | None = None


KNOWN = {
    "Qwen/Qwen3-0.6B": Shape("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, True),
    "Qwen/Qwen3-1.7B": Shape("qwen3", 2048, 6144, 28, 16, 8, 128, 151936, True),
    "Qwen/Qwen3-4B": Shape("qwen3", 2560, 9728, 36, 32, 8, 128, 151936, True),
    "Qwen/Qwen3-8B": Shape("qwen3", 4096, 12288, 36, 32, 8, 128, 151936, False),
    "Qwen/Qwen2.5-0.5B-Instruct": Shape("qwen2", 896, 4864, 24, 14, 2, 64, 151936, True),
    "Qwen/Qwen2.5-1.5B-Instruct": Shape("qwen2", 1536, 8960, 28, 12, 2, 128, 151936, True),
    "Qwen/Qwen2.5-3B-Instruct": Shape("qwen2", 2048, 11008, 36, 16, 2, 128, 151936, True),
    "Qwen/Qwen2.5-7B-Instruct": Shape("qwen2", 3584, 18944, 28, 28, 4, 128, 152064, False),
    "meta-llama/Llama-3.2-1B-Instruct": Shape("llama", 2048, 8192, 16, 32, 8, 64, 128256, True),
    "meta-llama/Llama-3.2-3B-Instruct": Shape("llama", 3072, 8192, 28, 24, 8, 128, 128256, True),
    "meta-llama/Llama-3.1-8B-Instruct": Shape("llama", 4096, 14336, 32, 32, 8, 128, 128256, False),
    "google/gemma-3-270m": Shape("gemma3_text", 640, 2048, 18, 4, 1, 256, 262144, True, 512),
    "google/gemma-3-1b-it": Shape("gemma3_text", 1152, 6912, 26, 4, 1, 256, 262144, True, 512),
}
"""Shapes that need no hub. Any other config is read from the hub or a folder."""


def model_config(name: str) -> PretrainedConfig:
    """Return the config of a model by hub name, folder or `config.json`.

    Raises:
        SettingError: It is not known here, and the hub does not have it or cannot be reached.
    """
    path = Path(name).expanduser()
    if path.suffix == ".json" and path.is_file():
        values = json.loads(path.read_text(encoding="utf-8"))
        return _made(values.pop("model_type"), values)
    if name in KNOWN and not path.is_dir():
        return _config(KNOWN[name])
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(str(path) if name.startswith("~") else name)
    except (OSError, ValueError) as error:
        raise SettingError(
            f"cannot read a config for {name!r}: {str(error).strip()}\nknown without a hub: {', '.join(KNOWN)}"
        ) from error
    return config


def empty_model(config: PretrainedConfig) -> Any:
    """Return a causal LM of this config that takes no memory, to be counted."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def random_backbone(name: str, device: Device = "auto", dtype: DType = "auto", seed: int = 0) -> Backbone:
    """Return a backbone of the named model's shape with random weights, and a tokenizer of one token a byte.

    Its texts mean nothing; what a pass costs depends on the shape alone.
    """
    config = model_config(name)
    place = choose_device(device)
    chosen = choose_dtype(dtype, place)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with torch.device(place):
            model = AutoModelForCausalLM.from_config(config, dtype=chosen)
    text = config.get_text_config()
    text.eos_token_id = model.config.eos_token_id = model.generation_config.eos_token_id = 0
    return Backbone(model, _byte_tokenizer(), f"random weights of {name}")


def _config(shape: Shape) -> PretrainedConfig:
    values: dict[str, Any] = {
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.width,
        "vocab_size": shape.vocabulary,
        "tie_word_embeddings": shape.tied,
        "max_position_embeddings": 32768,
    }
    if shape.window:
        values |= {"sliding_window": shape.window, "query_pre_attn_scalar": shape.width}
    return _made(shape.model_type, values)


def _made(model_type: str, values: dict[str, Any]) -> PretrainedConfig:
    config: PretrainedConfig = AutoConfig.for_model(model_type, **values)
    return config


def _byte_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<end>": 0, **{sign: i + 1 for i, sign in enumerate(alphabet)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>")
