"""Queries in, the LLM's own answers out: prompts built by hand, answers decoded one by one without a cache."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import TokenBatch
from afterword.backbone.generate import Generated
from afterword.corpus import responses as module
from afterword.corpus.records import Query, Response
from afterword.corpus.responses import ResponseCounts, ResponseSettings, generate_responses, open_responses
from afterword.errors import InputError, MismatchError, MissingPartError, SettingError
from afterword.prompts import ANSWER_EXAMPLES
from tests.world import (
    ADDED,
    BOS,
    EOS,
    QWEN_TEMPLATE,
    SPECIAL,
    byte_ids,
    embedded,
    make_backbone,
    make_tokenizer,
    naive_answer,
    with_tokenizer,
)

TEXTS = (
    "Why is the sky blue?",
    "hi",
    "A much longer question, which goes on and on about very little, so that lengths differ",
    "café ☃ 👩‍👩‍👧",
    "What is 2 + 2?",
    "Name a river in France",
    "<|im_end|> and <eos> are text",
)
QUERIES = [Query(f"q{i}", text) for i, text in enumerate(TEXTS)]
NAMES = (*SPECIAL, *ADDED)
NEW_LINE = byte_ids("\n")[0]
THINKING_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


def ids_of(*pieces: str) -> list[int]:
    """Ids of a prompt written in pieces: each is a control token or plain text."""
    return [i for piece in pieces for i in ([NAMES.index(piece)] if piece in NAMES else byte_ids(piece))]


def raw(text: str) -> list[int]:
    return [BOS, *byte_ids(text)]


def naive(backbone: Backbone, text: str, stops: Collection[int]) -> tuple[list[int], bool]:
    return naive_answer(backbone.model, embedded(backbone.model, raw(text)), 12, stops)


def short(**changes: Any) -> ResponseSettings:
    return ResponseSettings(**{"style": "raw", "max_new_tokens": 12, "respond_batch": 3, **changes})


def records(folder: Path) -> dict[str, Response]:
    return {response.id: response for response in open_responses(folder)}


def shard(folder: Path) -> bytes:
    return (folder / "part-00000.jsonl").read_bytes()


class Spy:
    """Stands in for `generate`: notes the prompts and the stop tokens, and answers what it was told to."""

    def __init__(self, *answers: str | tuple[str, ...], ended: bool = True) -> None:
        self.answers = [ids_of(*([answer] if isinstance(answer, str) else answer)) for answer in answers]
        self.ended = ended
        self.prompts: list[list[int]] = []
        self.stops: set[int] = set()

    def __call__(self, backbone: Backbone, start: TokenBatch, sampling: Any, stops: Any, seeds: Any) -> list[Generated]:
        prompts = [[*start.shared, *row[mask.bool()].tolist()] for row, mask in zip(start.ids, start.mask, strict=True)]
        self.prompts += prompts
        self.stops = set(stops)
        return [Generated(self.answers[i % len(self.answers)], self.ended) for i in range(len(prompts))]


def answered(
    monkeypatch: pytest.MonkeyPatch, folder: Path, backbone: Backbone, spy: Spy, settings: ResponseSettings
) -> tuple[list[Response], ResponseCounts]:
    """Let the spy answer two queries of equal length, which keep their order."""
    monkeypatch.setattr(module, "generate", spy)
    counts = generate_responses(backbone, [Query("a", "first?"), Query("b", "second")], folder, settings)
    return open_responses(folder), counts


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text", "gemma3_text-short"])
def test_batched_answers_equal_those_decoded_one_by_one(kind: str, tmp_path: Path) -> None:
    backbone, tokenizer = make_backbone(kind), make_tokenizer()
    stops = {naive(backbone, TEXTS[0], ())[0][2], naive(backbone, TEXTS[2], ())[0][7]}
    backbone.model.generation_config.eos_token_id = list(stops)  # so that answers end at different lengths
    generate_responses(backbone, QUERIES, tmp_path, short(respond_batch=4))
    lengths = set()
    for query in QUERIES:
        ids, ended = naive(backbone, query.text, stops)
        assert not {NAMES.index("<think>"), NAMES.index("</think>")} & set(ids)
        text = tokenizer.decode(ids, skip_special_tokens=True).replace("<|tool|>", "").strip()
        assert records(tmp_path)[query.id] == Response(query.id, query.text, text, len(ids), cut=not ended)
        lengths.add(len(ids))
    assert len(lengths) > 1


def test_raw_style_is_the_query_alone(backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy("ok")
    answered(monkeypatch, tmp_path, backbone, spy, short())
    assert spy.prompts == [raw("first?"), raw("second")]
    assert spy.stops == {EOS}


@pytest.mark.parametrize("style", ["auto", "examples"])
def test_a_base_model_sees_answered_examples(
    style: Any, backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy("ok")
    answered(monkeypatch, tmp_path, backbone, spy, short(style=style))
    examples = "".join(f"Question: {q}\nAnswer: {a}\n\n" for q, a in ANSWER_EXAMPLES.pairs)
    assert spy.prompts == [[BOS, *byte_ids(f"{examples}Question: {text}\nAnswer:")] for text in ("first?", "second")]
    assert spy.stops == {EOS, NEW_LINE}


@pytest.mark.parametrize("style", ["auto", "chat"])
def test_an_instruct_model_sees_its_template_with_thinking_off(
    style: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy("ok")
    backbone = make_backbone("qwen3", bos=False, template=QWEN_TEMPLATE)
    answered(monkeypatch, tmp_path, backbone, spy, short(style=style))
    head, tail = ("<|im_start|>", "user\n"), ("<|im_end|>", "\n", "<|im_start|>", "assistant\n")
    thought = ("<think>", "\n\n", "</think>", "\n\n")
    assert spy.prompts == [ids_of(*head, text, *tail, *thought) for text in ("first?", "second")]
    assert NEW_LINE not in spy.stops


def test_chat_style_without_a_template_is_refused(backbone: Backbone, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no chat template"):
        generate_responses(backbone, QUERIES, tmp_path, short(style="chat"))


def test_the_system_prompt_stands_in_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instruct, base, spy = make_backbone("qwen3", bos=False, template=QWEN_TEMPLATE), make_backbone("llama"), Spy("ok")
    answered(monkeypatch, tmp_path / "chat", instruct, spy, short(style="auto", system="Be brief."))
    start = ids_of("<|im_start|>", "system\nBe brief.", "<|im_end|>", "\n", "<|im_start|>", "user\nfirst?")
    assert spy.prompts[0][: len(start)] == start
    answered(monkeypatch, tmp_path / "examples", base, spy, short(style="auto", system="Be brief."))
    start = [BOS, *byte_ids("Be brief.\n\nQuestion: ")]
    assert spy.prompts[2][: len(start)] == start


def test_long_queries_are_cut_and_the_frame_is_not(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy("ok")
    answered(monkeypatch, tmp_path, backbone, spy, short(style="examples", max_query_tokens=4))
    assert spy.prompts[0][-len(byte_ids(" fir\nAnswer:")) :] == byte_ids(" fir\nAnswer:")


def test_typed_control_tokens_reach_the_model_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy("ok")
    monkeypatch.setattr(module, "generate", spy)
    text = "<|im_end|> <eos> </think>"
    backbone = make_backbone("qwen3", bos=False, template=QWEN_TEMPLATE)
    generate_responses(backbone, [Query("a", text)], tmp_path, short(style="chat"))
    start = [*ids_of("<|im_start|>", "user\n"), *byte_ids(text)]
    assert spy.prompts[0][: len(start)] == start


def test_think_blocks_are_dropped_and_unfinished_ones_counted(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy(("<think>", "x", "</think>", "yes"), ("<think>", "still x"), ended=False)
    found, counts = answered(monkeypatch, tmp_path, backbone, spy, short())
    assert [(response.text, response.cut) for response in found] == [("yes", True), ("", True)]
    assert counts == ResponseCounts(written=2, cut=2, empty=1, unfinished_thinking=1)


def test_think_blocks_are_dropped_where_their_marks_are_special_tokens(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such marks vanish when an answer is decoded without special tokens, and the thinking would stay."""
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([AddedToken(mark, special=True) for mark in ("<think>", "</think>")], special_tokens=True)
    spy = Spy(("<think>", "x", "</think>", "yes"))
    found, _ = answered(monkeypatch, tmp_path, with_tokenizer(backbone, tokenizer), spy, short())
    assert found[0].text == "yes"


def test_a_block_that_the_template_opened_is_thinking_up_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reasoning models whose template ends in `<think>`: an answer without `</think>` is nothing but thinking."""
    spy = Spy(("x is 2", "</think>", "yes"), "x may be 2, or")
    backbone = make_backbone("qwen3", bos=False, template=THINKING_TEMPLATE)
    found, counts = answered(monkeypatch, tmp_path, backbone, spy, short(style="auto"))
    assert spy.prompts[0][-2:] == ids_of("<think>", "\n")
    assert [response.text for response in found] == ["yes", ""]
    assert counts == ResponseCounts(written=2, empty=1, unfinished_thinking=1)


def test_control_tokens_in_an_answer_are_left_out(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy((" fine", "<|tool|>", "<|im_end|>", " thanks ", "<pad>"), ("<|im_start|>", " \n "))
    found, counts = answered(monkeypatch, tmp_path, backbone, spy, short())
    assert [response.text for response in found] == ["fine thanks", ""]
    assert (counts.empty, counts.unfinished_thinking) == (1, 0)


def test_records_are_utf8_lines_with_all_that_training_needs(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(monkeypatch, tmp_path, backbone, Spy("café ☃", "no", ended=False), short())
    lines = shard(tmp_path).decode("utf-8").splitlines()
    assert json.loads(lines[0]) == {"id": "a", "query": "first?", "text": "café ☃", "n_tokens": 9, "cut": True}
    assert "☃" in lines[0]


class Stop(Exception):
    pass


def stop_after(calls: int) -> Any:
    """A progress callback that ends the work at its nth call."""
    seen = []

    def progress(count: int) -> None:
        seen.append(count)
        if len(seen) == calls:
            raise Stop

    return progress


@pytest.mark.parametrize("settings", [short(), short(temperature=1.5, top_p=0.9)], ids=["greedy", "drawn"])
def test_stopped_after_any_batch_and_run_again_the_shards_are_the_same(
    settings: ResponseSettings, backbone: Backbone, tmp_path: Path
) -> None:
    generate_responses(backbone, QUERIES, tmp_path / "whole", settings)
    for calls in (1, 2, 3, 4):
        folder = tmp_path / str(calls)
        with pytest.raises(Stop):
            generate_responses(backbone, QUERIES, folder, settings, stop_after(calls))
        counts = generate_responses(backbone, QUERIES, folder, settings)
        assert (counts.kept, counts.written) == (min(3 * (calls - 1), 7), 7 - min(3 * (calls - 1), 7))
        assert shard(folder) == shard(tmp_path / "whole")


def test_cut_at_any_byte_and_run_again_the_shards_are_the_same(backbone: Backbone, tmp_path: Path) -> None:
    generate_responses(backbone, QUERIES, tmp_path, short())
    whole = shard(tmp_path)
    for size in (0, 1, 40, len(whole) // 2, whole.index("☃".encode()) + 1, len(whole) - 1):
        (tmp_path / "part-00000.jsonl").write_bytes(whole[:size])
        counts = generate_responses(backbone, QUERIES, tmp_path, short())
        assert counts.kept == whole[:size].count(b"\n")
        assert shard(tmp_path) == whole


def test_a_finished_artefact_asks_the_model_nothing(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_responses(backbone, QUERIES, tmp_path, short())
    spy = Spy("no")
    monkeypatch.setattr(module, "generate", spy)
    done: list[int] = []
    counts = generate_responses(backbone, QUERIES, tmp_path, short(), done.append)
    assert counts == ResponseCounts(kept=7)
    assert (spy.prompts, done) == ([], [7])


def test_progress_comes_to_the_number_of_queries(backbone: Backbone, tmp_path: Path) -> None:
    done: list[int] = []
    generate_responses(backbone, QUERIES, tmp_path, short(), done.append)
    assert done == [0, 3, 3, 1]


def test_more_queries_are_added_behind_those_answered(backbone: Backbone, tmp_path: Path) -> None:
    generate_responses(backbone, QUERIES[:4], tmp_path, short())
    before = shard(tmp_path)
    counts = generate_responses(backbone, QUERIES, tmp_path, short())
    assert (counts.kept, counts.written) == (4, 3)
    assert shard(tmp_path).startswith(before)
    generate_responses(backbone, QUERIES, tmp_path / "at once", short())
    assert records(tmp_path) == records(tmp_path / "at once")


def test_fewer_queries_leave_the_others_answered(backbone: Backbone, tmp_path: Path) -> None:
    generate_responses(backbone, QUERIES, tmp_path, short())
    assert generate_responses(backbone, QUERIES[2:4], tmp_path, short()) == ResponseCounts(kept=2)
    assert len(open_responses(tmp_path)) == 7


def test_another_text_under_a_known_id_is_refused(backbone: Backbone, tmp_path: Path) -> None:
    generate_responses(backbone, QUERIES, tmp_path, short())
    changed = [*QUERIES[:1], Query("q1", "hello"), *QUERIES[2:]]
    with pytest.raises(MismatchError, match=r"query q1 was answered as 'hi', now it reads 'hello'.*another --out"):
        generate_responses(backbone, changed, tmp_path, short())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_new_tokens": 5}, "max_new_tokens: it has 12, you asked for 5"),
        ({"system": "Be brief."}, 'system: it has null, you asked for "Be brief."'),
        ({"style": "auto"}, 'style: it has "raw", you asked for "auto"'),
        ({"temperature": 0.5}, "temperature: it has 0.0, you asked for 0.5"),
        ({"respond_batch": 2}, "respond_batch: it has 3, you asked for 2"),
    ],
)
def test_other_settings_are_refused_by_name(
    change: dict[str, Any], words: str, backbone: Backbone, tmp_path: Path
) -> None:
    generate_responses(backbone, QUERIES[:2], tmp_path, short())
    with pytest.raises(MismatchError, match="made in another way") as caught:
        generate_responses(backbone, QUERIES[:2], tmp_path, short(**change))
    assert words in str(caught.value)


def test_another_backbone_is_refused_with_both_fingerprints(backbone: Backbone, tmp_path: Path) -> None:
    generate_responses(backbone, QUERIES[:2], tmp_path, short())
    other = make_backbone("qwen3")
    with pytest.raises(MismatchError, match=r"sources\.backbone") as caught:
        generate_responses(other, QUERIES[:2], tmp_path, short())
    assert backbone.fingerprint in str(caught.value)
    assert other.fingerprint in str(caught.value)


def test_the_seed_of_draws_does_not_matter_to_greedy_answers(backbone: Backbone, tmp_path: Path) -> None:
    generate_responses(backbone, QUERIES[:2], tmp_path, short())
    assert generate_responses(backbone, QUERIES[:2], tmp_path, short(respond_seed=5, top_p=0.5)).kept == 2


def test_drawn_answers_do_not_depend_on_the_batch_but_on_the_seed(backbone: Backbone, tmp_path: Path) -> None:
    drawn = {"temperature": 1.5, "top_p": 0.95}
    for name, changes in {"three": {}, "one": {"respond_batch": 1}, "other": {"respond_seed": 1}}.items():
        generate_responses(backbone, QUERIES, tmp_path / name, short(**drawn, **changes))
    generate_responses(backbone, QUERIES, tmp_path / "greedy", short())
    texts = {name: [r.text for _, r in sorted(records(tmp_path / name).items())] for name in ("three", "one", "other")}
    assert texts["three"] == texts["one"]
    assert texts["three"] != texts["other"]
    assert texts["three"] != [r.text for _, r in sorted(records(tmp_path / "greedy").items())]


def test_equal_texts_under_two_ids_are_drawn_apart(backbone: Backbone, tmp_path: Path) -> None:
    twice = [Query("a", "hello"), Query("b", "hello")]
    generate_responses(backbone, twice, tmp_path, short(temperature=1.5))
    assert records(tmp_path)["a"].text != records(tmp_path)["b"].text


def test_no_queries_make_an_empty_artefact(backbone: Backbone, tmp_path: Path) -> None:
    assert generate_responses(backbone, [], tmp_path, short()) == ResponseCounts()
    assert open_responses(tmp_path) == []


def test_a_query_that_is_no_text_is_named(backbone: Backbone, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="item 1: a lone surrogate"):
        generate_responses(backbone, [Query("a", "fine"), Query("b", "ok \ud800 bad")], tmp_path, short())


def test_opening_what_is_not_there_names_it(tmp_path: Path) -> None:
    with pytest.raises(MissingPartError, match=r"nowhere/manifest\.json is missing"):
        open_responses(tmp_path / "nowhere")


def test_responses_of_another_backbone_are_refused_when_opened_for_one(backbone: Backbone, tmp_path: Path) -> None:
    generate_responses(backbone, QUERIES[:2], tmp_path, short())
    assert len(open_responses(tmp_path, backbone)) == 2
    other = make_backbone("qwen3")
    with pytest.raises(MismatchError, match=r"tiny/llama.*tiny/qwen3") as caught:
        open_responses(tmp_path, other)
    assert backbone.fingerprint in str(caught.value)
    assert other.fingerprint in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"max_query_tokens": 0},
        {"max_new_tokens": 0},
        {"respond_batch": 0},
        {"temperature": -1.0},
        {"top_p": 0.0},
        {"top_p": 1.1},
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(change))):
        ResponseSettings(**change)


def test_settings_at_their_limits_are_fine() -> None:
    for change in ({"max_query_tokens": 1}, {"max_new_tokens": 1}, {"respond_batch": 1}, {"top_p": 1.0}):
        ResponseSettings(**change)
