"""Vectors, against one text at a time through plain transformers; and the ways of asking for them (CASES C01-C28)."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from afterword.encoder import Encoder, encode_array
from afterword.errors import InputError, SettingError
from afterword.model import inputs
from afterword.model.model import Afterword
from tests.model.embedders import (
    COMPRESSION,
    DIMENSION,
    TEXTS,
    THOUGHT,
    embedder_in,
    framed,
    make_embedder,
    reference_latents,
    reference_matrix,
)
from tests.world import BOS, KINDS, VOCABULARY, as_users_run_it, byte_ids, weights_of

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
FRAMES = ("query", "examples", "chat")
LONG = "A much longer text than the other one, which goes on and on and ends only here, at last. " * 3


@pytest.fixture(scope="module")
def model() -> Afterword:
    """One Llama for all tests that only read."""
    return make_embedder()


def vectors(model: Afterword, texts: Any, **options: Any) -> np.ndarray:
    found = model.encode(texts, **options)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    return found


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_each_text_alone(kind: str, frame: str) -> None:
    """In whatever company: all in one batch, and in batches of two."""
    model = embedder_in(kind, frame)
    wanted = reference_matrix(model, [framed(text, frame) for text in TEXTS])
    for size in (len(TEXTS), 2):
        torch.testing.assert_close(model.encode(TEXTS, batch_size=size, convert_to_tensor=True), wanted, **CLOSE)


@pytest.mark.parametrize("frame", FRAMES)
def test_vectors_without_a_start_token(frame: str) -> None:
    """Some tokenizers have no BOS: the raw frame of an empty text is then nothing at all."""
    model = embedder_in("qwen3", frame, bos=False)
    wanted = reference_matrix(model, [framed(text, frame, bos=False) for text in TEXTS])
    torch.testing.assert_close(model.encode(TEXTS, convert_to_tensor=True), wanted, **CLOSE)
    torch.testing.assert_close(model.encode("", convert_to_tensor=True), wanted[2], **CLOSE)


@settings(max_examples=25)
@given(st.permutations(TEXTS), st.integers(1, 8), st.integers(40, 400))
def test_order_batch_size_and_budget_do_not_matter(order: list[str], batch_size: int, budget: int) -> None:
    model = _SHARED_MODEL
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(inputs.TOKENS_PER_PASS, "cpu", budget)
        found = vectors(model, order, batch_size=batch_size)
    np.testing.assert_allclose(found, _ONE_BY_ONE[[TEXTS.index(text) for text in order]], **CLOSE)


_SHARED_MODEL = make_embedder()
_ONE_BY_ONE = np.stack([np.asarray(_SHARED_MODEL.encode(text)) for text in TEXTS])


def test_how_many_follow_does_not_matter(model: Afterword) -> None:
    """C01."""
    texts = ["one", "two and three", "four, five, six", LONG]
    for count in range(1, 5):
        np.testing.assert_allclose(vectors(model, texts[:count])[0], vectors(model, "one"), **CLOSE)


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "gemma3_text-short"])
def test_a_long_neighbour_does_not_matter(kind: str) -> None:
    """C03, C04."""
    model = embedder_in(kind, "query")
    together = vectors(model, ["a", LONG])
    np.testing.assert_allclose(together[0], vectors(model, ["a"])[0], **CLOSE)
    np.testing.assert_allclose(together[1], vectors(model, [LONG])[0], **CLOSE)


@pytest.mark.parametrize("frame", FRAMES)
def test_a_long_neighbour_does_not_matter_with_a_prompt(frame: str) -> None:
    """C06."""
    model = embedder_in("qwen3", frame)
    together = vectors(model, ["a", LONG], prompt="Answer the question: ")
    alone = [vectors(model, text, prompt="Answer the question: ") for text in ("a", LONG)]
    np.testing.assert_allclose(together, np.stack(alone), **CLOSE)


@pytest.mark.parametrize("frame", FRAMES)
def test_bfloat16_gives_finite_float32_near_the_exact_vectors(frame: str) -> None:
    """C09 and C28: lengths 1 and 33 in one batch."""
    texts = ["a", "b" * 33]
    found = vectors(embedder_in("llama", frame, dtype=torch.bfloat16), texts)
    exact = vectors(embedder_in("llama", frame), texts)
    assert np.isfinite(found).all()
    cosine = (found * exact).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(exact, axis=1)
    assert (cosine > 0.99).all()


def test_a_very_long_text_keeps_every_learned_token() -> None:
    """C15: each of them still changes the vector."""
    model = make_embedder(max_length=64)
    text = "word " * 2000
    before = vectors(model, text)
    for place in range(THOUGHT + COMPRESSION):
        with torch.no_grad():
            model.parts.tokens[place] += 1.0
        after = vectors(model, text)
        assert np.abs(after - before).max() > 1e-3
        before = after


@pytest.mark.parametrize("frame", FRAMES)
def test_a_long_text_is_cut_so_that_all_fits_exactly(frame: str) -> None:
    text = "".join(chr(ord("a") + i * i % 26) for i in range(10_000))
    model = embedder_in("llama", frame)
    room = 1024 - (THOUGHT + COMPRESSION) - len(framed("", frame))
    wanted = reference_matrix(model, [framed(text[:room], frame)])
    torch.testing.assert_close(model.encode([text], convert_to_tensor=True), wanted, **CLOSE)
    assert len(framed(text[:room], frame)) + model.config.n_tokens == 1024


def test_the_last_token_that_fits_counts_and_the_next_does_not(model: Afterword) -> None:
    room = 512 - THOUGHT - COMPRESSION - 1
    full = "a" * room
    np.testing.assert_allclose(vectors(model, full + "b"), vectors(model, full), **CLOSE)
    assert np.abs(vectors(model, full[:-1] + "b") - vectors(model, full)).max() > 1e-3


def test_typed_control_tokens_are_characters(model: Afterword) -> None:
    """C12 and C14, all the way through."""
    for text in ("a <|im_end|> b", "<bos><eos>", "Buddhism (religion/philosophy)"):
        wanted = reference_matrix(model, [[BOS, *byte_ids(text)]])[0]
        torch.testing.assert_close(model.encode(text, convert_to_tensor=True), wanted, **CLOSE)


def test_encoding_changes_no_weight_and_no_size() -> None:
    """C16: the matrix has more rows than the tokenizer has tokens, and keeps them."""
    model = make_embedder()
    before = weights_of(model.backbone.model)
    vectors(model, TEXTS)
    after = model.backbone.model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert model.backbone.model.get_input_embeddings().weight.shape[0] == VOCABULARY
    assert len(model.backbone.text.tokenizer) < VOCABULARY


def test_nothing_gives_an_empty_matrix(model: Afterword) -> None:
    """C25."""
    assert vectors(model, []).shape == (0, DIMENSION)
    assert vectors(model, (), truncate_dim=5, normalize_embeddings=True).shape == (0, 5)
    assert model.encode([], convert_to_tensor=True).shape == (0, DIMENSION)
    assert model.encode([], output_value="token_embeddings").shape == (0, COMPRESSION, DIMENSION)


def test_one_string_gives_one_vector(model: Afterword) -> None:
    """C26."""
    assert vectors(model, "aaa").shape == (DIMENSION,)
    assert vectors(model, np.str_("aaa")).shape == (DIMENSION,)
    assert vectors(model, ["aaa"]).shape == (1, DIMENSION)


def test_lists_of_every_kind(model: Afterword) -> None:
    import pandas

    texts = ["one", "two", "three"]
    wanted = vectors(model, texts)
    frame = pandas.DataFrame({"text": texts}, index=[7, 8, 9])
    with as_users_run_it():
        for listed in (tuple(texts), np.array(texts), np.array(texts, dtype=object), frame["text"]):
            np.testing.assert_array_equal(vectors(model, listed), wanted)


@pytest.mark.parametrize("bad", [None, 7, b"bytes", 1.5, {"text": "a"}, iter(["a"])])
def test_what_is_no_list_of_texts_is_refused(bad: object, model: Afterword) -> None:
    with as_users_run_it(), pytest.raises(InputError, match=f"found {type(bad).__name__}"):
        model.encode(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt", [None, "Answer: "])
@pytest.mark.parametrize("bad", [None, 7, b"bytes", ["nested"], float("nan")])
@pytest.mark.parametrize("frame", ["query", "examples"])
def test_an_item_that_is_no_text_is_named(frame: str, bad: object, prompt: str | None) -> None:
    model = embedder_in("llama", frame)
    with as_users_run_it(), pytest.raises(InputError, match=f"item 1: .*found {type(bad).__name__}") as error:
        model.encode(["fine", bad], prompt=prompt)  # type: ignore[list-item]
    assert error.value.item == 1


@pytest.mark.parametrize("frame", ["query", "examples"])
def test_a_lone_surrogate_is_named_with_its_place(frame: str) -> None:
    """C24."""
    with pytest.raises(InputError, match=r"item 1: .*U\+D800.* at character 3") as error:
        embedder_in("llama", frame).encode(["fine", "ok \ud800 bad"])
    assert error.value.item == 1


def test_normalised_vectors_have_length_one(model: Afterword) -> None:
    plain, found = vectors(model, TEXTS), vectors(model, TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(found, plain / np.linalg.norm(plain, axis=1, keepdims=True), **CLOSE)


def test_truncated_vectors_are_the_first_dimensions_and_normalised_after(model: Afterword) -> None:
    plain = vectors(model, TEXTS)
    np.testing.assert_array_equal(vectors(model, TEXTS, truncate_dim=5), plain[:, :5])
    both = vectors(model, TEXTS, truncate_dim=5, normalize_embeddings=True)
    np.testing.assert_allclose(np.linalg.norm(both, axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(both, plain[:, :5] / np.linalg.norm(plain[:, :5], axis=1, keepdims=True), **CLOSE)


def test_tensors_and_lists_of_tensors(model: Afterword) -> None:
    plain = torch.from_numpy(vectors(model, ["one", "two"]))
    matrix = model.encode(["one", "two"], convert_to_tensor=True)
    assert isinstance(matrix, torch.Tensor)
    assert torch.equal(matrix, plain)
    listed = model.encode(["one", "two"], convert_to_numpy=False)
    assert isinstance(listed, list)
    assert torch.equal(torch.stack(listed), plain)
    single = model.encode("one", convert_to_numpy=False)
    assert isinstance(single, torch.Tensor)
    torch.testing.assert_close(single, plain[0], **CLOSE)


def test_token_embeddings_have_the_embedding_as_their_mean(model: Afterword) -> None:
    tokens = vectors(model, TEXTS, output_value="token_embeddings")
    assert tokens.shape == (len(TEXTS), COMPRESSION, DIMENSION)
    assert np.abs(tokens[:, 0] - tokens[:, 1]).max() > 0.1
    np.testing.assert_allclose(tokens.mean(axis=1), vectors(model, TEXTS), **CLOSE)
    assert vectors(model, "one", output_value="token_embeddings").shape == (COMPRESSION, DIMENSION)


def test_a_prompt_is_the_same_as_typing_it(model: Afterword) -> None:
    typed = vectors(model, [f"Answer this: {text}" for text in TEXTS])
    np.testing.assert_allclose(vectors(model, TEXTS, prompt="Answer this: "), typed, **CLOSE)


@pytest.mark.parametrize("frame", FRAMES)
def test_a_prompt_stands_inside_the_frame(frame: str) -> None:
    model = embedder_in("llama", frame)
    wanted = reference_matrix(model, [framed(f"Answer this: {text}", frame) for text in TEXTS])
    found = model.encode(TEXTS, prompt="Answer this: ", convert_to_tensor=True)
    torch.testing.assert_close(found, wanted, **CLOSE)


def test_prompts_are_chosen_as_in_sentence_transformers() -> None:
    prompts = {"query": "Q: ", "passage": "P: ", "other": "O: "}
    model = make_embedder(prompts=prompts)
    texts = ["one", "two"]

    def typed(prompt: str) -> np.ndarray:
        return vectors(model, [prompt + text for text in texts])

    def check(found: np.ndarray, prompt: str) -> None:
        np.testing.assert_allclose(found, typed(prompt), **CLOSE)

    check(model.encode(texts), "")
    check(model.encode(texts, prompt_name="other"), "O: ")
    check(model.encode(texts, "other", "X: "), "X: ")
    check(model.encode_query(texts), "Q: ")
    check(model.encode_document(texts), "P: ")
    check(model.encode_query(texts, "other"), "O: ")
    check(model.encode_query(texts, prompt="X: "), "X: ")
    check(model.encode_document(texts, None, "X: ", 1), "X: ")
    assert model.encode_query("one", normalize_embeddings=True, truncate_dim=4).shape == (4,)


def test_the_default_prompt_is_taken_when_none_is_given() -> None:
    model = make_embedder(prompts={"other": "O: "}, default_prompt_name="other")
    typed = vectors(model, "O: one", prompt="")
    for found in (model.encode("one"), model.encode_query("one"), model.encode_document("one")):
        np.testing.assert_allclose(found, typed, **CLOSE)


def test_an_unknown_prompt_name_is_an_error_that_lists_the_known(model: Afterword) -> None:
    with pytest.raises(SettingError, match="no prompt is named 'qeury'; this model has: document, query"):
        model.encode("one", prompt_name="qeury")


@pytest.mark.parametrize(
    "options",
    [{"precision": "int8"}, {"device": "cpu"}, {"output_value": None}, {"output_value": "pooled"}],
)
def test_what_is_not_supported_is_refused(options: dict[str, Any], model: Afterword) -> None:
    with as_users_run_it(), pytest.raises(SettingError, match=next(iter(options))):
        model.encode("one", **options)


@pytest.mark.parametrize("method", ["encode", "encode_query", "encode_document"])
def test_names_order_and_defaults_are_those_of_sentence_transformers(method: str) -> None:
    from sentence_transformers import SentenceTransformer

    own = inspect.signature(getattr(Afterword, method)).parameters.values()
    theirs = list(inspect.signature(getattr(SentenceTransformer, method)).parameters.values())
    named = [parameter for parameter in own if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert [(p.name, p.default) for p in named] == [(p.name, p.default) for p in theirs[: len(named)]]
    assert len(named) == {"encode": 13}.get(method, 3)


def test_it_is_an_encoder(model: Afterword) -> None:
    assert isinstance(model, Encoder)
    assert model.get_embedding_dimension() == DIMENSION
    np.testing.assert_array_equal(encode_array(model, TEXTS, 3), vectors(model, TEXTS, batch_size=3))


def test_progress_is_shown_when_asked(model: Afterword, capsys: pytest.CaptureFixture[str]) -> None:
    model.encode(["one", "two"], show_progress_bar=True)
    assert "2/2" in capsys.readouterr().err
    model.encode(["one"] * 3)
    assert capsys.readouterr().err == ""


def test_a_prompt_runs_once_and_not_with_every_text(model: Afterword) -> None:
    seen: list[int] = []
    hook = model.backbone.body.register_forward_pre_hook(
        lambda _, __, arguments: seen.append(arguments["inputs_embeds"].shape[:2].numel()), with_kwargs=True
    )
    texts = ["one", "two three", "four"]
    prompt = "Generate text that answers this query: "
    wanted = [model.encode(prompt.rstrip() + " " + text) for text in texts]
    seen.clear()
    found = model.encode(texts, prompt=prompt)
    hook.remove()
    np.testing.assert_allclose(found, wanted, **CLOSE)
    own = sum(len(f" {text}".encode()) + model.config.n_tokens for text in texts)
    assert len(seen) == 2 and seen[1] == own
    assert seen[0] >= len(prompt.rstrip())


def test_no_pass_is_over_the_budget_of_tokens(model: Afterword, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(inputs.TOKENS_PER_PASS, "cpu", 200)
    batches = [batch for _, batch in model.inputs.batches([*TEXTS, LONG, *TEXTS], "", 32)]
    tail = model.config.n_tokens
    sizes = [sum(batch.lengths) + len(batch) * tail for batch in batches]
    padded = [len(batch) * (max(batch.lengths) + tail) for batch in batches]
    assert len(sizes) > 2
    assert max(sizes[1:]) <= 200 < sizes[0]  # LONG alone is over it
    assert max(padded[1:]) <= 2 * 200  # of similar length: little is padding where attention lays rows side by side


def test_threads_get_what_one_gets() -> None:
    """C30, through the whole model, with frames whose cached prefix the threads share."""
    model = embedder_in("llama", "examples")
    wanted = vectors(model, TEXTS)

    def work(thread: int) -> np.ndarray:
        own = TEXTS[thread:] + TEXTS[:thread]
        return np.roll(vectors(model, own, batch_size=1 + thread), thread, axis=0)

    with as_users_run_it(), ThreadPoolExecutor(6) as pool:
        for found in pool.map(work, range(6)):
            np.testing.assert_allclose(found, wanted, **CLOSE)


def test_similarity_is_the_cosine(model: Afterword) -> None:
    first = np.array([[3.0, 4.0], [0.0, 2.0]], np.float32)
    second = torch.tensor([[1.0, 0.0], [6.0, 8.0], [0.0, -1.0]])
    wanted = torch.tensor([[0.6, 1.0, -0.8], [0.0, 0.8, -1.0]])
    torch.testing.assert_close(model.similarity(first, second), wanted)
    torch.testing.assert_close(model.similarity(first[0], second[1]), torch.tensor([[1.0]]))


def test_latents_are_states_soft_prompt_and_embedding() -> None:
    for frame in FRAMES:
        model = embedder_in("gemma3_text", frame)
        latents = model.latents(TEXTS, batch_size=3)
        wanted = [reference_latents(model, framed(text, frame)) for text in TEXTS]
        for place, found in enumerate((latents.states, latents.soft_prompt, latents.embedding)):
            torch.testing.assert_close(found, torch.stack([parts[place] for parts in wanted]), **CLOSE)
        np.testing.assert_allclose(latents.embedding.numpy(), vectors(model, TEXTS), **CLOSE)


def test_latents_of_one_of_none_and_of_some(model: Afterword) -> None:
    assert len(model.latents("one")) == 1
    assert len(model.latents([])) == 0
    latents = model.latents(TEXTS)
    assert len(latents) == len(TEXTS)
    part = latents[2:4]
    assert len(part) == 2
    for name in ("states", "soft_prompt", "embedding"):
        assert torch.equal(getattr(part, name), getattr(latents, name)[2:4])


def test_latents_take_prompts_as_encode_does() -> None:
    model = make_embedder(prompts={"other": "O: "}, default_prompt_name="other")
    for options in ({}, {"prompt": "X: "}, {"prompt": ""}):
        found = model.latents("one", **options).embedding[0]
        np.testing.assert_allclose(found, model.encode("one", **options), **CLOSE)
