"""Small worlds for tests: tiny random backbones of many families, a byte tokenizer, and plain references.

Nothing here calls the code under test except to put a model and a tokenizer into a `Backbone`. The references run one
row at a time through plain transformers, without padding, cache or position ids.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import jaxtyping
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from afterword.backbone.backbone import Backbone

PAD, EOS, BOS = 0, 1, 2
SPECIAL = ("<pad>", "<eos>", "<bos>", "<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>")
ADDED = ("<think>", "</think>", "<|tool|>", "<table>")  # not marked special; the last is text, not control
CONTROL = (*SPECIAL, "<think>", "</think>", "<|tool|>")
FIRST_BYTE = len(SPECIAL) + len(ADDED)
TOKENIZER_SIZE = FIRST_BYTE + 256
VOCABULARY = 300  # larger than the tokenizer, as in many real models

QWEN_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
GEMMA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)

_SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "initializer_range": 0.3,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "bos_token_id": BOS,
}
_GEMMA = {"head_dim": 8, "query_pre_attn_scalar": 8, "num_hidden_layers": 3, "initializer_range": 0.2}
_LAYERS = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}

# Every row of the table of families, and names with a hyphen for variants. The short window is shorter than most texts
# of the tests, the long one longer than all of them.
KINDS: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": False},
    "mistral": {"sliding_window": 16},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 8, "tie_word_embeddings": True},
    "gemma": {"head_dim": 8, "initializer_range": 0.2},
    "gemma2": {
        **_GEMMA,
        **_LAYERS,
        "sliding_window": 8,
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 5.0,
    },
    "gemma3_text": {**_GEMMA, **_LAYERS, "sliding_window": 128},
    "gemma3_text-short": {**_GEMMA, **_LAYERS, "sliding_window": 8},
    "phi3": {},
    "olmo2": {},
    "smollm3": {"no_rope_layers": [1, 0]},
    "granite": {"logits_scaling": 3.0, "embedding_multiplier": 2.0, "residual_multiplier": 0.7},
    "cohere": {"logit_scale": 0.3},
    "cohere2": {**_LAYERS, "num_hidden_layers": 3, "sliding_window": 8, "logit_scale": 0.3},
    "starcoder2": {},  # a family that the table does not know
}


def byte_ids(text: str) -> list[int]:
    """What the byte tokenizer must make of a text in which nothing is a control token."""
    return [FIRST_BYTE + byte for byte in text.encode("utf-8")]


def make_tokenizer(bos: bool = True, template: str | None = None) -> PreTrainedTokenizerFast:
    """A tokenizer with one token a byte; with `bos` it puts one in front of what it encodes, as Llama and Gemma do."""
    alphabet = _byte_characters()
    names = [*SPECIAL, *ADDED, *(alphabet[byte] for byte in range(256))]
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in ADDED])
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", BOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def make_model(kind: str, dtype: torch.dtype = torch.float32, **changes: Any) -> PreTrainedModel:
    """A copy of a tiny random causal LM that nobody else holds."""
    if changes:
        return _build(kind, dtype, changes)
    return copy.deepcopy(_pristine(kind, dtype))


def make_backbone(
    kind: str = "llama",
    dtype: torch.dtype = torch.float32,
    *,
    bos: bool = True,
    template: str | None = None,
    **changes: Any,
) -> Backbone:
    """A tiny backbone that nobody else holds."""
    return Backbone(make_model(kind, dtype, **changes), make_tokenizer(bos, template), f"tiny/{kind}")


def reference_states(model: PreTrainedModel, row: Sequence[int], tail: Tensor) -> Tensor:
    """Last states of `tail` behind one row of ids. *Shape:* `(tail, hidden)`."""
    embeds = torch.cat([embedded(model, row), tail.to(model.dtype)[None]], dim=1)
    with as_transformers_has_it(model):
        return model.base_model(inputs_embeds=embeds, use_cache=False).last_hidden_state[0, -len(tail) :]


@contextmanager
def as_transformers_has_it(model: PreTrainedModel) -> Iterator[None]:
    """Take away what a `Backbone` has put over the modules of a model, for a reference."""
    ours = [(module, module.__dict__.pop("forward")) for module in model.modules() if "forward" in module.__dict__]
    try:
        yield
    finally:
        for module, forward in ours:
            module.forward = forward


@torch.no_grad()
def naive_answer(model: PreTrainedModel, embeds: Tensor, limit: int, stops: Collection[int]) -> tuple[list[int], bool]:
    """Greedy decoding of one row, `(1, time, hidden)`, by a full pass over everything for each token."""
    written: list[int] = []
    while True:
        with as_transformers_has_it(model):
            token = int(model(inputs_embeds=embeds.to(model.dtype), use_cache=False).logits[0, -1].argmax())
        if token in stops:
            return written, True
        if len(written) == limit:
            return written, False
        written.append(token)
        embeds = torch.cat([embeds, embedded(model, [token])], dim=1)


def embedded(model: PreTrainedModel, row: Sequence[int]) -> Tensor:
    """Input embeddings of one row, *shape* `(1, time, hidden)`."""
    return model.get_input_embeddings()(torch.tensor([list(row)], dtype=torch.long))


def weights_of(model: PreTrainedModel) -> dict[str, Tensor]:
    """A copy of all weights and buffers, to compare with later."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def random_rows(lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    """Rows of byte tokens."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(FIRST_BYTE, TOKENIZER_SIZE, (n,), generator=generator).tolist() for n in lengths]


def random_vectors(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal vectors, drawn in float64 so that both types see the same ones."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@contextmanager
def as_users_run_it() -> Iterator[None]:
    """Switch the argument checks of the test suite off: users do not have them, and must get our own errors."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def with_tokenizer(backbone: Backbone, tokenizer: PreTrainedTokenizerBase) -> Backbone:
    """The same weights behind another tokenizer."""
    return Backbone(backbone.model, tokenizer, backbone.name)


@cache
def _pristine(kind: str, dtype: torch.dtype) -> PreTrainedModel:
    return _build(kind, dtype, {})


def _build(kind: str, dtype: torch.dtype, changes: dict[str, Any]) -> PreTrainedModel:
    family = kind.partition("-")[0]
    config = CONFIG_MAPPING[family](**{**_SMALL, **KINDS[kind], **changes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float64)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:  # norms and biases start at ones and zeros, where mistakes hide
                    parameter += 0.2 * torch.randn_like(parameter)
    return model.to(dtype).eval()


def _byte_characters() -> dict[int, str]:
    """The characters by which byte-level BPE writes bytes: printable ones as they are, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(0x100 + i) for i, b in enumerate(others)}}
