"""Measures on held-out examples, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from afterword.model.model import Afterword
from afterword.training.alignment import alignment_unit
from afterword.training.examples import make_examples
from afterword.training.validation import retrieval_accuracy, validate
from tests.teachers import vowels
from tests.training.world import SHAPE, Reference, corpus, counted_targets, quick, response_ids
from tests.world import make_backbone


def test_retrieval_by_hand() -> None:
    """The first points at its own target, the second at the first's, the third lies nearest to its own."""
    targets = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, -1.0]])
    embeddings = torch.tensor([[1.0, 0.1], [5.0, 1.0], [-0.1, -0.2]])
    assert retrieval_accuracy(embeddings, targets) == pytest.approx(2 / 3)


def test_length_does_not_decide_what_is_nearest() -> None:
    targets = torch.tensor([[1.0, 0.0], [100.0, 100.0]])
    assert retrieval_accuracy(torch.tensor([[0.5, 0.1], [0.1, 0.1]]), targets) == 1.0


def test_equal_targets_count_as_one() -> None:
    targets = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    assert retrieval_accuracy(torch.tensor([[1.0, 0.9], [1.0, 1.1], [0.9, 1.0]]), targets) == pytest.approx(2 / 3)


@pytest.mark.parametrize("budget", [1, 150, 100_000])
@pytest.mark.parametrize("reduction", ["relative", "mean", "sum"])
def test_measures_equal_those_of_the_plain_formula(reduction: Any, budget: int, tmp_path: Path) -> None:
    backbone, responses = make_backbone("gemma3_text"), corpus(10)
    model = Afterword.from_backbone(backbone, settings=SHAPE, embedding_dimension=5)
    with torch.no_grad():
        model.parts.align.bias += 1.0
    examples, _ = make_examples(model, responses, counted_targets(responses, tmp_path), 24)
    settings = quick(align_reduction=reduction, tokens_per_pass=budget)
    found = validate(model, examples, settings, alignment_unit(examples.targets, reduction))

    reference = Reference.of(backbone.model, dict(model.parts.named_parameters()))
    with torch.no_grad():
        prompts = [reference.soft_prompt(response.query) for response in responses]
        rows = [response_ids(response) for response in responses]
        nats = sum(float(reference.nats(prompt, row)) for prompt, row in zip(prompts, rows, strict=True))
        e = np.stack([reference.embedding(prompt).numpy() for prompt in prompts])
    y = vowels([response.text for response in responses]).astype(np.float64)
    unit = {"sum": 1.0, "mean": 5.0, "relative": y.var(axis=0).sum()}[reduction]
    cosines = e @ y.T / np.linalg.norm(e, axis=1, keepdims=True) / np.maximum(np.linalg.norm(y, axis=1), 1e-12)
    assert found == pytest.approx(
        {
            "recon": nats / sum(map(len, rows)),
            "align": ((e - y) ** 2).sum(axis=1).mean() / unit,
            "cosine": cosines.diagonal().mean(),
            "retrieval": (cosines.diagonal() >= cosines.max(axis=1) - 1e-6).mean(),
        },
        rel=1e-5,
    )
