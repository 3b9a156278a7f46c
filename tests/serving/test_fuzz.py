"""Requests made up from the app's own OpenAPI schema, fitting and not fitting: never a 500, never a hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import APIOperation, Case, GenerationMode, checks

from tests.serving.processes import ServerProcess

EXAMPLES = 25
PATHS = [
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/decode"),
    ("POST", "/v1/latents"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{name}"),
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
]


@pytest.fixture(scope="module")
def made_up(server: ServerProcess) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


def test_every_route_is_described(made_up: schemathesis.BaseSchema) -> None:
    described = [found.ok() for found in made_up.get_all_operations()]
    assert sorted((one.method.upper(), one.path) for one in described) == sorted(PATHS)


def send_all(
    operation: APIOperation, mode: GenerationMode, tame: Callable[[Any], None] = lambda body: None
) -> set[int]:
    """Send requests that fit the schema or do not, check the answers against it, and return the statuses that came."""
    seen = set()

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode))
    def send(case: Case) -> None:
        tame(case.body)
        answer = case.call(timeout=20)
        seen.add(answer.status_code)
        # A schema cannot say which names there are and how long a text may be: what fits may be refused.
        case.validate_response(answer, excluded_checks=[checks.positive_data_acceptance])

    send()
    return seen


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_what_fits_the_schema(method: str, path: str, made_up: schemathesis.BaseSchema) -> None:
    def tame(body: Any) -> None:
        """Ask for the model that is there, so that not all is refused for its name."""
        if isinstance(body, dict):
            body.pop("model", None)
            body.pop("prompt_name", None)
            if body.get("max_new_tokens"):
                body["max_new_tokens"] = 1 + body["max_new_tokens"] % 8

    seen = send_all(made_up[path][method], GenerationMode.POSITIVE, tame)
    assert seen <= {200, 400, 404}
    assert 200 in seen or "{name}" in path


@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path in PATHS if method == "POST"])
def test_what_does_not_fit(method: str, path: str, made_up: schemathesis.BaseSchema) -> None:
    assert send_all(made_up[path][method], GenerationMode.NEGATIVE) <= {400, 404}
