"""What is asked and what is answered, as OpenAI's embeddings endpoint has it; fields of our own are marked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_TEXT = {"type": "string", "minLength": 1}
INPUT_SCHEMA = {
    "title": "Input",
    "description": (
        "A text, a list of texts, the token ids of a text, or a list of them. Ids are those of this model's own "
        "tokenizer; they are turned into text first, without control tokens. A text that holds nothing but white "
        "space, ids without text, and a list without items are refused."
    ),
    "anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}, _IDS, {"type": "array", "items": _IDS}],
}


def check_input(value: Any) -> list[str] | list[list[int]]:
    """Return a list of texts, or of lists of ids, for any of the four forms.

    Raises:
        PydanticCustomError: It is none of them; the first item that does not fit is named.
    """
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise _wrong(f"input is {_kind(value)}: it must be a text, a list of texts, token ids, or lists of token ids")
    if not value:
        raise _wrong("input is a list without items: there is nothing to embed")
    if all(isinstance(item, str) for item in value):
        return value
    if all(type(item) is int for item in value):
        return [value]
    first = value[0]
    if not isinstance(first, str | list) and type(first) is not int:
        raise _wrong(f"item 0 is {_kind(first)}: it must be a text or token ids")
    for index, item in enumerate(value):
        if type(item) is not type(first):
            raise _wrong(f"item {index} is {_kind(item)} and item 0 is {_kind(first)}: all items must be of one kind")
        odd = [part for part in item if type(part) is not int]
        if odd:
            raise _wrong(f"item {index} holds {_kind(odd[0])} among its token ids: an id is a whole number")
    return value


def _kind(value: Any) -> str:
    names = {
        str: "a text",
        int: "a number",
        float: "a fraction",
        bool: "true or false",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "null")


def _wrong(message: str) -> PydanticCustomError:
    return PydanticCustomError("input", "{words}", {"words": message})


class Asked(BaseModel):
    """What all requests have."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input: Annotated[Any, PlainValidator(check_input), WithJsonSchema(INPUT_SCHEMA)]
    model: str | None = Field(None, description="Name of the model; one that is not served here is refused.")
    prompt_name: str | None = Field(None, description="Ours: a prompt of the model by name, such as query or document.")
    instruction: str | None = Field(
        None, description="Ours: words to put before each text, exactly as they are; not together with prompt_name."
    )
    user: str | None = Field(None, description="Ignored.")


class EmbeddingsRequest(Asked):
    """A request to `/v1/embeddings`."""

    encoding_format: Literal["float", "base64"] = Field(
        "float", description="Numbers, or base64 of little-endian float32."
    )
    dimensions: int | None = Field(
        None, ge=1, description="Keep so many dimensions and scale to length 1. No space was trained for it."
    )


class DecodeRequest(Asked):
    """A request to `/v1/decode`."""

    max_new_tokens: int = Field(64, ge=1, description="Most tokens of an answer.")
    repetition_penalty: float = Field(1.0, ge=1.0, le=10.0, description="Above 1, words already said are less likely.")


class LatentsRequest(Asked):
    """A request to `/v1/latents`."""

    encoding_format: Literal["float", "base64"] = Field(
        "float", description="Numbers, or base64 of little-endian float32, row by row."
    )


class Usage(BaseModel):
    """Tokens of prompt and text that the model read. What it adds itself (begin token, frame, learned tokens) is not
    counted, nor what was cut."""

    prompt_tokens: int
    total_tokens: int


class Embedding(BaseModel):
    """The vector of one item."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    truncated: bool | None = Field(None, description="Ours: there, and true, where the text was cut.")


class EmbeddingsAnswer(BaseModel):
    """An answer of `/v1/embeddings`."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class Decoded(BaseModel):
    """What the LLM says from the soft prompt of one item."""

    object: Literal["decoded"]
    index: int
    text: str
    truncated: bool | None = None


class DecodeAnswer(BaseModel):
    """An answer of `/v1/decode`."""

    object: Literal["list"]
    data: list[Decoded]
    model: str
    usage: Usage


class LatentsOfItem(BaseModel):
    """States and soft prompt, `n` rows of `hidden` numbers each, and the embedding."""

    object: Literal["latents"]
    index: int
    states: list[list[float]] | str
    soft_prompt: list[list[float]] | str
    embedding: list[float] | str
    truncated: bool | None = None


class LatentsAnswer(BaseModel):
    """An answer of `/v1/latents`; `shape` says how the numbers of states and soft prompt lie."""

    object: Literal["list"]
    data: list[LatentsOfItem]
    shape: list[int]
    model: str
    usage: Usage


class ModelCard(BaseModel):
    """What is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    dimension: int
    max_tokens: int | None
    prompts: list[str]
    decodes: bool
    fingerprint: str | None


class Models(BaseModel):
    """The one model that is served."""

    object: Literal["list"]
    data: list[ModelCard]


class State(BaseModel):
    """Whether the server lives, or is ready."""

    status: Literal["ok"]


class ErrorBody(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    """Every error has this form."""

    error: ErrorBody
