"""Operations by the lengths of what goes through, written out token by token."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterword.backbone.cost import Cost
from afterword.bench.counted import encoding_flops, sample_flops, shared_flops, writing_flops
from afterword.model.model import Afterword
from afterword.training.examples import make_examples
from tests.training.world import LIMIT, SHAPE, corpus, counted_targets, quick, response_ids
from tests.world import byte_ids, make_backbone

K, N = 5, 3


def keys(first: int, last: int) -> int:
    """Keys that the tokens from one position to another see, themselves counted; positions begin at 1."""
    return sum(range(first, last + 1))


def test_each_text_is_counted_by_its_own_length_and_a_prompt_is_only_looked_at() -> None:
    model = Afterword.from_backbone(make_backbone("llama"), settings=SHAPE)
    cost = Cost.of(model.backbone.model)
    texts, prompt = ["four", "and quite a long one"], "Say in one word: "
    found = encoding_flops(model, texts, prompt)
    before = 1 + len("Say in one word:")  # BOS; the space belongs to the text
    wanted = 0
    for text in texts:
        own = len(byte_ids(" " + text)) + K
        wanted += 2 * cost.body * own + 4 * cost.attention * keys(before + 1, before + own)
    assert found == wanted


def test_a_sample_is_the_mean_over_examples_and_shares(tmp_path: Path) -> None:
    model = Afterword.from_backbone(make_backbone("llama"), settings=SHAPE, embedding_dimension=5)
    examples, _ = make_examples(model, corpus(3), counted_targets(corpus(3), tmp_path), LIMIT)
    cost, align, recon, head = Cost.of(model.backbone.model), 0.0, 0.0, 0.0
    for response in corpus(3):
        q, r = len(byte_ids(response.query)), len(response_ids(response))
        looks = keys(2, 1 + q) + 2 * keys(2 + q, 1 + q + K) + keys(1, K)
        align += (2 * cost.body * (q + 2 * K) + 4 * cost.attention * looks) / 3
        recon += (4 * cost.body * (N + r) + 3 * 4 * cost.attention * keys(1, N + r)) / 3
        head += 4 * cost.head * r / 3
    for settings, share, positions in (
        (quick(), 1.0, 1.0),
        (quick(recon_share=0.5, recon_every=2), 0.25, 1.0),
        (quick(recon_share=0.5, position_share=0.25), 0.5, 0.25),
        (quick(w_recon=0.0), 0.0, 1.0),
    ):
        wanted = align + share * (recon + positions * head)
        assert sample_flops(model, examples, settings) == pytest.approx(wanted)
    assert shared_flops(model) == 2 * cost.body + 4 * cost.attention  # BOS


def test_what_is_written_sees_its_prompt() -> None:
    backbone = make_backbone("llama")
    cost = Cost.of(backbone.model)
    body, attention = 2 * cost.body * (6 + 2 + 4 + 1), 4 * cost.attention * (keys(4, 11) + keys(4, 8))
    assert writing_flops(backbone, [6, 4], [2, 1], shared=3) == body + attention + 2 * cost.head * 3
