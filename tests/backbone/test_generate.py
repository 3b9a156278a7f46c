"""Writing text, against one row at a time, decoded greedily by full passes without a cache.

Shared prefixes and soft prompts are in tests/test_optimisations.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import token_batch
from afterword.backbone.generate import Generated, Sampling, _nucleus, generate
from afterword.errors import InputError
from tests.world import EOS, KINDS, embedded, make_backbone, naive_answer, random_rows

CPU = torch.device("cpu")
WIDTH = 32
SHARED = tuple(random_rows([6], seed=5)[0])
LENGTHS = (30, 11, 19, 1)


def naive(
    backbone: Backbone, rows: Sequence[Sequence[int]], limit: int, stops: Collection[int]
) -> list[tuple[list[int], bool]]:
    return [naive_answer(backbone.model, embedded(backbone.model, row), limit, stops) for row in rows]


def written(answers: Sequence[Generated]) -> list[tuple[list[int], bool]]:
    return [(answer.ids, answer.ended) for answer in answers]


def stops_that_end_rows_at_different_times(answers: Sequence[tuple[list[int], bool]]) -> set[int]:
    """Given answers that nothing stops: tokens that would cut one of them early and another one late."""
    return {answers[0][0][2], answers[1][0][7]}


@pytest.mark.parametrize("kind", KINDS)
def test_batched_answers_equal_one_by_one(kind: str) -> None:
    backbone, rows = make_backbone(kind), random_rows(LENGTHS)
    stops = stops_that_end_rows_at_different_times(naive(backbone, rows, 12, ()))
    wanted = naive(backbone, rows, 12, stops)
    assert len({len(ids) for ids, _ in wanted}) > 1  # rows leave the batch while others go on
    assert written(generate(backbone, token_batch(rows, CPU), Sampling(12), stops)) == wanted


@pytest.mark.parametrize("window", [24, 31, 40, 60])
def test_answers_that_grow_past_the_window(window: int) -> None:
    """6 shared, 15 of the longest row, 25 new ones are 46: windows that end in the text, in the answer, and never."""
    backbone, rows = make_backbone("gemma3_text", sliding_window=window), random_rows((15, 4))
    wanted = naive(backbone, [[*SHARED, *row] for row in rows], 25, ())
    assert written(generate(backbone, token_batch(rows, CPU, SHARED), Sampling(25), ())) == wanted


def test_pad_and_end_may_be_the_same_token() -> None:
    """C23: padding is known by its place. Id 0 pads a batch; here it also ends answers, and stands in a text."""
    backbone = make_backbone("llama")
    rows = [[0, *random_rows([9])[0], 0, 0], *random_rows((3,))]
    ends = naive(backbone, rows, 8, ())
    assert written(generate(backbone, token_batch(rows, CPU), Sampling(8), {0})) == naive(backbone, rows, 8, {0})
    assert written(generate(backbone, token_batch(rows, CPU), Sampling(8), ())) == ends


def test_the_end_token_is_no_part_of_an_answer() -> None:
    backbone, rows = make_backbone("llama"), random_rows((8,))
    (free, _), *_ = naive(backbone, rows, 6, ())
    first = free[0]
    assert generate(backbone, token_batch(rows, CPU), Sampling(6), {first}) == [Generated([], True)]
    stop = next(token for token in free if token != first)
    kept = free[: free.index(stop)]
    assert generate(backbone, token_batch(rows, CPU), Sampling(6), {stop}) == [Generated(kept, True)]


def test_an_answer_that_ends_just_at_the_limit_has_ended() -> None:
    """The limit does not count the end token, so an answer of exactly that many tokens is whole, not cut."""
    backbone, rows = make_backbone("llama"), random_rows((8,))
    (free, _), *_ = naive(backbone, rows, 30, ())
    stop_at = next(i for i in range(1, 30) if free[i] not in free[:i])
    stop = {free[stop_at]}
    batch = token_batch(rows, CPU)
    assert generate(backbone, batch, Sampling(stop_at), stop) == [Generated(free[:stop_at], True)]
    assert generate(backbone, batch, Sampling(stop_at - 1), stop) == [Generated(free[: stop_at - 1], False)]


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_no_answer_is_longer_than_the_limit(limit: int) -> None:
    answers = generate(make_backbone("llama"), token_batch(random_rows(LENGTHS), CPU), Sampling(limit), {EOS})
    assert max(len(answer.ids) for answer in answers) == limit


def test_rows_that_end_are_not_computed_any_further() -> None:
    backbone, rows = make_backbone("llama"), random_rows((9, 8, 7))
    free = naive(backbone, rows, 10, ())
    stops = stops_that_end_rows_at_different_times(free)
    wanted = naive(backbone, rows, 10, stops)
    fed: list[int] = []
    backbone.body.register_forward_pre_hook(
        lambda _, __, arguments: fed.append(arguments["inputs_embeds"].shape[0]), with_kwargs=True
    )
    generate(backbone, token_batch(rows, CPU), Sampling(10), stops)
    # Each token of an answer is fed once; after the text itself, that is all.
    assert sum(fed) == 3 + sum(len(ids) for ids, _ in wanted)


def sample(rows: Sequence[Sequence[int]], seeds: Sequence[int], temperature: float = 1.0) -> list[list[int]]:
    sampling = Sampling(10, temperature=temperature, top_p=0.9)
    return [a.ids for a in generate(make_backbone("llama"), token_batch(rows, CPU), sampling, {EOS}, seeds)]


def test_a_drawn_answer_depends_on_its_seed_only() -> None:
    rows = random_rows((9, 5, 14))
    together = sample(rows, (1, 2, 3))
    assert sample(rows, (1, 2, 3)) == together
    assert sample(rows[::-1], (3, 2, 1)) == together[::-1]
    assert [sample([row], (seed,))[0] for row, seed in zip(rows, (1, 2, 3), strict=True)] == together


def test_another_seed_draws_another_answer() -> None:
    rows = random_rows((9, 5, 14))
    assert sample(rows, (1, 2, 3)) != sample(rows, (4, 5, 6))
    one, other = sample([rows[0], rows[0]], (1, 2))
    assert one != other


def test_drawing_leaves_the_global_random_numbers_alone() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    sample(random_rows((4,)), (1,))
    assert torch.equal(torch.rand(3), wanted)


def test_a_low_temperature_is_nearly_greedy() -> None:
    backbone, rows = make_backbone("llama"), random_rows((9, 5))
    assert sample(rows, (1, 2), temperature=1e-4) == [ids for ids, _ in naive(backbone, rows, 10, {EOS})]


def test_drawn_tokens_come_as_often_as_they_are_likely() -> None:
    backbone, rows = make_backbone("llama"), random_rows((4,)) * 400
    with torch.no_grad():
        logits = backbone.model(torch.tensor(rows[:1])).logits[0, -1]
    answers = generate(backbone, token_batch(rows, CPU), Sampling(1, temperature=0.6), (), range(400))
    counts = torch.bincount(torch.tensor([answer.ids[0] for answer in answers]), minlength=300)
    chances = torch.softmax(logits / 0.6, dim=-1)
    likely = chances > 0.02
    assert likely.sum() > 3
    spread = (chances * (1 - chances) / 400).sqrt()
    assert ((counts / 400 - chances).abs() < 4 * spread + 0.003)[likely].all()


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [
        (1.0, [0.1, 0.4, 0.2, 0.3]),
        (0.95, [0.1, 0.4, 0.2, 0.3]),  # .4 + .3 + .2 are .9 and do not reach it
        (0.85, [0.0, 0.4, 0.2, 0.3]),
        (0.65, [0.0, 0.4, 0.0, 0.3]),
        (0.35, [0.0, 0.4, 0.0, 0.0]),
        (1e-9, [0.0, 0.4, 0.0, 0.0]),  # the likeliest always stays
    ],
)
def test_nucleus_hand_worked(top_p: float, kept: list[float]) -> None:
    assert torch.equal(_nucleus(torch.tensor([[0.1, 0.4, 0.2, 0.3]]), top_p), torch.tensor([kept]))


def test_nucleus_takes_each_row_for_itself() -> None:
    chances = torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]])
    assert torch.equal(_nucleus(chances, 0.65), torch.tensor([[0.7, 0.0, 0.0], [0.3, 0.0, 0.4]]))


def test_nothing_outside_the_nucleus_is_drawn() -> None:
    backbone, rows = make_backbone("llama"), random_rows((4,)) * 200
    with torch.no_grad():
        chances = torch.softmax(backbone.model(torch.tensor(rows[:1])).logits[0, -1], dim=-1)
    order = chances.argsort(descending=True)
    size = int((chances[order].cumsum(0) < 0.5).sum()) + 1
    answers = generate(backbone, token_batch(rows, CPU), Sampling(1, temperature=1.0, top_p=0.5), (), range(200))
    drawn = {answer.ids[0] for answer in answers}
    assert len(drawn) > 1
    assert drawn <= set(order[:size].tolist())


def with_rules(
    backbone: Backbone, row: list[int], limit: int, penalty: float, least: int, stops: set[int]
) -> list[int]:
    """Greedy by full passes, with transformers' own processor over what was written."""
    written: list[int] = []
    while len(written) < limit:
        with torch.no_grad():
            logits = backbone.model(torch.tensor([[*row, *written]])).logits[:, -1]
        if len(written) < least:
            logits[:, list(stops)] = -torch.inf
        if written:
            logits = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([written]), logits)
        token = int(logits.argmax())
        if token in stops:
            break
        written.append(token)
    return written


@pytest.mark.parametrize("penalty", [1.0, 1.3, 4.0])
def test_tokens_already_written_are_penalised_as_transformers_does(penalty: float) -> None:
    backbone, rows = make_backbone("llama"), random_rows((4, 9, 2))
    found = generate(backbone, token_batch(rows, CPU), Sampling(12, repetition_penalty=penalty), {EOS})
    wanted = [with_rules(backbone, row, 12, penalty, 0, {EOS}) for row in rows]
    assert [answer.ids for answer in found] == wanted
    if penalty == 4.0:
        assert all(len(set(ids)) == len(ids) for ids in wanted)


@pytest.mark.parametrize("least", [0, 1, 3])
def test_no_answer_ends_before_its_least_length(least: int) -> None:
    backbone, rows = make_backbone("qwen3"), random_rows((4, 9, 2))
    first = [with_rules(backbone, row, 1, 1.0, 0, set())[0] for row in rows]
    stops = {EOS, *first}  # each row would end at once
    found = generate(backbone, token_batch(rows, CPU), Sampling(8, min_new_tokens=least), stops)
    wanted = [with_rules(backbone, row, 8, 1.0, least, stops) for row in rows]
    assert [answer.ids for answer in found] == wanted
    assert min(map(len, wanted)) == least or least > 0
    assert all(len(ids) >= least for ids in wanted)


def test_nothing_to_continue_is_said() -> None:
    backbone = make_backbone("qwen3", bos=False)
    with pytest.raises(InputError, match="nothing to continue"):
        generate(backbone, token_batch([[], []], backbone.device), Sampling(3), {EOS})
