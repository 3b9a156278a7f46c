"""`afterword serve`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from afterword.backbone.settings import Device, DType
from afterword.cli.flags import parse_flags, quiet_libraries
from afterword.serving.settings import ServeSettings


@dataclass(frozen=True)
class Serve:
    """Serve an encoder over HTTP, as OpenAI's embeddings endpoint does.

    MODEL is a saved Afterword model (a folder or a hub name), hf:NAME (mean of a causal LM's last states), teacher:NAME
    (teacher:demo is the packaged one), or any SentenceTransformer. POST /v1/embeddings, and for an Afterword model
    /v1/decode and /v1/latents; GET /v1/models, /health, /ready, /metrics, and /openapi.json for all of it. API keys
    come from the variable AFTERWORD_API_KEYS (commas between them) or from --api-keys. On SIGTERM it finishes what it
    accepted.

    Example: afterword serve runs/first/model --port 8000
    """

    model: Annotated[str, tyro.conf.Positional]
    """Encoder to serve."""
    host: str = "127.0.0.1"
    """Address to listen at; 0.0.0.0 lets other machines in."""
    port: int = 8000
    """Port; 0 takes a free one."""
    api_keys: Path | None = None
    """File with API keys, one a line, as they are or as sha256:HASH."""
    settings: ServeSettings = field(default_factory=ServeSettings)
    device: Device = "auto"
    """Where the model runs."""
    dtype: DType = "auto"
    """Type of an LLM's weights."""
    log_requests: bool = False
    """Write a line for each request to stderr. Texts and keys are never written."""

    def run(self) -> None:
        """Serve until stopped."""
        from afterword.extras import require_extra

        require_extra("serve", "fastapi", "uvicorn", "prometheus_client")
        quiet_libraries()
        from afterword.flow.open_encoder import open_encoder
        from afterword.serving.app import create_app
        from afterword.serving.keys import VARIABLE, read_keys
        from afterword.serving.served import short_name
        from afterword.serving.server import is_public, serve

        keys = read_keys(self.api_keys)
        if keys is None and is_public(self.host):
            print(
                f"warning: {self.host} can be reached from other machines and there are no API keys: set {VARIABLE} or "
                "give --api-keys",
                file=sys.stderr,
            )
        settings = replace(self.settings, name=self.settings.name or short_name(self.model))
        app = create_app(partial(open_encoder, self.model, self.device, self.dtype), settings, keys)
        accepted, answered = serve(
            app,
            self.host,
            self.port,
            log_requests=self.log_requests,
            opened=lambda address: print(f"loading {self.model} for {address}/v1", flush=True),
            ready=lambda name: print(f"ready: {name}", flush=True),
        )
        print(f"stopped: {accepted} requests accepted, {answered} answered")


def parse(arguments: Sequence[str]) -> Serve:
    """Read the flags."""
    return parse_flags(Serve, "serve", arguments)
