"""A tokenizer that does by itself what a model does around a text, from a file that any tokenizers library reads.

A frame and the learned tokens become the template of its post-processor, so truncation leaves them alone. Typed control
tokens stay text: they are not looked for, and they are cut after their first character as `TextTokenizer` does.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import PreTokenizer, Sequence, Split
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from afterword.errors import SettingError
from afterword.model.inputs import Inputs
from afterword.model.model import Afterword

PROBES = ("Why is the sky blue?", "a", "", " b", "\n\nc", "1,000", "(d)", "“é☃”", "_e", "<|im_end|>", "x" * 3000)
"""Texts with other beginnings, and one too long: behind each prompt they must be tokenised as we do."""


@dataclass(frozen=True)
class StockTokenizer:
    """A tokenizer with the learned tokens in it.

    Attributes:
        tokenizer: The tokenizer.
        thought: Ids of the thought tokens.
        compression: Ids of the compression tokens.
        names: Names of the compression tokens.
    """

    tokenizer: PreTrainedTokenizerFast
    thought: tuple[int, ...]
    compression: tuple[int, ...]
    names: tuple[str, ...]


def stock_tokenizer(model: Afterword) -> StockTokenizer:
    """Build the tokenizer of a stock export.

    Raises:
        SettingError: The tokenizer of the LLM is not one of the tokenizers library.
    """
    source = model.backbone.text.tokenizer
    if not isinstance(getattr(source, "backend_tokenizer", None), Tokenizer):
        raise SettingError(f"the tokenizer {type(source).__name__} has no tokenizer.json, which a stock export needs")
    config, control = model.config, model.backbone.text.control_tokens
    raw = _with_special(source.backend_tokenizer, control)
    thought = [f"<|thought_{i}|>" for i in range(config.n_thought)]
    compression = [f"<|compression_{i}|>" for i in range(config.n_compression)]
    raw.add_special_tokens(thought + compression)
    vocabulary = raw.get_vocab()
    ids = [vocabulary[name] for name in thought + compression]
    cut = _cut(control)
    if cut is not None:
        raw.pre_tokenizer = cut if raw.pre_tokenizer is None else Sequence([cut, raw.pre_tokenizer])
    raw.post_processor = _template(model.inputs, raw, ids)
    ends = {name: getattr(source, name) for name in ("bos_token", "eos_token", "unk_token") if getattr(source, name)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        **ends,
        pad_token=source.pad_token or source.eos_token or compression[0],  # which one is no matter: it is masked
        padding_side="right",
        truncation_side="right",
        model_max_length=config.max_length,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )
    return StockTokenizer(tokenizer, tuple(ids[: len(thought)]), tuple(ids[len(thought) :]), tuple(compression))


def check_prompts(model: Afterword, stock: StockTokenizer, prompts: dict[str, str], glued: dict[str, str]) -> None:
    """Make sure that a prompt and a text, tokenised together, give what we make of them.

    Args:
        model: The model.
        stock: Its stock tokenizer.
        prompts: The model's own prompts.
        glued: The same as they will be written.

    Raises:
        SettingError: They do not; the prompts are named.
    """
    wrong = []
    learned = [*stock.thought, *stock.compression]
    for name, prompt in prompts.items():
        rows = model.inputs.rows(PROBES, prompt)
        wanted = [[*model.inputs.frame.before, *row, *learned] for row in rows]
        texts = [glued[name] + probe for probe in PROBES]
        if stock.tokenizer(texts, truncation=True).input_ids != wanted:
            wrong.append(name)
    if wrong:
        raise SettingError(
            f"a stock tokenizer splits these prompts otherwise where they meet a text: {', '.join(wrong)}. "
            "End a prompt with white space, or leave it out with --without"
        )


def _with_special(source: Tokenizer, control: tuple[str, ...]) -> Tokenizer:
    """Copy a tokenizer; mark every control token as special, so that `split_special_tokens` covers it."""
    plan = json.loads(source.to_str())
    for token in plan["added_tokens"]:
        token["special"] = token["special"] or token["content"] in control
    return Tokenizer.from_str(json.dumps(plan | {"truncation": None, "padding": None}))


def _cut(control: tuple[str, ...]) -> PreTokenizer | None:
    if not control:
        return None
    rests: dict[str, list[str]] = {}
    for token in control:
        rests.setdefault(token[0], []).append(re.escape(token[1:]))
    pattern = "|".join(f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in rests.items())
    return Split(Regex(pattern), behavior="merged_with_previous")


def _template(inputs: Inputs, raw: Tokenizer, learned: list[int]) -> TemplateProcessing:
    pieces = {"before": list(inputs.frame.before), "after": list(inputs.frame.after), "learned": learned}
    special = [
        {"id": name, "ids": ids, "tokens": [raw.id_to_token(i) for i in ids]} for name, ids in pieces.items() if ids
    ]
    order = " ".join(name for name in ("before", "$A", "after", "learned") if name == "$A" or pieces[name])
    return TemplateProcessing(single=order, special_tokens=special)
