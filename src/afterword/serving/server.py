"""The process: a socket, uvicorn, and an orderly end."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import uvicorn
from fastapi import FastAPI

from afterword.errors import SettingError
from afterword.serving.main_thread import HereExecutor
from afterword.serving.service import Service

PATIENCE = 0.001
"""Seconds that a thread may hold the interpreter while another waits: a model of many small steps must not keep the
event loop from answering. Python's own 5 ms add up, since a request asks for the interpreter several times."""


@contextmanager
def _stopping(server: uvicorn.Server) -> Iterator[None]:
    """Stop in order on the first SIGTERM or SIGINT, at once on the second.

    uvicorn itself, in the main thread, raises the signal once more at its end, so that a process which has finished
    everything looks killed.
    """
    before = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def serve(
    app: FastAPI,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    log_requests: bool = False,
    opened: Callable[[str], None] = lambda address: None,
    ready: Callable[[str], None] = lambda name: None,
) -> tuple[int, int]:
    """Serve an app of `create_app` until SIGTERM or SIGINT; then finish what was accepted and return.

    To be called in the main thread: the model works there, and the event loop has a thread of its own.

    Args:
        app: The app.
        host: Address to listen at.
        port: Port; 0 takes a free one.
        log_requests: Write a line to stderr for each request. Texts and keys are never written.
        opened: Called with the address when the socket listens; the model may still be loading.
        ready: Called with the name of the model when it is loaded.

    Returns:
        How many requests were accepted, and how many of them answered.

    Raises:
        SettingError: Nothing can listen there.
        AfterwordError: The model cannot be loaded.
    """
    service: Service = app.state.service
    listening = _listen(host, port)
    config = uvicorn.Config(
        app,
        log_level="info" if log_requests else "warning",
        access_log=log_requests,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=service.settings.stop_seconds,
    )
    server = uvicorn.Server(config)
    service.batcher.executor = here = HereExecutor()
    with listening, _stopping(server):
        opened(_address(listening))
        sys.setswitchinterval(PATIENCE)
        here.run_while(lambda: asyncio.run(_until_stopped(server, listening, service, ready)))
    if service.failure is not None:
        raise service.failure
    return service.metrics.accepted, service.metrics.answered


async def _until_stopped(
    server: uvicorn.Server, listening: socket.socket, service: Service, ready: Callable[[str], None]
) -> None:
    async def watch() -> None:
        name = await service.loaded()
        if name is None:
            server.should_exit = True
        else:
            # What torch and transformers made stays: to look through it takes a fifth of a second, in which nothing
            # is answered.
            gc.collect()
            gc.freeze()
            ready(name)

    watching = asyncio.create_task(watch())
    try:
        await server.serve(sockets=[listening])
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


def is_public(host: str) -> bool:
    """Return whether other machines can reach a server that listens at an address."""
    if host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise SettingError(f"port is {port}: it goes from 1 to 65535, and 0 takes a free one")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise SettingError(f"cannot listen at {host}, port {port}: {error}; choose another --host or --port") from error


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
