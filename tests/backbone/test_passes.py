"""States and gradients of the three passes, against plain transformers one row at a time, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import TokenBatch, token_batch
from afterword.backbone.families import FAMILIES, UNKNOWN
from afterword.backbone.passes import frozen_prefix_pass, full_pass, response_pass, text_pass
from tests.world import (
    BOS,
    KINDS,
    embedded,
    make_backbone,
    make_model,
    make_tokenizer,
    random_rows,
    random_vectors,
    reference_states,
    weights_of,
    with_tokenizer,
)

CPU = torch.device("cpu")
WIDTH = 32
SHARED = tuple(random_rows([7], seed=5)[0])
LENGTHS = {
    "padded": (30, 11, 19),
    "unpadded": (23, 23),
    "alone": (40,),
    "with an empty row": (12, 0, 5),
    "in groups": (2, 40, 1, 6, 38, 0, 12),
    "empty": (0, 0),
}
PASSES = {"full": full_pass, "frozen": frozen_prefix_pass}
Pass = Callable[[Backbone, TokenBatch, Tensor], Tensor]


def test_there_is_a_tiny_model_of_every_family_in_the_table() -> None:
    assert set(FAMILIES) <= set(KINDS)


def state_and_gradient(run: Callable[[Tensor], Tensor], count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """States of appended vectors, and the gradient of some weighted sum of them."""
    tail = random_vectors(4, WIDTH, seed=1, dtype=dtype).requires_grad_()
    states = run(tail)
    (states * random_vectors(count, 4, WIDTH, seed=2, dtype=dtype)).sum().backward()
    assert tail.grad is not None
    return states.detach(), tail.grad


def precise(kind: str) -> Backbone:
    """In float64, but for the family that has eager attention only, whose softmax is float32 whatever the rest is."""
    return make_backbone(kind, torch.float32 if kind == "gemma2" else torch.float64)


def assert_same(found: Tensor, wanted: Tensor) -> None:
    tolerance = 1e-9 if found.dtype == torch.float64 else 1e-4
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def check(backbone: Backbone, one_pass: Pass, rows: Sequence[Sequence[int]], shared: tuple[int, ...] = ()) -> None:
    batch = token_batch(rows, CPU, shared)
    states, gradient = state_and_gradient(lambda tail: one_pass(backbone, batch, tail), len(rows), backbone.dtype)
    whole = [[*shared, *row] for row in rows]
    wanted, wanted_gradient = state_and_gradient(
        lambda tail: torch.stack([reference_states(backbone.model, row, tail) for row in whole]),
        len(rows),
        backbone.dtype,
    )
    assert wanted_gradient.abs().max() > 1e-3
    assert_same(states, wanted)
    assert_same(gradient, wanted_gradient)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PASSES)
def test_padded_rows_equal_plain_rows_in_every_family(name: str, kind: str) -> None:
    check(precise(kind), PASSES[name], random_rows(LENGTHS["padded"]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PASSES)
def test_rows_behind_a_shared_prefix_equal_plain_rows_in_every_family(name: str, kind: str) -> None:
    check(precise(kind), PASSES[name], random_rows(LENGTHS["padded"]), SHARED)


@pytest.mark.parametrize("shared", [(), SHARED], ids=["plain", "shared"])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text", "gemma3_text-short"])
@pytest.mark.parametrize("name", PASSES)
def test_batches_of_all_shapes(name: str, kind: str, lengths: Sequence[int], shared: tuple[int, ...]) -> None:
    check(make_backbone(kind, torch.float64), PASSES[name], random_rows(lengths), shared)


@pytest.mark.parametrize("window", range(30, 42))
@pytest.mark.parametrize("name", PASSES)
def test_a_shared_prefix_at_the_edge_of_the_window(name: str, window: int) -> None:
    """7 shared, 25 of the longest row and 4 appended are 36: windows around that, where one too few is seen or not."""
    check(
        make_backbone("gemma3_text", torch.float64, sliding_window=window), PASSES[name], random_rows((25, 2)), SHARED
    )


@pytest.mark.parametrize("shared", [(), SHARED], ids=["plain", "shared"])
@pytest.mark.parametrize("name", PASSES)
def test_an_unknown_family_takes_the_plain_pass(name: str, shared: tuple[int, ...]) -> None:
    """It might not be causal: here text does see what is appended to it, and no prefix can be computed before."""
    backbone = make_backbone("llama", torch.float64)
    backbone.model.config.is_causal = False
    backbone.family = UNKNOWN
    check(backbone, PASSES[name], random_rows((12, 5)), shared)


def test_a_long_shared_prefix_is_one_forward_for_all_batches() -> None:
    backbone = make_backbone("qwen3")
    prefix = tuple(random_rows([50])[0])
    seen: list[int] = []
    backbone.body.register_forward_pre_hook(
        lambda _, __, arguments: seen.append(arguments["inputs_embeds"].shape[:2].numel()), with_kwargs=True
    )
    for seed in range(3):
        with torch.no_grad():
            full_pass(backbone, token_batch(random_rows((5, 3), seed), CPU, prefix), random_vectors(2, WIDTH))
    assert seen == [50, 12, 12, 12]  # 5 + 3 tokens and two learned vectors behind each; nothing is padding


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("starcoder2", "gemma2")])
def test_every_family_that_is_known_runs_packed(kind: str) -> None:
    """Otherwise the other tests would compare the plain way with itself."""
    assert make_backbone(kind).packs


def test_a_family_that_is_not_known_or_another_attention_runs_the_plain_way() -> None:
    """transformers gives Gemma 2 its own attention, which caps scores."""
    assert not make_backbone("starcoder2").packs
    assert not make_backbone("gemma2").packs
    backbone = make_backbone("llama")
    backbone.model.set_attn_implementation("eager")
    assert not backbone.packs


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text"])
def test_whole_texts_are_attended_to_without_a_mask(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that on a GPU torch may take its flash kernel, which knows no mask but the causal one."""
    masks: list[tuple[Tensor | None, bool]] = []
    plain = torch.nn.functional.scaled_dot_product_attention

    def spy(*arguments: Any, **options: Any) -> Tensor:
        masks.append((options.get("attn_mask"), options.get("is_causal", False)))
        return plain(*arguments, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    with torch.no_grad():
        backbone = make_backbone(kind)
        full_pass(backbone, token_batch(random_rows(LENGTHS["padded"]), CPU), random_vectors(4, WIDTH))
        response_pass(backbone, random_vectors(2, 4, WIDTH), random_rows((6, 13)))
    assert masks == [(None, True)] * 2 * backbone.config.num_hidden_layers


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("shared", [(), SHARED], ids=["alone", "behind a prefix"])
def test_text_states_end_to_end_are_those_of_each_row_alone(attention: str, shared: tuple[int, ...]) -> None:
    backbone = make_backbone("llama")
    backbone.model.set_attn_implementation(attention)
    rows = random_rows((7, 1, 4))
    states, kept = text_pass(backbone, token_batch(rows, CPU, shared))
    wanted = [
        backbone.model.base_model(input_ids=torch.tensor([[*shared, *row]])).last_hidden_state[0, len(shared) :]
        for row in rows
    ]
    torch.testing.assert_close(states, torch.cat(wanted), rtol=1e-5, atol=1e-5)
    assert (kept is not None) == (attention == "sdpa")


def test_without_a_packing_the_llm_answers_as_transformers_does() -> None:
    """The attention of a backbone's model is replaced for good; called by anybody else, it must be what it was."""
    ids = torch.tensor(random_rows((9,)))
    plain = make_model("gemma3_text-short")(input_ids=ids).logits
    backbone = make_backbone("gemma3_text-short")
    assert backbone.packs
    assert torch.equal(backbone.model(input_ids=ids).logits, plain)


def test_the_graph_does_not_hold_the_text() -> None:
    """A hundred tokens of text and two learned vectors: what is kept for the backward pass is what the two need."""
    backbone = make_backbone("llama")
    batch = token_batch(random_rows((100, 100)), CPU)

    def kept(one_pass: Pass) -> int:
        sizes: list[int] = []
        tail = random_vectors(2, WIDTH).requires_grad_()
        frozen = {parameter.data_ptr() for parameter in backbone.model.parameters()}

        def note(tensor: Tensor) -> Tensor:
            if tensor.data_ptr() not in frozen:
                sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            one_pass(backbone, batch, tail)
        return sum(sizes)

    assert kept(frozen_prefix_pass) < kept(full_pass) / 4


def test_a_prefix_cached_while_encoding_can_be_trained_behind() -> None:
    """Encoding runs in inference mode, whose tensors autograd refuses; the cached prefix must not be one of them."""
    backbone = make_backbone("llama", torch.float64)
    rows = random_rows((9, 4))
    with torch.inference_mode():
        full_pass(backbone, token_batch(rows, CPU, SHARED), random_vectors(4, WIDTH))
    check(backbone, frozen_prefix_pass, rows, SHARED)


def test_a_trained_pass_leaves_the_cached_prefix_as_it_was() -> None:
    backbone = make_backbone("gemma3_text", torch.float64)
    for lengths in ((9, 4), (3,), (9, 4)):
        check(backbone, frozen_prefix_pass, random_rows(lengths), SHARED)


def test_more_prefixes_than_the_cache_holds() -> None:
    backbone = make_backbone("llama", torch.float64)
    prefixes = [tuple(row) for row in random_rows((3, 5, 4, 6, 2, 7, 3))]
    for prefix in (*prefixes, *prefixes):
        check(backbone, full_pass, random_rows((6, 2)), prefix)


@pytest.mark.parametrize("kind", ["llama", "gemma3_text-short"])
def test_gradient_checkpointing_still_yields_gradients(kind: str) -> None:
    """C50. transformers checkpoints in train mode only, and then drops the cache; a backbone stays in eval mode."""
    model = make_model(kind, torch.float64).train()
    # The second name is that of transformers before 5.24.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable()
    check(Backbone(model, make_tokenizer(), "tiny"), frozen_prefix_pass, random_rows((12, 5)))


def test_no_weight_gets_a_gradient_or_changes() -> None:
    backbone = make_backbone("qwen2", torch.float64)
    before = weights_of(backbone.model)
    check(backbone, frozen_prefix_pass, random_rows((12, 5)))
    assert all(parameter.grad is None for parameter in backbone.model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.model.state_dict().items())


@pytest.mark.parametrize("start", [[BOS], []], ids=["behind BOS", "without BOS"])
@pytest.mark.parametrize("kind", KINDS)
def test_response_states_are_those_that_predict_each_token(kind: str, start: list[int]) -> None:
    """Behind the tokens that begin every text of the LLM, where its tokenizer has any."""
    backbone = with_tokenizer(precise(kind), make_tokenizer(bos=bool(start)))
    responses = random_rows((6, 1, 13), seed=3)
    soft = random_vectors(3, 4, WIDTH, seed=4, dtype=backbone.dtype).requires_grad_()
    weights = random_vectors(20, WIDTH, seed=5, dtype=backbone.dtype)

    states, ids = response_pass(backbone, soft, responses)
    (gradient,) = torch.autograd.grad((states * weights).sum(), soft)

    plain = []
    for prompt, response in zip(soft, responses, strict=True):
        embeds = torch.cat([embedded(backbone.model, start), prompt[None], embedded(backbone.model, response)], dim=1)
        # The last soft vector predicts the first token, and the last token predicts nothing.
        plain.append(
            backbone.model.base_model(inputs_embeds=embeds, use_cache=False).last_hidden_state[0, len(start) + 3 : -1]
        )
    wanted = torch.cat(plain)
    (wanted_gradient,) = torch.autograd.grad((wanted * weights).sum(), soft)

    assert ids.tolist() == [token for response in responses for token in response]
    assert_same(states, wanted)
    assert_same(gradient, wanted_gradient)


def test_responses_of_one_token_each() -> None:
    backbone = make_backbone("llama", torch.float64, bos=False)
    soft = random_vectors(2, 3, WIDTH, dtype=torch.float64)
    states, ids = response_pass(backbone, soft, [[40], [41]])
    wanted = backbone.model.base_model(inputs_embeds=soft, use_cache=False).last_hidden_state[:, -1]
    assert ids.tolist() == [40, 41]
    assert_same(states, wanted)


def test_a_padded_batch_in_bfloat16_is_finite_and_equals_eager() -> None:
    """C09: lengths 1 and 33, a row whose padding sees nothing at all."""
    rows = random_rows((1, 33))
    states = {}
    for attention in ("sdpa", "eager"):
        backbone = make_backbone("llama", torch.bfloat16)
        backbone.model.set_attn_implementation(attention)
        with torch.no_grad():
            states[attention] = full_pass(backbone, token_batch(rows, CPU), random_vectors(3, WIDTH)).float()
    assert states["sdpa"].isfinite().all()
    torch.testing.assert_close(states["sdpa"], states["eager"], rtol=0.05, atol=0.05)
