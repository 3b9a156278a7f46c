"""What is asked and what is answered, as OpenAI's embeddings endpoint has it; fields of our own are marked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from afterword.serving.inputs import INPUT_SCHEMA, check_input


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
    """Tokens of prompt and text that the model read.

    What it adds itself (begin token, frame, learned tokens) is not counted, nor what was cut.
    """

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
