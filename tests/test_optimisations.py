"""Float32 results are unchanged by every optimisation.

Each is listed by name. What it yields is compared, to 1e-5 of the largest number, with a computation that has none of
them: plain transformers, one text at a time, without padding, cache or chunks. Each also shows that it was at work, so
that the plain way is not compared with itself. Fused norms and gates are at work in all of them and in none of the
references; they have tests of their own in `tests/backbone/test_fused.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import TokenBatch, token_batch
from afterword.backbone.generate import Sampling, generate
from afterword.backbone.passes import FEW, frozen_prefix_pass, full_pass, response_pass, worth_sharing
from afterword.model import inputs
from afterword.model.inputs import Inputs
from afterword.model.model import Afterword
from afterword.training import cross_entropy
from afterword.training.cross_entropy import head_cross_entropy
from afterword.training.generative import GenerativeObjective
from tests.model.embedders import framed, make_embedder, reference_matrix
from tests.training.test_generative import objective, random_weights, responses_of
from tests.training.world import Reference, quick, response_ids
from tests.world import (
    BOS,
    VOCABULARY,
    byte_ids,
    embedded,
    make_backbone,
    naive_answer,
    random_rows,
    random_vectors,
    reference_states,
)

Pairs = Iterable[tuple[Tensor, ...]]
"""What was found, what is wanted, and where float32 itself loses more, what the plain way finds in float32."""
Optimisation = Callable[[str, Path, pytest.MonkeyPatch], Pairs]

CPU, WIDTH = torch.device("cpu"), 32
KINDS = ["llama", "qwen3", "gemma3_text", "gemma3_text-short"]  # the last with a window shorter than the texts
LENGTHS = (30, 1, 19, 11)
LONG, SHORT = tuple(random_rows([FEW + 5], seed=5)[0]), tuple(random_rows([FEW - 1], seed=6)[0])
PROMPT = "Say in a few words: "
TEXTS = ["Why is the sky blue?", "a", "Name a river in France, and where it springs.", "café ☃", "", "one two three"]
OPTIMISATIONS: dict[str, Optimisation] = {}


def optimisation(name: str) -> Callable[[Optimisation], Optimisation]:
    """Put a function into the list."""

    def listed(function: Optimisation) -> Optimisation:
        OPTIMISATIONS[name] = function
        return function

    return listed


@contextmanager
def tokens_run(backbone: Backbone) -> Iterator[list[int]]:
    """Note how many tokens go through the layers, padding counted, in each pass."""
    seen: list[int] = []
    hook = backbone.body.register_forward_pre_hook(
        lambda _, __, arguments: seen.append(arguments["inputs_embeds"].shape[:2].numel()), with_kwargs=True
    )
    try:
        yield seen
    finally:
        hook.remove()


def gradient(values: Tensor, of: Tensor) -> Tensor:
    return torch.autograd.grad(values.sum(), of)[0]


def plain_states(backbone: Backbone, rows: Iterable[list[int]], tail: Tensor) -> Tensor:
    return torch.stack([reference_states(backbone.model, row, tail) for row in rows])


@optimisation("rows run end to end")
def packed_rows(kind: str, _: Path, __: pytest.MonkeyPatch) -> Pairs:
    backbone, rows, tail = make_backbone(kind), random_rows(LENGTHS), random_vectors(4, WIDTH)
    with torch.no_grad():
        with tokens_run(backbone) as seen:
            found = full_pass(backbone, token_batch(rows, CPU), tail)
        assert seen == [sum(LENGTHS) + 4 * len(LENGTHS)]  # no padding
        yield found, plain_states(backbone, rows, tail)


@optimisation("the text's keys and values without a graph")
def frozen_prefix(kind: str, _: Path, __: pytest.MonkeyPatch) -> Pairs:
    """States, and the gradient of the appended vectors."""
    backbone, rows = make_backbone(kind), random_rows(LENGTHS)
    weights = random_vectors(len(LENGTHS), 4, WIDTH, seed=2)
    frozen, plain = (random_vectors(4, WIDTH).requires_grad_() for _ in range(2))
    with tokens_run(backbone) as seen:
        found = frozen_prefix_pass(backbone, token_batch(rows, CPU), frozen)
    assert seen == [sum(LENGTHS), 4 * len(LENGTHS)]
    wanted = plain_states(backbone, rows, plain)
    yield found.detach(), wanted.detach()
    yield gradient(found * weights, frozen), gradient(wanted * weights, plain)


@optimisation("a shared prefix where it is worth it")
def tail_behind_a_prefix(kind: str, _: Path, __: pytest.MonkeyPatch) -> Pairs:
    """A long prefix is cached, a short one written into each row."""
    backbone, rows, tail = make_backbone(kind), random_rows(LENGTHS), random_vectors(4, WIDTH)
    for shared, cached in ((LONG, True), (SHORT, False)):
        batch = token_batch(rows, CPU, shared)
        assert bool(worth_sharing(batch).shared) is cached
        with torch.no_grad():
            wanted = plain_states(backbone, [[*shared, *row] for row in rows], tail)
            yield full_pass(backbone, batch, tail), wanted
            yield frozen_prefix_pass(backbone, batch, tail), wanted


def encoded(model: Afterword, prompt: str, batch_size: int) -> Tensor:
    found = model.encode(TEXTS, prompt=prompt, batch_size=batch_size, convert_to_tensor=True)
    assert isinstance(found, Tensor)
    return found


@optimisation("an instruction once a batch")
def shared_instruction(kind: str, _: Path, __: pytest.MonkeyPatch) -> Pairs:
    model = make_embedder(make_backbone(kind))
    wanted = reference_matrix(model, [framed(PROMPT + text, "query") for text in TEXTS])
    rest = sum(len(byte_ids(" " + text)) + model.config.n_tokens for text in TEXTS)
    with tokens_run(model.backbone) as seen:
        yield encoded(model, PROMPT, len(TEXTS)), wanted
        yield encoded(model, PROMPT, len(TEXTS)), wanted
    assert seen == [len(PROMPT), rest, rest]  # BOS and the prompt without its space, once for all batches
    model.inputs = Inputs(model.backbone, model.config, share=False)
    with tokens_run(model.backbone) as seen:
        yield encoded(model, PROMPT, len(TEXTS)), wanted
    assert seen == [rest + len(PROMPT) * len(TEXTS)]


@optimisation("texts of similar length together, in passes of so many tokens")
def length_buckets(kind: str, _: Path, monkeypatch: pytest.MonkeyPatch) -> Pairs:
    model = make_embedder(make_backbone(kind))
    wanted = reference_matrix(model, [framed(text, "query") for text in TEXTS])
    monkeypatch.setitem(inputs.TOKENS_PER_PASS, "cpu", 40)
    with tokens_run(model.backbone) as seen:
        yield encoded(model, "", 4), wanted
    longest = max(len(framed(text, "query")) for text in TEXTS) + model.config.n_tokens
    assert seen[0] == longest > 40 and len(seen) > 2  # a text above the budget stands alone


@optimisation("cross entropy by blocks of the vocabulary")
def blockwise_cross_entropy(kind: str, _: Path, monkeypatch: pytest.MonkeyPatch) -> Pairs:
    """Behind the second pass, with the gradient that reaches the soft prompt."""
    monkeypatch.setitem(cross_entropy.BLOCK, "cpu", VOCABULARY // 7)
    backbone, responses = make_backbone(kind), random_rows(LENGTHS, seed=3)
    blocks, plain = (random_vectors(len(LENGTHS), 3, WIDTH, seed=4).requires_grad_() for _ in range(2))
    states, ids = response_pass(backbone, blocks, responses)
    found, wanted = head_cross_entropy(states, ids, backbone.head), []
    for prompt, response in zip(plain, responses, strict=True):
        vectors = [embedded(backbone.model, [BOS]), prompt[None], embedded(backbone.model, response[:-1])]
        logits = backbone.model(inputs_embeds=torch.cat(vectors, dim=1), use_cache=False).logits[0, -len(response) :]
        wanted.append(torch.nn.functional.cross_entropy(logits, torch.tensor(response), reduction="none"))
    yield found.detach(), torch.cat(wanted).detach()
    yield gradient(found, blocks), gradient(torch.cat(wanted), plain)


@optimisation("a step of training in passes")
def step_in_passes(kind: str, folder: Path, _: pytest.MonkeyPatch) -> Pairs:
    """Loss and gradients of a step, summed over passes, against the paper's formula on each text alone.

    Through two passes of the LLM and back, float32 itself loses up to 2e-5 of the largest number, done plainly too: so
    the plain way in float32 says how much may be lost.
    """
    goal = objective(make_backbone(kind), folder, quick())
    random_weights(goal)
    indices = [0, 3, 5, 7, 8]
    plan = goal.plan(indices, 0)
    losses = [goal.loss(part, plan)[0] for part in ([5, 0], [8], [3, 7])]
    for loss in losses:
        loss.backward()
    exact, single = reference_of(goal), reference_of(goal, torch.float32)
    batch = responses_of(goal.train, indices)
    totals = [sum(plain.losses(batch, {r.id for r in batch}, goal.settings)) for plain in (exact, single)]
    for total in totals:
        total.backward()
    yield torch.stack(losses).sum().detach(), totals[0].detach(), totals[1].detach()
    for name, parameter in goal.trainable().named_parameters():
        yield parameter.grad, exact.weights[name].grad, single.weights[name].grad


def reference_of(goal: GenerativeObjective, dtype: torch.dtype = torch.float64) -> Reference:
    return Reference.of(goal.model.backbone.model, dict(goal.trainable().named_parameters()), dtype=dtype)


@torch.no_grad()
def nats_of_each_token(goal: GenerativeObjective, index: int) -> Tensor:
    """`−log P` of each token of a response, from the differences of longer and longer beginnings of it."""
    reference, (response,) = reference_of(goal), responses_of(goal.train, [index])
    soft_prompt, ids = reference.soft_prompt(response.query), response_ids(response)
    sums = torch.stack([reference.nats(soft_prompt, ids[:count]) for count in range(1, len(ids) + 1)])
    return torch.diff(sums, prepend=torch.zeros(1).double())


@optimisation("reconstruction on every third step")
def recon_every(kind: str, folder: Path, _: pytest.MonkeyPatch) -> Pairs:
    """The mean over three steps is the loss of a step that reconstructs."""
    goal = objective(make_backbone(kind), folder, quick(recon_every=3))
    indices = [0, 3, 5]
    reference, batch = reference_of(goal), responses_of(goal.train, indices)
    with torch.no_grad():
        losses = [goal.loss(indices, goal.plan(indices, step)) for step in range(3, 6)]
        assert ["recon" in named for _, named in losses] == [True, False, False]
        wanted = sum(reference.losses(batch, {response.id for response in batch}, goal.settings))
        yield torch.stack([loss for loss, _ in losses]).mean(), wanted


@optimisation("reconstruction of a share of the responses")
def recon_share(kind: str, folder: Path, _: pytest.MonkeyPatch) -> Pairs:
    """The loss of those that are drawn; and over many steps the mean is the loss of all."""
    goal = objective(make_backbone(kind), folder, quick(recon_share=0.34, recon_reduction="sum"))
    indices = list(range(6))
    nats = [nats_of_each_token(goal, i).sum() for i in indices]
    plans = [goal.plan(indices, step) for step in range(300)]
    estimates = torch.stack([torch.stack([nats[i] for i in plan.rebuilt]).sum() / plan.recon_units for plan in plans])
    with torch.no_grad():
        yield goal.loss(indices, plans[0])[1]["recon"], estimates[0]
    check_unbiased(estimates, torch.stack(nats).mean())


@optimisation("scores of a share of the positions")
def position_share(kind: str, folder: Path, _: pytest.MonkeyPatch) -> Pairs:
    """The weighted loss of those that are drawn; and over many steps the mean is the loss of all."""
    for reduction in ("mean", "sum"):
        settings = quick(position_share=0.3, recon_reduction=reduction)
        goal, indices = objective(make_backbone(kind), folder / reduction, settings), [0, 2]
        nats, units = torch.cat([nats_of_each_token(goal, i) for i in indices]), goal.plan(indices, 0).recon_units
        assert units == {"mean": len(nats), "sum": len(indices)}[reduction]
        draws = [goal._positions(indices, step) for step in range(300)]
        assert all(len(rows) < len(nats) / 2 for rows, _ in draws)
        estimates = torch.stack([(nats[rows] * weights).sum() / units for rows, weights in draws])
        with torch.no_grad():
            yield goal.loss(indices, goal.plan(indices, 0))[1]["recon"], estimates[0]
        check_unbiased(estimates, nats.sum() / units)


def check_unbiased(estimates: Tensor, wanted: Tensor) -> None:
    spread = float(estimates.std()) / len(estimates) ** 0.5
    assert spread > 0
    assert abs(float(estimates.mean() - wanted)) < 4 * spread


def check_answers(backbone: Backbone, given: Tensor | TokenBatch, whole: list[Tensor]) -> None:
    """Twelve tokens of each row, and fewer where a token that some rows write is made an end."""
    free = [naive_answer(backbone.model, row, 12, ())[0] for row in whole]
    stops = {free[0][2], free[1][7]}
    wanted = [naive_answer(backbone.model, row, 12, stops) for row in whole]
    assert len({len(ids) for ids, _ in wanted}) > 1  # rows leave the batch while others go on
    assert [(answer.ids, answer.ended) for answer in generate(backbone, given, Sampling(12), stops)] == wanted


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("kind", [*KINDS, "granite"])
def test_decoding_with_a_cache_writes_what_full_passes_write(kind: str, bos: bool) -> None:
    """From soft prompts, behind the tokens that begin every text of the LLM, where its tokenizer has any."""
    backbone, soft = make_backbone(kind, bos=bos), random_vectors(3, 5, WIDTH)
    with tokens_run(backbone) as seen:
        generate(backbone, soft, Sampling(4), ())
    assert seen == [3 * (5 + bos), 3, 3, 3, 3]  # then one token a row
    start = embedded(backbone.model, [BOS] if bos else [])
    check_answers(backbone, soft, [torch.cat([start, row[None]], dim=1) for row in soft])


@pytest.mark.parametrize("kind", [*KINDS, "starcoder2"])
def test_batched_answers_behind_a_shared_prefix_are_those_of_each_text_alone(kind: str) -> None:
    backbone, rows = make_backbone(kind), random_rows(LENGTHS)
    whole = [embedded(backbone.model, [*LONG, *row]) for row in rows]
    for _ in range(2):  # the second time the prefix comes from the cache, and must be as it was
        check_answers(backbone, token_batch(rows, CPU, LONG), whole)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPTIMISATIONS)
def test_float32_results_are_unchanged(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for found, wanted, *single in OPTIMISATIONS[name](kind, tmp_path, monkeypatch):
        size = float(wanted.abs().max())
        assert size > 1e-3
        rounding = [2 * float((plain.double() - wanted.double()).abs().max()) for plain in single]
        torch.testing.assert_close(
            found.double(), wanted.double(), rtol=0, atol=max(1e-5 * max(1.0, size), *rounding, 0.0)
        )
        compared += 1
    assert compared
