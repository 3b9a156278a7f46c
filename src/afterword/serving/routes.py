"""The routes: OpenAI's, those of an Afterword model, and those for whoever looks after the process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response

from afterword.serving import schemas
from afterword.serving.answers import list_answer, numbers
from afterword.serving.errors import ApiError
from afterword.serving.gate import LEFT
from afterword.serving.served import Work
from afterword.serving.service import Service, shaped

PATHS = ("/v1/embeddings", "/v1/decode", "/v1/latents", "/v1/models", "/health", "/ready", "/metrics")

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorAnswer} for status in (400, 401, 404, 413, 429, 500, 503)
}


def make_router(service: Service) -> APIRouter:
    """Return the routes to a service."""
    router = APIRouter(responses=_ERRORS)

    @router.post("/v1/embeddings", response_model=schemas.EmbeddingsAnswer)
    async def embeddings(asked: schemas.EmbeddingsRequest, request: Request) -> Response:
        """Embed texts."""
        return await _unless_gone(request, embed(service, asked), service)

    @router.post("/v1/decode", response_model=schemas.DecodeAnswer)
    async def decoded(asked: schemas.DecodeRequest, request: Request) -> Response:
        """Let the LLM say what the embedding of each text holds. For an Afterword model only."""
        return await _unless_gone(request, decode(service, asked), service)

    @router.post("/v1/latents", response_model=schemas.LatentsAnswer)
    async def latent(asked: schemas.LatentsRequest, request: Request) -> Response:
        """Return states, soft prompt and embedding of each text. For an Afterword model only."""
        return await _unless_gone(request, latents(service, asked), service)

    @router.get("/v1/models", response_model=schemas.Models)
    async def models() -> dict[str, Any]:
        """List the one model that is served."""
        return {"object": "list", "data": [_card(service)]}

    @router.get("/v1/models/{name:path}", response_model=schemas.ModelCard)
    async def model(name: str) -> dict[str, Any]:
        """Describe the model."""
        service.check_model(name)
        return _card(service)

    @router.get("/health", response_model=schemas.State)
    async def health() -> dict[str, str]:
        """Say that the process lives."""
        return {"status": "ok"}

    @router.get("/ready", response_model=schemas.State)
    async def ready() -> dict[str, str]:
        """Say that the model is loaded; 503 until then."""
        service.check_ready()
        return {"status": "ok"}

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Return counters for Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


async def embed(service: Service, asked: schemas.EmbeddingsRequest) -> Response:
    """Answer a request for embeddings."""
    settings, dimension = service.settings, service.served.dimension
    if asked.dimensions is not None and asked.dimensions > dimension:
        message = f"dimensions is {asked.dimensions}, the model has {dimension}"
        raise ApiError(400, message, param="dimensions", code="too_many_dimensions")
    async with service.read(asked, settings.max_items) as read:
        vectors = await service.batcher.submit(Work("embed", read.prompt), read.texts, read.sizes)
        matrix = shaped(vectors, asked.dimensions, settings.normalize)
        items = ({"embedding": numbers(row, asked.encoding_format)} for row in matrix)
        size = matrix.size if asked.encoding_format == "float" else matrix.size // 16
        return await list_answer("embedding", items, read.cut, size, model=service.served.name, usage=read.usage)


async def decode(service: Service, asked: schemas.DecodeRequest) -> Response:
    """Answer a request for what embeddings hold."""
    service.check_decodes()
    if asked.max_new_tokens > service.settings.max_new_tokens:
        message = f"max_new_tokens is {asked.max_new_tokens}, the most is {service.settings.max_new_tokens}"
        raise ApiError(400, message, param="max_new_tokens", code="too_many_tokens")
    async with service.read(asked, service.settings.max_decode_items) as read:
        work = Work("decode", read.prompt, asked.max_new_tokens, asked.repetition_penalty)
        sizes = [size + asked.max_new_tokens for size in read.sizes]
        said = await service.batcher.submit(work, read.texts, sizes)
        items = ({"text": text} for text in said)
        return await list_answer("decoded", items, read.cut, 0, model=service.served.name, usage=read.usage)


async def latents(service: Service, asked: schemas.LatentsRequest) -> Response:
    """Answer a request for states, soft prompts and embeddings; these come as the model makes them, not scaled."""
    service.check_decodes()
    form = asked.encoding_format
    async with service.read(asked, service.settings.max_decode_items) as read:
        found = await service.batcher.submit(Work("latents", read.prompt), read.texts, read.sizes)
        shaped([item.embedding for item in found], None, False)
        items = ({name: numbers(part, form) for name, part in vars(item).items()} for item in found)
        rest = {"shape": list(found[0].states.shape), "model": service.served.name, "usage": read.usage}
        return await list_answer("latents", items, read.cut, 3 * len(found) * found[0].states.size, **rest)


async def _unless_gone(request: Request, answer: Coroutine[Any, Any, Response], service: Service) -> Response:
    """Await an answer, or drop it when the client leaves."""
    work = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        service.metrics.gone.inc()
        return Response(status_code=LEFT)
    finally:
        work.cancel()
        gone.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _card(service: Service) -> dict[str, Any]:
    served = service.served
    return {
        "id": served.name,
        "object": "model",
        "created": service.created,
        "owned_by": "afterword",
        "dimension": served.dimension,
        "max_tokens": served.reader.most,
        "prompts": sorted(served.prompts),
        "decodes": served.decodes,
        "fingerprint": served.fingerprint,
    }
