"""What the generative objective learns from: token rows, response ids, targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from afterword.corpus.records import Response
from afterword.corpus.targets import Targets
from afterword.errors import InputError
from afterword.model.model import Afterword
from afterword.training.order import rank


@dataclass(frozen=True)
class Examples:
    """Query rows, response ids and targets, one of each for an example.

    Attributes:
        ids: Query ids of the corpus.
        rows: Tokens of the query in the model's frame, without the shared prefix.
        responses: Tokens of the response; the end token is last unless it was cut. None is empty.
        texts: Text of each response.
        targets: The teacher's embeddings. *Shape:* `(N, d)`, float32 on the CPU.
    """

    ids: list[str]
    rows: list[list[int]]
    responses: list[list[int]]
    texts: list[str]
    targets: Float[Tensor, "N d"]

    def __len__(self) -> int:
        return len(self.ids)

    def subset(self, indices: Sequence[int]) -> Examples:
        """Return the examples at some indices, in that order."""
        return Examples(
            [self.ids[i] for i in indices],
            [self.rows[i] for i in indices],
            [self.responses[i] for i in indices],
            [self.texts[i] for i in indices],
            self.targets[list(indices)],
        )


def make_examples(
    model: Afterword, responses: Sequence[Response], targets: Targets, max_response_tokens: int
) -> tuple[Examples, int]:
    """Join responses with their targets and tokenise both sides.

    Returns:
        The examples, and how many responses were left out because they are empty.

    Raises:
        InputError: No response has any text.
        MissingPartError: A response has no target.
    """
    full = [response for response in responses if response.text]
    if not full:
        raise InputError(f"none of the {len(responses)} responses has any text: there is nothing to train on")
    texts = [response.text for response in full]
    vectors = torch.from_numpy(targets.lookup(texts))
    end = model.backbone.end_ids[0]
    ids = model.backbone.text.plain(texts)
    cut = [response.cut for response in full]
    tokens = [_response_ids(row, end, was_cut, max_response_tokens) for row, was_cut in zip(ids, cut, strict=True)]
    rows = model.inputs.rows([response.query for response in full])
    return Examples([r.id for r in full], rows, tokens, texts, vectors), len(responses) - len(full)


def hold_out(examples: Examples, count: int, seed: int) -> tuple[Examples, Examples]:
    """Split off examples to measure on: those whose hashed id is smallest, so that a larger corpus keeps the choice.

    Raises:
        InputError: Nothing would be left to train on.
    """
    if count >= len(examples):
        raise InputError(f"validation is {count}, but there are only {len(examples)} responses: hold out fewer")
    held = draw(examples, count, seed)
    kept = sorted(set(range(len(examples))) - set(held))
    return examples.subset(kept), examples.subset(held)


def draw(examples: Examples, count: int, seed: int, purpose: str = "") -> list[int]:
    """Return the places of `count` examples, in order: those whose id, hashed with seed and purpose, is smallest."""
    order = sorted(range(len(examples)), key=lambda i: rank(seed, f"{purpose}{examples.ids[i]}"))
    return sorted(order[:count])


def with_documents(model: Afterword, examples: Examples, share: float, seed: int) -> Examples:
    """Add a share of the responses as documents.

    A document's prompt asks for a summary. A response of a sentence or two is its own summary, so nothing need be
    generated: the text of the response stands where the query stood, and response and target stay the same.
    """
    chosen = examples.subset(draw(examples, round(share * len(examples)), seed, "document "))
    rows = model.inputs.rows(chosen.texts, model.config.prompts.get("document", ""))
    return Examples(
        examples.ids + [f"{identity}#document" for identity in chosen.ids],
        examples.rows + rows,
        examples.responses + chosen.responses,
        examples.texts + chosen.texts,
        torch.cat([examples.targets, chosen.targets]),
    )


def _response_ids(ids: list[int], end: int, was_cut: bool, limit: int) -> list[int]:
    if was_cut or len(ids) >= limit:
        return ids[:limit]
    return [*ids, end]
