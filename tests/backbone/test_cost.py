"""Counted operations, against torch's own counter and against published sizes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import DynamicCache

from afterword.backbone.backbone import Backbone
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
    """Three tokens alone see 1 + 2 + 3 keys; behind a hundred each sees a hundred more."""
    cost = Cost(body=1, head=1, attention=10, kept=1, parameters=2)
    assert cost.attending(0, 0) == 0
    assert cost.attending(3, 3) == 4 * 10 * (1 + 2 + 3)
    assert cost.attending(3, 103) == 4 * 10 * (101 + 102 + 103)


def test_a_window_bounds_what_is_seen_in_its_layers() -> None:
    """A third of the layers sees everything, the others four tokens."""
    cost = Cost(body=1, head=1, attention=30, kept=1, parameters=2, sliding=20, window=4)
    assert cost.attending(6, 6) == 4 * (10 * 21 + 20 * (1 + 2 + 3 + 4 + 4 + 4))
    assert cost.attending(2, 9) == 4 * (10 * (8 + 9) + 20 * (4 + 4))
    assert cost.attending(2, 4) == 4 * (10 + 20) * (3 + 4)


def attention_in(mode: FlopCounterMode) -> int:
    """Operations of products of batches of matrices: with eager attention these are scores and values, nothing else."""
    return sum(flops for name, flops in mode.get_flop_counts()["Global"].items() if str(name) == "aten.bmm")


def one_by_one(backbone: Backbone, vectors: Tensor, cache: DynamicCache) -> Tensor:
    """Run vectors through plain transformers one after the other, so that no key is computed that is not seen."""
    backbone.model.set_attn_implementation("eager")
    places = torch.arange(len(vectors))[:, None, None] + cache.get_seq_length()
    return torch.cat([backbone.run(v[None, None], None, p, cache) for v, p in zip(vectors, places, strict=True)])


@pytest.mark.parametrize("kind", [*KINDS, "gemma3_text-short"])
def test_attention_is_counted_as_torch_counts_it(kind: str) -> None:
    """Backwards too: there torch also computes gradients of the query's keys and values, which nobody needs."""
    q, s = 11, 9
    backbone = make_backbone(kind)
    cost, width = Cost.of(backbone.model), backbone.hidden_size
    assert cost.window == {"gemma3_text": 128, "gemma3_text-short": 8}.get(kind)
    cache = backbone.new_cache()
    with torch.no_grad(), FlopCounterMode(display=False) as text:
        one_by_one(backbone, random_vectors(q, width), cache)
    assert attention_in(text) == cost.attending(q, q) > 0
    with FlopCounterMode(display=False) as learned:
        one_by_one(backbone, random_vectors(1, width).requires_grad_(), cache).sum().backward()
    unneeded = cost.attending(1, q + 1) - cost.attending(1, 1)
    with FlopCounterMode(display=False) as second:
        one_by_one(backbone, random_vectors(s, width).requires_grad_(), backbone.new_cache()).sum().backward()
    found = attention_in(text) + attention_in(learned) - unneeded + attention_in(second)
    assert found == cost.training_attention(q, 1, 4, s - 4)
