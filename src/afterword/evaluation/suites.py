"""Suites by name, and any task or benchmark that mteb knows."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

import mteb
from mteb.abstasks import AbsTask

from afterword.errors import SettingError
from afterword.evaluation.hub_safety import AdvBenchIR
from afterword.evaluation.local_tasks import LocalTask
from afterword.evaluation.results import SAFETY

ENGLISH = "MTEB(eng, v2)"
LITE = (
    "ArguAna",
    "ClimateFEVERHardNegatives",
    "AskUbuntuDupQuestions",
    "ArXivHierarchicalClusteringP2P",
    "MedrxivClusteringP2P.v2",
    "SprintDuplicateQuestions",
    "Banking77Classification",
    "ImdbClassification",
    "BIOSSES",
    "STS17",
)
"""The ten tasks of the paper's ablations (Table 6)."""
BRIGHT = tuple(
    f"Bright{domain}Retrieval"
    for domain in (
        "Biology",
        "EarthScience",
        "Economics",
        "Psychology",
        "Robotics",
        "Stackoverflow",
        "SustainableLiving",
        "Pony",
        "Leetcode",
        "Aops",
        "TheoremQATheorems",
        "TheoremQAQuestions",
    )
)
"""The twelve standard domains (Su et al. 2025, arXiv 2407.12883)."""


def _english(names: Sequence[str] | None = None) -> list[AbsTask]:
    """Return tasks of the English benchmark with its choice of splits and languages."""
    tasks = mteb.get_benchmark(ENGLISH).tasks
    return [task for task in tasks if names is None or task.metadata.name in names]


SUITES: dict[str, Callable[[], list[AbsTask]]] = {
    "mteb-eng-v2": _english,
    "mteb-lite": lambda: _english(LITE),
    "bright": lambda: [mteb.get_task(name) for name in BRIGHT],
    "advbench-ir": lambda: [AdvBenchIR()],
}


def suite_tasks(name: str) -> list[AbsTask]:
    """Return the tasks of a suite of ours, of a benchmark of mteb, or one task of mteb.

    Raises:
        SettingError: There is none of that name; names like it are listed.
    """
    if name in SUITES:
        return SUITES[name]()
    benchmarks = [benchmark.name for benchmark in mteb.get_benchmarks()]
    if name in benchmarks:
        return list(mteb.get_benchmark(name).tasks)
    try:
        return [mteb.get_task(name)]
    except KeyError:
        known = [*SUITES, *benchmarks, *(task.metadata.name for task in mteb.get_tasks())]
        near = difflib.get_close_matches(name, known, n=3) or list(SUITES)
        raise SettingError(f"there is no suite, benchmark or task {name!r}; there is {', '.join(near)}") from None


_CATEGORIES = {
    "Retrieval": "Retrieval",
    "InstructionRetrieval": "Retrieval",
    "Reranking": "Reranking",
    "InstructionReranking": "Reranking",
    "Clustering": "Clustering",
    "PairClassification": "Pair classification",
    "Classification": "Classification",
    "MultilabelClassification": "Classification",
    "STS": "STS",
    "Summarization": "Summarization",
}


def category_of(task: AbsTask) -> str:
    """Return the column of a report that a task belongs to.

    Raises:
        SettingError: The task is of a type that has none, such as one of images.
    """
    name, kind = task.metadata.name, task.metadata.type
    if getattr(task, "safety", False):
        return SAFETY
    if name.startswith("Bright") or (isinstance(task, LocalTask) and task.found.group == "reasoning"):
        return "Reasoning"
    if kind not in _CATEGORIES:
        raise SettingError(f"{name} is a task of type {kind}; known here are {', '.join(_CATEGORIES)}")
    return _CATEGORIES[kind]
