"""The real openai client against the real server process; vectors are compared with those of the model here."""

from __future__ import annotations

import base64
import struct

import numpy as np
import openai
import pytest
from numpy.typing import NDArray

from afterword.model.model import Afterword
from tests.serving.conftest import KEY, LENGTH
from tests.serving.processes import ServerProcess
from tests.world import BOS, EOS, FIRST_BYTE, TOKENIZER_SIZE, VOCABULARY, byte_ids

TEXTS = ["Why is the sky blue?", "naïve café ☃ 👩‍👩‍👧", "x", "two\nlines", "a longer text " * 6, " leading space"]


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = vectors.astype(np.float64)
    return wide / np.linalg.norm(wide, axis=-1, keepdims=True)


def test_a_list_as_the_client_asks_by_default(server: ServerProcess, model: Afterword) -> None:
    answer = server.client().embeddings.create(model="tiny", input=TEXTS)
    assert [item.index for item in answer.data] == list(range(len(TEXTS)))
    np.testing.assert_allclose([item.embedding for item in answer.data], unit(model.encode(TEXTS)), atol=1e-5)
    assert (answer.object, answer.model, answer.data[0].object) == ("list", "tiny", "embedding")


def test_one_text(server: ServerProcess, model: Afterword) -> None:
    answer = server.client().embeddings.create(model="tiny", input="Why?", user="someone")
    np.testing.assert_allclose([item.embedding for item in answer.data], unit(model.encode(["Why?"])), atol=1e-5)


def test_base64_holds_the_very_bytes_of_the_float_answer(server: ServerProcess) -> None:  # C32
    asked = {"model": "tiny", "input": TEXTS}
    floats = server.post("/v1/embeddings", {**asked, "encoding_format": "float"}).json()["data"]
    coded = server.post("/v1/embeddings", {**asked, "encoding_format": "base64"}).json()["data"]
    for number, code in zip(floats, coded, strict=True):
        assert base64.b64decode(code["embedding"]) == struct.pack("<24f", *number["embedding"])
        assert np.array(number["embedding"], np.float32).tolist() == number["embedding"]


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        (byte_ids("abc"), ["abc"]),
        ([byte_ids("Why?"), byte_ids("☃ é")], ["Why?", "☃ é"]),
        ([[BOS, *byte_ids("abc"), EOS], byte_ids("\ufffd")], ["abc", "\ufffd"]),
    ],
    ids=["one", "two", "control tokens are left out"],
)
def test_token_ids_are_the_text_they_stand_for(  # C33
    ids: list[int] | list[list[int]], texts: list[str], server: ServerProcess, model: Afterword
) -> None:
    answer = server.client().embeddings.create(model="tiny", input=ids)
    np.testing.assert_allclose([item.embedding for item in answer.data], unit(model.encode(texts)), atol=1e-5)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([[-1]], f"item 0: there is no token id -1: this model's ids go from 0 to {TOKENIZER_SIZE - 1}"),
        ([byte_ids("a"), [99999999]], "item 1: there is no token id 99999999"),
        ([2**70], "item 0: there is no token id"),
        ([VOCABULARY - 1], "item 0: there is no token id"),
        ([byte_ids("a"), byte_ids("é")[:1]], "item 1: these ids begin or end within a character"),
        ([[BOS], byte_ids("a")], "item 0: it holds no text"),
    ],
)
def test_ids_that_are_none_are_refused_and_the_next_request_works(  # C34
    ids: list[int] | list[list[int]], words: str, server: ServerProcess
) -> None:
    client = server.client()
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="tiny", input=ids)
    assert words in refused.value.message
    assert refused.value.param == "input"
    assert len(client.embeddings.create(model="tiny", input=[byte_ids("a"), [FIRST_BYTE + 65]]).data) == 2


@pytest.mark.parametrize("empty", ["", " ", "\n\t ", [""], ["a", " "], [[]], [[], []], [byte_ids(" ")]])
def test_what_holds_no_text_is_refused(empty: str | list[str] | list[list[int]], server: ServerProcess) -> None:  # C36
    for form in ("float", "base64"):
        answer = server.post("/v1/embeddings", {"input": empty, "encoding_format": form})
        assert answer.status_code == 400
        item = 1 if empty == ["a", " "] else 0
        assert answer.json()["error"]["message"] == f"item {item}: it holds no text: there is nothing to embed"


def test_a_list_without_items_is_refused(server: ServerProcess) -> None:  # C36
    with pytest.raises(openai.BadRequestError) as refused:
        server.client().embeddings.create(model="tiny", input=[])
    assert "input is a list without items: there is nothing to embed" in refused.value.message


def test_a_long_text_is_refused_by_default(server: ServerProcess) -> None:  # C38
    client, room = server.client(), LENGTH - 4 - 1  # learned tokens, BOS
    fits, longer = "y" * room, "y" * room + "a"
    assert client.embeddings.create(model="tiny", input=[fits]).usage.prompt_tokens == room
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="tiny", input=["short", longer])
    assert f"item 1: it has {room + 1} tokens with its prompt, the model reads {room}" in refused.value.message
    assert refused.value.code == "too_long"


def test_or_it_is_cut_and_marked(closed_server: ServerProcess, model: Afterword) -> None:  # C38
    room = LENGTH - 4 - 1
    texts = ["y" * room + "a", "y" * room + "b", "short", "y" * room]
    answer = closed_server.client(KEY).embeddings.create(model="tiny", input=texts)
    marks = [item.model_dump().get("truncated") for item in answer.data]
    assert marks == [True, True, None, None]
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == 3 * room + len("short")
    np.testing.assert_allclose([item.embedding for item in answer.data], unit(model.encode(texts)), atol=1e-5)


def test_usage_counts_prompt_and_text_only(server: ServerProcess) -> None:
    client = server.client()
    plain = client.embeddings.create(model="tiny", input=["abc", "☃"])
    assert plain.usage.prompt_tokens == len(b"abc") + len("☃".encode())
    asked = client.embeddings.create(model="tiny", input=["abc", "☃"], extra_body={"instruction": "Say: "})
    assert asked.usage.prompt_tokens == plain.usage.prompt_tokens + 2 * len(b"Say: ")


@pytest.mark.parametrize("dimensions", [1, 12, 24])
def test_fewer_dimensions_have_unit_length_again(dimensions: int, server: ServerProcess, model: Afterword) -> None:
    answer = server.client().embeddings.create(model="tiny", input=TEXTS, dimensions=dimensions)  # C40
    found = np.array([item.embedding for item in answer.data])
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(found, unit(model.encode(TEXTS)[:, :dimensions]), atol=1e-5)


def test_more_dimensions_than_there_are_are_refused(server: ServerProcess) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        server.client().embeddings.create(model="tiny", input="a", dimensions=25)
    assert "dimensions is 25, the model has 24" in refused.value.message
    assert refused.value.param == "dimensions"


def test_a_list_longer_than_a_batch_keeps_its_order(server: ServerProcess, model: Afterword) -> None:  # C44
    texts = [f"text {i} " + "and more " * (i * 7 % 13) for i in range(150)]
    answer = server.client().embeddings.create(model="tiny", input=texts)
    np.testing.assert_allclose([item.embedding for item in answer.data], unit(model.encode(texts)), atol=1e-5)
    assert [item.index for item in answer.data] == list(range(150))


def test_prompts_by_name_and_by_words(server: ServerProcess, model: Afterword) -> None:
    client = server.client()
    for extra, options in (
        ({"prompt_name": "document"}, {"prompt_name": "document"}),
        ({"prompt_name": "query"}, {"prompt_name": "query"}),
        ({"instruction": "Say what follows: "}, {"prompt": "Say what follows: "}),
    ):
        answer = client.embeddings.create(model="tiny", input=TEXTS, extra_body=extra)
        expected = unit(model.encode(TEXTS, **options))
        np.testing.assert_allclose([item.embedding for item in answer.data], expected, atol=1e-5)
    assert not np.allclose(unit(model.encode(TEXTS)), expected, atol=1e-2)


@pytest.mark.parametrize(
    ("extra", "words", "param"),
    [
        ({"prompt_name": "passage"}, "no prompt is named 'passage'; this model has: document, query", "prompt_name"),
        ({"prompt_name": "query", "instruction": "x"}, "give an instruction or a prompt_name, not both", "prompt_name"),
        ({"instruction": "x" * 200}, "the prompt alone fills the 155 tokens that the model reads", "instruction"),
        ({"prompt": "x"}, "there is no field 'prompt' here", "prompt"),
    ],
)
def test_prompts_that_cannot_be_are_refused(
    extra: dict[str, str], words: str, param: str, server: ServerProcess
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        server.client().embeddings.create(model="tiny", input="a", extra_body=extra)
    assert words in refused.value.message
    assert refused.value.param == param


def test_another_model_is_not_found(server: ServerProcess) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        server.client().embeddings.create(model="text-embedding-3-small", input="a")
    assert "there is no model 'text-embedding-3-small' here; this server has 'tiny'" in refused.value.message
    assert refused.value.code == "model_not_found"


def test_the_models(server: ServerProcess, model: Afterword) -> None:
    client = server.client()
    (only,) = client.models.list().data
    assert client.models.retrieve("tiny") == only
    said = only.model_dump()
    assert (said["id"], said["object"], said["dimension"], said["max_tokens"]) == ("tiny", "model", 24, LENGTH - 5)
    assert (said["decodes"], said["fingerprint"]) == (True, model.fingerprint)
    assert {"query", "document"} <= set(said["prompts"])
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("org/other")


def test_decode_says_what_the_model_says_here(server: ServerProcess, model: Afterword) -> None:
    asked = {"model": "tiny", "input": TEXTS, "max_new_tokens": 5, "repetition_penalty": 1.3}
    answer = server.post("/v1/decode", asked).json()
    assert [item["text"] for item in answer["data"]] == model.decode(TEXTS, 5, repetition_penalty=1.3)
    assert answer["usage"]["prompt_tokens"] == sum(len(text.encode()) for text in TEXTS)
    with_prompt = server.post("/v1/decode", {"input": "abc", "prompt_name": "document", "max_new_tokens": 5}).json()
    latents = model.latents(["abc"], model.config.prompts["document"])
    assert [item["text"] for item in with_prompt["data"]] == model.decode(latents, 5)


@pytest.mark.parametrize("form", ["float", "base64"])
def test_latents_are_those_of_the_model_here(form: str, server: ServerProcess, model: Afterword) -> None:
    answer = server.post("/v1/latents", {"input": TEXTS, "encoding_format": form}).json()
    expected = model.latents(TEXTS)
    assert answer["shape"] == [3, 32]
    for name in ("states", "soft_prompt", "embedding"):
        rows = [item[name] for item in answer["data"]]
        if form == "base64":
            rows = [np.frombuffer(base64.b64decode(row), "<f4") for row in rows]
        wanted = getattr(expected, name).numpy()
        np.testing.assert_allclose(np.array(rows, np.float32).reshape(wanted.shape), wanted, atol=1e-4)


def test_decode_has_limits(server: ServerProcess) -> None:
    many = server.post("/v1/decode", {"input": ["a"] * 33})
    assert (many.status_code, many.json()["error"]["message"]) == (400, "input has 33 items, the most is 32")
    long = server.post("/v1/decode", {"input": "a", "max_new_tokens": 257})
    assert (long.status_code, long.json()["error"]["message"]) == (400, "max_new_tokens is 257, the most is 256")
