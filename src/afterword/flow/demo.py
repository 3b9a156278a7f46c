"""The demo: all stages on a small real LLM, then what the trained model can do that the untrained one could not."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from afterword.corpus.manifest import write_whole
from afterword.encoder import Encoder
from afterword.flow.inputs import demo_file
from afterword.flow.progress import Watcher
from afterword.flow.recipe import Recipe
from afterword.flow.stages import Stages
from afterword.machine import describe_machine
from afterword.model.model import Afterword
from afterword.teacher.llm import LLMTeacher
from afterword.training.run_folder import RunFolder
from afterword.training.train import TrainResult

RECIPE: dict[str, Any] = {
    "backbone": "demo",
    "queries": "demo",
    "teacher": "demo",
    "placement": "answer",
    "max_new_tokens": 28,
    "max_length": 384,
    "epochs": 0.4,
    "batch_size": 8,
    "warmup_steps": 4,
    "position_share": 0.5,
    "validation": 64,
}
SHOWN = 8
PENALTY = 1.3
"""Against repetition in what is decoded: the embeddings of a short training say one word over and over."""


@dataclass(frozen=True)
class System:
    """How well one encoder finds the document that answers each question.

    Attributes:
        name: Which encoder.
        top1: Share of questions whose document comes first.
        mrr: Mean reciprocal rank of the right document.
        validation: Losses, cosine and retrieval accuracy on held-out responses, for our own models.
    """

    name: str
    top1: float
    mrr: float
    validation: dict[str, float]


@dataclass(frozen=True)
class Hit:
    """One question, what its embedding says, and what it finds.

    Attributes:
        question: The question.
        before: Its embedding decoded before training.
        after: Its embedding decoded after training.
        documents: Titles and cosines of the nearest documents, best first.
        right: Title of the document that answers it.
    """

    question: str
    before: str
    after: str
    documents: list[tuple[str, float]]
    right: str


@dataclass(frozen=True)
class DemoReport:
    """All that the demo shows; what the text and the page are made from."""

    backbone: str
    teacher: str
    model: str
    fingerprint: str
    queries: int
    steps: int
    seconds: dict[str, float]
    machine: dict[str, str]
    day: str
    systems: list[System]
    curve: list[dict[str, Any]]
    hits: list[Hit]

    def to_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> DemoReport:
        """Read back what `to_json` wrote."""
        values = json.loads(text)
        values["systems"] = [System(**system) for system in values["systems"]]
        values["hits"] = [
            Hit(**{**hit, "documents": [(title, score) for title, score in hit["documents"]]}) for hit in values["hits"]
        ]
        return cls(**values)


def run_demo(folder: Path, watcher: Watcher, overrides: Mapping[str, Any] | None = None) -> DemoReport:
    """Run every stage and measure the model before and after training.

    What is there already is reused: stages by their artefacts, the measures by the fingerprint of the model.
    """
    stages = Stages(_recipe(overrides or {}), folder, watcher)
    result = stages.run()
    kept = folder / "report.json"
    known = _known_report(kept)
    if known and known.fingerprint == result.model.fingerprint:
        return known
    began = time.perf_counter()
    watcher.stage("measures")
    systems, hits = _measures(result)
    stages.seconds["measures"] = time.perf_counter() - began
    watcher.done(f"{len(systems)} encoders on {len(_lines('questions.jsonl'))} questions")
    report = _report(stages, result, systems, hits)
    write_whole(kept, report.to_json())
    return report


def _recipe(overrides: Mapping[str, Any]) -> Recipe:
    values = {**RECIPE, **overrides}
    if "limit" in overrides and "validation" not in overrides:  # few queries cannot hold out as many as all
        values["validation"] = min(values["validation"], max(1, overrides["limit"] // 4))
    return Recipe.from_values(values, "demo")


def _known_report(path: Path) -> DemoReport | None:
    """Return the report of an earlier run, if there is one that this version can read."""
    try:
        return DemoReport.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _measures(result: TrainResult) -> tuple[list[System], list[Hit]]:
    questions, documents = _lines("questions.jsonl"), _lines("documents.jsonl")
    trained = result.model
    untrained = Afterword.from_backbone(
        trained.backbone, settings=trained.config.settings, embedding_dimension=trained.config.embedding_dimension
    )
    warm = _warm_started(result)
    first, last = result.validation[0], result.validation[-1]
    encoders: list[tuple[str, Encoder, dict[str, Any]]] = [
        ("mean pooling of the same LLM", LLMTeacher(trained.backbone, prompt=""), {}),
        ("before training (random heads)", untrained, {}),
        ("after the warm start", warm, first),
        ("after training", trained, last),
    ]
    systems = []
    for name, encoder, validation in encoders:
        scores = _scores(encoder, questions, documents)
        numbers = {key: value for key, value in validation.items() if isinstance(value, float)}
        systems.append(System(name, *_ranks(scores, questions, documents), numbers))
    hits = _hits(questions[:SHOWN], documents, _scores(trained, questions[:SHOWN], documents), warm, trained)
    return systems, hits


def _warm_started(result: TrainResult) -> Afterword:
    first = RunFolder(result.folder).first()
    model = result.model
    copy = Afterword.from_backbone(
        model.backbone, settings=model.config.settings, embedding_dimension=model.config.embedding_dimension
    )
    if first is not None:
        copy.parts.load_state_dict(first.weights)
    return copy


def _scores(encoder: Encoder, questions: list[dict[str, str]], documents: list[dict[str, str]]) -> np.ndarray:
    """Return cosines, `(questions, documents)`."""
    as_query = getattr(encoder, "encode_query", encoder.encode)
    as_document = getattr(encoder, "encode_document", encoder.encode)
    q = np.asarray(as_query([question["text"] for question in questions]))
    d = np.asarray(as_document([document["text"] for document in documents]))
    q, d = (v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for v in (q, d))
    scores: np.ndarray = q @ d.T
    return scores


def _ranks(scores: np.ndarray, questions: list[dict[str, str]], documents: list[dict[str, str]]) -> tuple[float, float]:
    place = {document["id"]: i for i, document in enumerate(documents)}
    right = np.array([place[question["document"]] for question in questions])
    own = scores[np.arange(len(questions)), right]
    ranks = 1 + (scores > own[:, None]).sum(axis=1)
    return float((ranks == 1).mean()), float((1 / ranks).mean())


def _hits(
    questions: list[dict[str, str]],
    documents: list[dict[str, str]],
    scores: np.ndarray,
    before: Afterword,
    after: Afterword,
) -> list[Hit]:
    texts = [question["text"] for question in questions]
    decoded_before, decoded_after = (
        model.decode(texts, max_new_tokens=28, repetition_penalty=PENALTY) for model in (before, after)
    )
    titles = {document["id"]: document["title"] for document in documents}
    hits = []
    for row, question in enumerate(questions):
        best = np.argsort(-scores[row], kind="stable")[:3]
        found = [(documents[i]["title"], round(float(scores[row, i]), 4)) for i in best]
        hits.append(Hit(question["text"], decoded_before[row], decoded_after[row], found, titles[question["document"]]))
    return hits


def _report(stages: Stages, result: TrainResult, systems: list[System], hits: list[Hit]) -> DemoReport:
    model = result.model
    return DemoReport(
        backbone=model.config.backbone,
        teacher=model.config.teacher.get("name", ""),
        model=str(result.folder / "model"),
        fingerprint=model.fingerprint,
        queries=len(stages.queries()),
        steps=result.steps,
        seconds={name: round(value, 1) for name, value in stages.seconds.items()},
        machine=describe_machine(model.device, model.backbone.dtype),
        day=date.today().isoformat(),
        systems=systems,
        curve=result.validation,
        hits=hits,
    )


def _lines(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in demo_file(name).read_text(encoding="utf-8").splitlines()]
