"""Compiled layers, against plain transformers one row at a time. Most tests let dynamo trace and compile nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from afterword.backbone import compiled
from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import token_batch
from afterword.backbone.generate import Sampling, generate
from afterword.backbone.passes import FEW, frozen_prefix_pass, full_pass
from afterword.errors import SettingError
from tests.world import embedded, make_backbone, naive_answer, random_rows, random_vectors, reference_states

CPU, WIDTH = torch.device("cpu"), 32
SHARED = tuple(random_rows([FEW + 3], seed=5)[0])
BATCHES = ((9, 4, 17), (11, 11), (40, 8, 3, 5))


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def check_passes(backbone: Backbone, shared: tuple[int, ...] = ()) -> None:
    tail = random_vectors(3, WIDTH)
    for seed, lengths in enumerate(BATCHES):
        rows = random_rows(lengths, seed)
        with torch.no_grad():
            found = full_pass(backbone, token_batch(rows, CPU, shared), tail)
            wanted = torch.stack([reference_states(plain(backbone), [*shared, *row], tail) for row in rows])
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))


def plain(backbone: Backbone) -> torch.nn.Module:
    """The same weights, as transformers has them."""
    return make_backbone(backbone.name.removeprefix("tiny/")).model


def test_traced_layers_give_the_same_states_for_any_lengths() -> None:
    backbone, graphs = make_backbone("qwen3"), CompileCounter()
    backbone.compile(backend=graphs)
    check_passes(backbone)
    check_passes(backbone, SHARED)
    assert 2 <= graphs.frame_count <= 8  # before and behind attention: not one for each layer, nor for each length


def gradient(backbone: Backbone) -> Tensor:
    tail = random_vectors(3, WIDTH).requires_grad_()
    states = frozen_prefix_pass(backbone, token_batch(random_rows((9, 4)), CPU), tail)
    return torch.autograd.grad(states.square().sum(), tail)[0]


def test_training_compiles_the_text_and_nothing_that_has_a_gradient() -> None:
    backbone, graphs = make_backbone("llama"), CompileCounter()
    wanted = gradient(backbone)
    backbone.compile(backend=graphs)
    assert backbone.compiled
    full_pass(backbone, token_batch(random_rows((9, 4)), CPU), random_vectors(3, WIDTH).requires_grad_())
    assert graphs.frame_count == 0
    torch.testing.assert_close(gradient(backbone), wanted, rtol=1e-5, atol=1e-5)
    assert graphs.frame_count > 0


def test_writing_runs_as_before() -> None:
    backbone, graphs, rows = make_backbone("llama"), CompileCounter(), random_rows((9, 4))
    backbone.compile(backend=graphs)
    found = [answer.ids for answer in generate(backbone, token_batch(rows, CPU), Sampling(5), ())]
    assert graphs.frame_count == 0
    model = plain(backbone)
    assert found == [naive_answer(model, embedded(model, row), 5, ())[0] for row in rows]


def test_who_did_not_ask_gets_nothing_compiled() -> None:
    backbone = make_backbone("llama")
    check_passes(backbone)
    assert not backbone.compiled
    assert all(layer._compiled_call_impl is None for layer in backbone.body.layers)


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # torch's own, when it loads its compiler
@pytest.mark.skipif(not any(map(shutil.which, compiled.COMPILERS)), reason="needs a C++ compiler")
def test_compiled_layers_give_the_same_states() -> None:
    backbone = make_backbone("gemma3_text-short")
    backbone.compile()
    check_passes(backbone)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="starcoder2 is not one of them"):
        make_backbone("starcoder2").compile()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiled, "COMPILERS", ("no-such-compiler",))
    with pytest.raises(SettingError, match=r"needs a C\+\+ compiler: install g\+\+"):
        make_backbone("llama").compile()
    monkeypatch.setattr(compiled, "find_spec", lambda _: None)
    with pytest.raises(SettingError, match="needs triton"):
        compiled.compile_layers(torch.nn.Module(), torch.device("cuda"))
