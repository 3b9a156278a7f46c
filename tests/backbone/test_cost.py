"""Counted operations, against torch's own counter and against published sizes."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from afterword.backbone.batch import token_batch
from afterword.backbone.cost import Cost
from afterword.backbone.passes import frozen_prefix_pass, full_pass, response_pass
from afterword.training.cross_entropy import head_cross_entropy
from tests.world import make_backbone, random_rows, random_vectors

CPU = torch.device("cpu")
MATRIX = ("aten.mm", "aten.addmm", "aten.bmm")
KINDS = ["llama", "qwen3", "gemma3_text"]
Q, K, N, R = 40, 6, 4, 30


def counted(mode: FlopCounterMode) -> int:
    """Operations of matrix products; attention is counted apart."""
    return sum(flops for name, flops in mode.get_flop_counts()["Global"].items() if str(name) in MATRIX)


@pytest.mark.parametrize("kind", KINDS)
def test_encoding_is_counted_as_torch_counts_it(kind: str) -> None:
    backbone = make_backbone(kind, bos=False)
    rows = random_rows((Q, Q // 2))
    with torch.no_grad(), FlopCounterMode(display=False) as mode:
        full_pass(backbone, token_batch(rows, CPU), random_vectors(K, backbone.hidden_size))
    assert counted(mode) == Cost.of(backbone.model).encoding(Q + Q // 2, 2 * K)


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_sample_is_counted_as_torch_counts_it(kind: str) -> None:
    """The frozen prefix, what is learned, the response and the head; the last token of a response predicts nothing."""
    backbone = make_backbone(kind, bos=False)
    tail = random_vectors(K, backbone.hidden_size).requires_grad_()
    responses = random_rows((R,), seed=2)
    with FlopCounterMode(display=False) as mode:
        states = frozen_prefix_pass(backbone, token_batch(random_rows((Q,)), CPU), tail)
        found, ids = response_pass(backbone, states[:, -N:], responses)
        head_cross_entropy(found, ids, backbone.head).sum().backward()
    cost = Cost.of(backbone.model)
    one_token = 2 * cost.forward(1)
    head_backward = 2 * cost.head * R  # an addition in place, which torch's counter leaves out
    assert counted(mode) == cost.training(Q, K, N, R) - one_token - head_backward
    assert cost.naive_training(Q, K, N, R) > cost.training(Q, K, N, R)


def test_writing_takes_each_token_once() -> None:
    cost = Cost(body=100, head=1000, attention=10, kept=8, parameters=1100)
    assert cost.writing(prompt=5, response=3) == 2 * 100 * 8 + 2 * 1000 * 3


def test_attention_grows_with_what_is_seen() -> None:
    """Three tokens alone see 1 + 2 + 3 keys, about 3 · 3 / 2; behind a hundred each sees a hundred more."""
    cost = Cost(body=1, head=1, attention=10, kept=1, parameters=2)
    assert cost.attending(3, 3) == 4 * 10 * 3 * 1.5
    assert cost.attending(3, 103) == pytest.approx(cost.attending(3, 3) + 4 * 10 * 3 * 100)
