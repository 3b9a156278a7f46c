"""Errors in the form of OpenAI: `{"error": {"message", "type", "param", "code"}}`, for everything that goes wrong.

An `AfterwordError` needs no table of classes: a `UsageError` is the caller's (400), all others are ours (500).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from afterword.errors import AfterwordError, InputError, UsageError

_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


class ApiError(Exception):
    """What a client is told.

    Args:
        status: Status of the answer.
        message: What was found and what to do about it.
        param: The field of the request that it is about.
        code: A word for programs.
        headers: Headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Return the answer. Signs outside ASCII are escaped, so that any text, broken or not, can be named in it."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        body = json.dumps({"error": error}).encode()
        return Response(body, self.status, self.headers, media_type="application/json")


def install_handlers(app: FastAPI) -> None:
    """Let an app answer every error in this form."""
    handlers: dict[Any, Any] = {
        ApiError: _api_error,
        AfterwordError: _afterword_error,
        HTTPException: _http_error,
        RequestValidationError: _validation_error,
        Exception: _unexpected,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


async def _api_error(request: Request, error: ApiError) -> Response:
    return error.response()


async def _afterword_error(request: Request, error: AfterwordError) -> Response:
    if isinstance(error, UsageError):
        return ApiError(400, str(error), param="input" if isinstance(error, InputError) else None).response()
    return ApiError(500, str(error)).response()


async def _http_error(request: Request, error: HTTPException) -> Response:
    where = f"{request.method} {request.url.path}"
    messages = {
        404: f"there is no {where}; POST /v1/embeddings is the way in, GET /openapi.json lists all",
        405: f"{where}: this path takes {(error.headers or {}).get('allow', 'another method')}",
    }
    message = messages.get(error.status_code, error.detail or HTTPStatus(error.status_code).phrase)
    code = _CODES.get(error.status_code)
    return ApiError(error.status_code, message, code=code, headers=error.headers).response()


async def _validation_error(request: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    place: Sequence[Any] = first.get("loc", ())
    param = str(place[1]) if len(place) > 1 and isinstance(place[1], str) else None
    return ApiError(400, _words(first, param), param=param, code=str(first.get("type"))).response()


async def _unexpected(request: Request, error: Exception) -> Response:
    return ApiError(500, f"the server failed ({type(error).__name__}); its log says where").response()


def _words(error: Mapping[str, Any], param: str | None) -> str:
    kind, message = error.get("type"), str(error.get("msg"))
    if kind == "json_invalid":
        return f"the body is not JSON: {error.get('ctx', {}).get('error', message)}"
    if kind == "extra_forbidden":
        return f"there is no field {param!r} here; GET /openapi.json lists those there are"
    if param is None:
        return f"the body must be a JSON object, sent as Content-Type: application/json ({message})"
    return message if kind == "input" else f"{param}: {message}"
