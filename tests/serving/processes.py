"""`afterword serve` as a process of its own, and clients of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx2
from openai import OpenAI
from typing_extensions import Self


class ServerProcess:
    """The real command on a free port. Leaving it stops it as an orchestrator does, and checks that it ended well.

    Attributes:
        url: Where it listens.
        said: The lines it printed.
    """

    def __init__(self, model: Path | str, *flags: str, keys: str | None = None) -> None:
        command = [sys.executable, "-m", "afterword", "serve", str(model), "--port", "0", "--device", "cpu"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environment.pop("AFTERWORD_API_KEYS", None)
        if keys is not None:
            environment["AFTERWORD_API_KEYS"] = keys
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 closed when it is left
        self.process = subprocess.Popen(
            [*command, "--dtype", "float32", *flags],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            encoding="utf-8",
        )
        self.said: list[str] = []
        self.url = ""
        self._clients: list[OpenAI] = []

    def opened(self) -> Self:
        """Wait until it listens."""
        while not self.url:
            line = self._line()
            self.url = line.rpartition(" ")[2].removesuffix("/v1") if line.startswith("loading ") else ""
        return self

    def ready(self) -> Self:
        """Wait until the model is loaded."""
        self.opened()
        while not any(line.startswith("ready: ") for line in self.said):
            self._line()
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        rest, _ = self.process.communicate(timeout=240)
        self.said += rest.splitlines()
        return self.process.returncode

    def complaints(self) -> str:
        """Return what it wrote to stderr."""
        self.errors.seek(0)
        return self.errors.read()

    def client(self, key: str = "none") -> OpenAI:
        """Return an openai client that tries once; it is closed with the server."""
        client = OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=60)
        self._clients.append(client)
        return client

    def post(self, path: str, body: Any = None, **options: Any) -> httpx2.Response:
        """Send a request without the openai client."""
        return httpx2.post(f"{self.url}{path}", json=body, timeout=60, **options)

    def get(self, path: str, **options: Any) -> httpx2.Response:
        """Send a request without the openai client."""
        return httpx2.get(f"{self.url}{path}", timeout=60, **options)

    def __enter__(self) -> Self:
        return self.ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.close()
        if self.process.poll() is None:
            assert self.stop() == 0, self.complaints()
        complaints = self.complaints()
        self.errors.close()
        assert "Traceback" not in complaints, complaints

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().rstrip("\n")
        if not line and self.process.poll() is not None:
            raise AssertionError(f"the server ended: {self.complaints()}")
        self.said.append(line)
        return line
