"""The app: it opens while the model is still loading, and answers as OpenAI does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version

from fastapi import FastAPI

from afterword.encoder import Encoder
from afterword.serving.errors import install_handlers
from afterword.serving.gate import Gate
from afterword.serving.keys import Keys
from afterword.serving.routes import PATHS, make_router
from afterword.serving.service import Service
from afterword.serving.settings import ServeSettings


def create_app(
    encoder: Encoder | Callable[[], Encoder], settings: ServeSettings | None = None, keys: Keys | None = None
) -> FastAPI:
    """Make an ASGI app that serves an encoder.

    Args:
        encoder: The encoder, or a function that loads it: then the app answers `/health` at once, and everything else
            with 503 until the encoder is there.
        settings: Limits, batches, what happens to long texts.
        keys: API keys that are let in; None lets everybody in.

    Returns:
        An app for any ASGI server. It uses one thread for the model and keeps its queue in memory: one process for each
        model and device.
    """
    service = Service(encoder, settings or ServeSettings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        work = asyncio.create_task(service.open())
        try:
            yield
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
            service.close()

    app = FastAPI(
        title="Afterword",
        version=version("afterword"),
        description="Embeddings of what a language model would answer.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    install_handlers(app)
    app.include_router(make_router(service))
    app.add_middleware(Gate, keys=keys, max_body=service.settings.max_body, metrics=service.metrics, routes=PATHS)
    return app
