"""A model as a folder that plain sentence-transformers loads, without Afterword and without remote code.

    Transformer → WordWeights → Pooling → Dense

The learned vectors become rows of the LLM's vocabulary that the tokenizer puts behind every text. The weights of words
are 1 for the compression tokens and 0 for all others, so that the mean is over them alone; both heads are linear, so
they are one layer behind it. The LLM is in the folder whole, without its vocabulary head.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from torch import Tensor, nn
from transformers import MODEL_MAPPING

from afterword.backbone.backbone import Backbone
from afterword.backbone.families import UNKNOWN
from afterword.errors import SettingError
from afterword.extras import require_extra
from afterword.integrations.stock_card import render_stock_card
from afterword.integrations.stock_tokenizer import StockTokenizer, check_prompts, stock_tokenizer
from afterword.model.heads import LearnedParts
from afterword.model.model import Afterword
from afterword.model.st_folder import MODULES, ST_CONFIG, sided_prompts
from afterword.model.tokens import row_scale

ONLY_GLUE = "text"
"""Name of the prompt that stands for none, where a frame begins a text with a space."""


@dataclass(frozen=True)
class StockExport:
    """What was written.

    Attributes:
        folder: Where.
        size: Bytes.
        prompts: Names of the prompts in it.
    """

    folder: Path
    size: int
    prompts: tuple[str, ...]


def export_stock(model: Afterword, out: Path, without: tuple[str, ...] = ()) -> StockExport:
    """Write a model for plain sentence-transformers.

    `SentenceTransformer(out)` then gives the vectors of `model.encode` to 1e-5, in the type of the LLM's weights: in
    bfloat16 sentence-transformers rounds the heads too, which Afterword does not.

    Args:
        model: The model.
        out: A folder that is new or empty.
        without: Names of prompts to leave out.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        SettingError: The folder holds something, or the model cannot be exported exactly; the message says what.
    """
    require_extra("sentence-transformers", "sentence_transformers")
    _check(model.backbone)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingError(f"{out} is there already: give a new folder")
    stock = stock_tokenizer(model)
    prompts, default = _prompts(model, stock, without)
    out.mkdir(parents=True, exist_ok=True)
    _write_llm(model, stock, out)
    _write_modules(model, stock, out)
    settings = {
        "model_type": "SentenceTransformer",
        "prompts": prompts,
        "default_prompt_name": default,
        "similarity_fn_name": model.config.similarity_fn_name,
    }
    (out / ST_CONFIG).write_text(_json(settings), encoding="utf-8")
    (out / "README.md").write_text(render_stock_card(model.config, model.inputs.frame.glue), encoding="utf-8")
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return StockExport(out, size, tuple(prompts))


def _check(backbone: Backbone) -> None:
    """Refuse what a stock folder cannot hold exactly."""
    kind = backbone.config.model_type
    if backbone.family == UNKNOWN:
        raise SettingError(f"a stock export is for the families in our table; {kind} is not one of them")
    known: Any = MODEL_MAPPING.get(type(backbone.config), None)
    if known is not type(backbone.body):
        raise SettingError(f"transformers' AutoModel does not load {type(backbone.body).__name__} without remote code")
    if getattr(backbone.config, "quantization_config", None) is not None:
        raise SettingError(f"{backbone.name} is quantised: load it whole to export it")


def _prompts(model: Afterword, stock: StockTokenizer, without: tuple[str, ...]) -> tuple[dict[str, str], str | None]:
    """Return the prompts to write and the name of the default one; the frame's own space is the head of each."""
    prompts = {name: text for name, text in sided_prompts(model.config).items() if name not in without}
    default, glue = model.config.default_prompt_name, model.inputs.frame.glue
    if default in without:
        raise SettingError(f"{default!r} is the default prompt: it cannot be left out")
    if glue and default is None:
        prompts[ONLY_GLUE], default = "", ONLY_GLUE
    glued = {name: glue + text for name, text in prompts.items()}
    check_prompts(model, stock, prompts, glued)
    return glued, default


def _write_llm(model: Afterword, stock: StockTokenizer, out: Path) -> None:
    """Write the LLM's body with the learned vectors in its vocabulary, its config and the tokenizer."""
    backbone, ids = model.backbone, [*stock.thought, *stock.compression]
    matrix = backbone.embedding_matrix
    rows = torch.zeros(max(len(matrix), max(ids) + 1), matrix.shape[1], dtype=matrix.dtype)
    rows[: len(matrix)] = matrix.detach().cpu()
    rows[ids] = (model.parts.tokens.detach().cpu() / row_scale(backbone)).to(matrix.dtype)
    weights: dict[str, Tensor] = dict(backbone.body.state_dict())
    name = next(name for name, parameter in backbone.body.named_parameters() if parameter is matrix)
    save_torch_state_dict({**weights, name: rows}, out, metadata={"format": "pt"})
    config = copy.deepcopy(backbone.config)
    config.vocab_size, config.dtype = len(rows), matrix.dtype
    config.architectures = [type(backbone.body).__name__]
    config.save_pretrained(out)
    stock.tokenizer.save_pretrained(out)


def _write_modules(model: Afterword, stock: StockTokenizer, out: Path) -> None:
    """Write what follows the LLM, each module by its own class, and the list of all."""
    from sentence_transformers.sentence_transformer.modules import Pooling, WordWeights

    size, names = max(stock.compression) + 1, dict(zip(stock.compression, stock.names, strict=True))
    following = {
        "WordWeights": WordWeights(
            vocab=[names.get(i, "") for i in range(size)],
            word_weights=dict.fromkeys(stock.names, 1.0),
            unknown_word_weight=0.0,
        ),
        "Pooling": Pooling(model.backbone.hidden_size, pooling_mode="mean"),
        "Dense": one_head(model.parts),
    }
    listed = [("", "sentence_transformers.base.modules.transformer.Transformer")]
    for number, (kind, module) in enumerate(following.items(), 1):
        path = f"{number}_{kind}"
        (out / path).mkdir()
        module.save(str(out / path))
        listed.append((path, f"{type(module).__module__}.{kind}"))
    modules = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(listed)]
    (out / MODULES).write_text(_json(modules), encoding="utf-8")
    (out / "sentence_bert_config.json").write_text(_json({"max_seq_length": model.config.max_length}), encoding="utf-8")


@torch.no_grad()
def one_head(parts: LearnedParts) -> nn.Module:
    """Return sentence-transformers' Dense for both heads in one: `align(recon(h))`, multiplied out in float64."""
    from sentence_transformers.sentence_transformer.modules import Dense

    recon, align = ((layer.weight.cpu().double(), layer.bias.cpu().double()) for layer in (parts.recon, parts.align))
    return Dense(
        in_features=recon[0].shape[1],
        out_features=align[0].shape[0],
        activation_function=nn.Identity(),
        init_weight=(align[0] @ recon[0]).float(),
        init_bias=(align[0] @ recon[1] + align[1]).float(),
    )


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
