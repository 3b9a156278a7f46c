"""From responses and targets to token rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from afterword.backbone.backbone import Backbone
from afterword.corpus.records import Response
from afterword.errors import InputError, MissingPartError
from afterword.model.model import Afterword
from afterword.training.examples import Examples, hold_out, make_examples, with_documents
from tests.teachers import vowels
from tests.training.world import SHAPE, corpus, counted_targets
from tests.world import EOS, byte_ids


def response(text: str, cut: bool = False, query: str = "why?") -> Response:
    return Response(text or "empty", query, text, len(text), cut)


def made(backbone: Backbone, folder: Path, *responses: Response, limit: int = 6) -> tuple[Examples, int]:
    model = Afterword.from_backbone(backbone, settings=SHAPE, embedding_dimension=5)
    return make_examples(model, responses, counted_targets(responses, folder), limit)


def test_the_end_token_follows_a_response_that_ended_by_itself(backbone: Backbone, tmp_path: Path) -> None:
    whole, cut, long = response("abc"), response("abd", cut=True), response("abcdefgh")
    exact, nearly = response("uvwxyz"), response("uvwxy")
    examples, skipped = made(backbone, tmp_path, whole, cut, long, exact, nearly)
    assert examples.responses == [
        [*byte_ids("abc"), EOS],
        byte_ids("abd"),
        byte_ids("abcdef"),
        byte_ids("uvwxyz"),
        [*byte_ids("uvwxy"), EOS],
    ]
    assert (len(examples), skipped) == (5, 0)


def test_control_tokens_in_queries_and_responses_are_text(backbone: Backbone, tmp_path: Path) -> None:
    examples, _ = made(backbone, tmp_path, response("<eos>", query="<|im_end|>"), limit=20)
    assert examples.responses == [[*byte_ids("<eos>"), EOS]]
    assert examples.rows == [byte_ids("<|im_end|>")]


def test_long_queries_are_cut_so_that_the_learned_tokens_fit(backbone: Backbone, tmp_path: Path) -> None:
    examples, _ = made(backbone, tmp_path, response("yes", query="q" * 200))
    assert examples.rows == [byte_ids("q" * (60 - 5 - 1))]


def test_each_example_has_its_own_target(backbone: Backbone, tmp_path: Path) -> None:
    texts = ["a bee", "banana", "yes"]
    examples, _ = made(backbone, tmp_path, *map(response, texts))
    assert examples.targets.tolist() == vowels(texts).tolist()
    assert examples.subset([2, 0]).texts == ["yes", "a bee"]
    assert examples.subset([2, 0]).targets.tolist() == vowels(["yes", "a bee"]).tolist()


def test_empty_responses_are_skipped_and_counted(backbone: Backbone, tmp_path: Path) -> None:
    examples, skipped = made(backbone, tmp_path, response(""), response("yes"), response(""))
    assert (examples.ids, skipped) == (["yes"], 2)


def test_nothing_but_empty_responses_is_an_error(backbone: Backbone, tmp_path: Path) -> None:
    model = Afterword.from_backbone(backbone, settings=SHAPE, embedding_dimension=5)
    targets = counted_targets([response("yes")], tmp_path)
    with pytest.raises(InputError, match="none of the 2 responses has any text: there is nothing to train on"):
        make_examples(model, [response(""), response("")], targets, 6)


def test_a_response_without_a_target_is_named(backbone: Backbone, tmp_path: Path) -> None:
    model = Afterword.from_backbone(backbone, settings=SHAPE, embedding_dimension=5)
    targets = counted_targets([response("yes")], tmp_path)
    with pytest.raises(MissingPartError, match="first 'no'"):
        make_examples(model, [response("yes"), response("no")], targets, 6)


def test_held_out_examples_are_kept_as_the_corpus_grows(backbone: Backbone, tmp_path: Path) -> None:
    examples, _ = made(backbone, tmp_path, *corpus(16))
    few = examples.subset(range(10))
    training, held = hold_out(few, 3, seed=0)
    assert len(held) == 3
    assert sorted(training.ids + held.ids) == sorted(few.ids)
    _, more = hold_out(examples, 5, seed=0)
    old = set(more.ids) & set(few.ids)
    assert old
    assert old <= set(held.ids) or set(held.ids) <= old
    assert set(hold_out(examples.subset(range(15, -1, -1)), 5, seed=0)[1].ids) == set(more.ids)
    assert set(hold_out(examples, 5, seed=1)[1].ids) != set(more.ids)


def test_holding_out_everything_is_refused(backbone: Backbone, tmp_path: Path) -> None:
    examples, _ = made(backbone, tmp_path, *corpus(4))
    assert len(hold_out(examples, 3, 0)[0]) == 1
    with pytest.raises(InputError, match="validation is 4, but there are only 4 responses: hold out fewer"):
        hold_out(examples, 4, 0)


def test_holding_out_nothing_leaves_all(backbone: Backbone, tmp_path: Path) -> None:
    examples, _ = made(backbone, tmp_path, *corpus(4))
    training, held = hold_out(examples, 0, 0)
    assert (training.ids, len(held)) == (examples.ids, 0)


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.25, 2), (0.5, 4), (1.0, 8)])
def test_a_share_of_the_responses_is_shown_as_documents(
    share: float, count: int, backbone: Backbone, tmp_path: Path
) -> None:
    examples, _ = made(backbone, tmp_path, *corpus(8), limit=24)
    model = Afterword.from_backbone(backbone, settings=SHAPE, embedding_dimension=5)
    both = with_documents(model, examples, share, seed=0)
    assert len(both) == 8 + count
    assert (both.ids[:8], both.rows[:8]) == (examples.ids, examples.rows)
    for place in range(8, 8 + count):
        source = examples.ids.index(both.ids[place].removesuffix("#document"))
        text = examples.texts[source]
        assert both.rows[place] == byte_ids(f"Summarize the following passage: {text}")[: 60 - 5 - 1]
        assert (both.responses[place], both.texts[place]) == (examples.responses[source], text)
        assert torch.equal(both.targets[place], examples.targets[source])


def test_documents_have_the_prompt_of_the_model(backbone: Backbone, tmp_path: Path) -> None:
    examples, _ = made(backbone, tmp_path, *corpus(2), limit=24)
    model = Afterword.from_backbone(backbone, settings=SHAPE, embedding_dimension=5)
    own = Afterword(backbone, model.parts, replace(model.config, prompts={"document": "text: "}))
    assert byte_ids(f"text: {corpus(1)[0].text}") in with_documents(own, examples, 1.0, seed=0).rows
