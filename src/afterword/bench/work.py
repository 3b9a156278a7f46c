"""Work of a known size: queries and responses whose lengths spread around what was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from afterword.backbone.backbone import Backbone
from afterword.backbone.text import TextTokenizer
from afterword.errors import SettingError
from afterword.flow.inputs import demo_file


@dataclass(frozen=True)
class Work:
    """Pairs to train on or encode.

    Attributes:
        queries: Texts of about the length asked for.
        responses: The same.
    """

    queries: list[str]
    responses: list[str]


def make_work(backbone: Backbone, count: int, query_tokens: int, response_tokens: int, seed: int = 0) -> Work:
    """Cut texts from the demo's queries and documents, with this LLM's own tokenizer.

    Lengths are drawn evenly between half and one and a half of what is asked for, so that batches need padding as real
    ones do.

    Raises:
        SettingError: A number is below 1.
    """
    for name, value in (("items", count), ("query tokens", query_tokens), ("response tokens", response_tokens)):
        if value < 1:
            raise SettingError(f"{value} {name}: at least 1 is needed")
    text = backbone.text
    return Work(cut_texts(text, count, query_tokens, seed), cut_texts(text, count, response_tokens, seed + 1))


def cut_texts(text: TextTokenizer, count: int, tokens: int, seed: int, spread: float = 0.5) -> list[str]:
    """Cut texts of about so many tokens, evenly spread around them by a share."""
    draw, stream = Random(seed), text.plain([_words()])[0]
    texts = []
    for _ in range(count):
        length = draw.randint(max(1, round(tokens * (1 - spread))), max(1, round(tokens * (1 + spread))))
        start = draw.randrange(len(stream))
        texts.append(text.decode([stream[(start + i) % len(stream)] for i in range(length)]))
    return texts


def _words() -> str:
    return " ".join(demo_file(name).read_text(encoding="utf-8") for name in ("queries.jsonl", "documents.jsonl"))
