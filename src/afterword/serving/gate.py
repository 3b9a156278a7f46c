"""What stands before every route: keys, the size of the body, and the count of answers."""

from __future__ import annotations

import time

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from afterword.serving.errors import ApiError
from afterword.serving.keys import Keys
from afterword.serving.metrics import Metrics

OPEN = ("/health", "/ready")
"""Paths that need no key: those who look after the process have none."""
LEFT = 499
"""What is noted where the client left before the answer; nobody receives it."""


class Gate:
    """Lets a request in, or answers it.

    Args:
        app: What stands behind.
        keys: Keys that are let in; None lets everybody in.
        max_body: Most bytes of a body.
        metrics: Where answers are counted.
        routes: Paths that are counted by name.
    """

    def __init__(
        self, app: ASGIApp, keys: Keys | None, max_body: int, metrics: Metrics, routes: tuple[str, ...]
    ) -> None:
        self.app, self.keys, self.max_body, self.metrics, self.routes = app, keys, max_body, metrics, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one connection of ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500
        self.metrics.accepted += 1

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                self.metrics.answered += 1

        try:
            await self._enter(scope, receive, noting)
        finally:
            path = scope["path"]
            route = next((known for known in self.routes if path == known or path.startswith(known + "/")), "other")
            self.metrics.answer(route, status, time.perf_counter() - began)

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        try:
            if self.keys is not None and scope["path"] not in OPEN:
                self._check_key(headers.get(b"authorization"))
            length = headers.get(b"content-length", b"0")
            if length.isdigit() and int(length) > self.max_body:
                await _drain(receive, 16 * self.max_body)
                raise self._too_large()
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        await self.app(scope, self._limited(receive), send)

    def _check_key(self, authorization: bytes | None) -> None:
        assert self.keys is not None
        if authorization is None or not self.keys.admit(authorization):
            what = "no API key was given" if authorization is None else "this API key is not known here"
            raise ApiError(
                401,
                f"{what}: send Authorization: Bearer KEY",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _limited(self, receive: Receive) -> Receive:
        """Count the bytes of a body that does not say its length."""
        size = 0

        async def counting() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.max_body:
                error = self._too_large()
                raise HTTPException(error.status, str(error), error.headers)
            return message

        return counting

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            f"the body has more than {self.max_body} bytes: send fewer texts at once",
            code="too_large",
            headers={"Connection": "close"},
        )


async def _drain(receive: Receive, most: int) -> None:
    """Read what a client is sending and forget it, up to a limit: while it sends, it does not read our answer."""
    while most > 0:
        message = await receive()
        most -= len(message.get("body", b""))
        if not message.get("more_body"):
            return
