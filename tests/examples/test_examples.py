"""The programs in examples/, each as its users start it, on a tiny model or a real server of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from afterword.model.model import Afterword
from tests.serving.processes import ServerProcess
from tests.serving.test_openai import unit

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
QUESTION = "Why is the sky blue?"
DOCUMENTS = [
    "Air scatters short wavelengths of sunlight more than long ones.",
    "Bees collect nectar and dry it in the comb until it is thick.",
    "The tide follows the pull of the moon.",
]


def run(*command: str | Path, server: ServerProcess | None = None) -> str:
    """Run an example and return what it printed."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "LANGSMITH_TRACING": "false"}
    if server is not None:
        environment |= {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "none"}
    done = subprocess.run(
        [str(part) for part in command],
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def expected(model: Afterword, sided: bool) -> dict[str, float]:
    """Return what the model here says each document scores."""
    query, document = ({"prompt_name": "query"}, {"prompt_name": "document"}) if sided else ({}, {})
    scores = unit(model.encode([QUESTION], **query)) @ unit(model.encode(DOCUMENTS, **document)).T
    return dict(zip(DOCUMENTS, scores[0].tolist(), strict=True))


def found(printed: str) -> dict[str, float]:
    """Read the hits that an example printed, which stand best first."""
    first, *lines = printed.strip().splitlines()
    assert first == QUESTION
    hits = {text: float(score) for score, text in (line.split("  ", 1) for line in lines)}
    assert list(hits.values()) == sorted(hits.values(), reverse=True)
    return hits


@pytest.mark.parametrize(
    ("name", "sided"), [("openai_client", True), ("langchain_server", False), ("llamaindex_server", False)]
)
def test_through_the_server(name: str, sided: bool, server: ServerProcess, model: Afterword) -> None:
    printed = run(sys.executable, EXAMPLES / f"{name}.py", server=server)
    assert found(printed) == pytest.approx(expected(model, sided), abs=1e-4)


@pytest.mark.parametrize("name", ["langchain_local", "llamaindex_local"])
def test_in_the_same_process(name: str, model_folder: Path) -> None:
    printed = run(sys.executable, EXAMPLES / f"{name}.py", model_folder)
    here = Afterword.from_pretrained(model_folder)  # the type that examples get: bfloat16 where it is fast
    assert found(printed) == pytest.approx(expected(here, sided=True), abs=5e-3)


def test_sides_differ_on_this_model(model: Afterword) -> None:
    with_sides, without = expected(model, sided=True), expected(model, sided=False)
    assert max(abs(with_sides[text] - without[text]) for text in DOCUMENTS) > 2e-2


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_with_curl(server: ServerProcess, model: Afterword) -> None:
    embeddings, decoded = run("sh", EXAMPLES / "curl.sh", server=server).strip().splitlines()
    vectors = [item["embedding"] for item in json.loads(embeddings)["data"]]
    texts = [QUESTION, "How do bees make honey?"]
    np.testing.assert_allclose(vectors, unit(model.encode(texts, prompt_name="query")), atol=1e-5)
    assert json.loads(decoded)["data"][0]["text"] == model.decode(model.latents([QUESTION]), max_new_tokens=16)[0]


def test_in_mteb(model_folder: Path, model: Afterword, tmp_path: Path) -> None:
    from scipy.stats import spearmanr

    first = ["a cat sits", "rain fell", "we like bread", "the moon", "one two three", "a red door"]
    second = ["a cat sat", "sun shone", "bread is good", "a stone", "three two one", "blue window"]
    scores = [5.0, 1.0, 4.0, 0.0, 3.0, 2.0]
    rows = [{"sentence1": a, "sentence2": b, "score": s} for a, b, s in zip(first, second, scores, strict=True)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    printed = run(sys.executable, EXAMPLES / "mteb_tasks.py", model_folder, tmp_path)
    name, score = printed.split()
    cosines = (unit(model.encode(first)) * unit(model.encode(second))).sum(axis=1)
    assert name == "pairs"
    assert float(score) == pytest.approx(spearmanr(cosines, scores).statistic, abs=1e-4)


def test_each_example_is_named_in_their_readme() -> None:
    said = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    names = {path.name for path in EXAMPLES.iterdir() if path.suffix in {".py", ".sh", ".ipynb"}}
    assert names == set(re.findall(r"\(([a-z_]+\.(?:py|sh|ipynb))\)", said))
