"""Evaluations that nobody ran: made-up scores and items, in the shape of the paper's tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from afterword.evaluation.results import EncoderScores, Evaluation, Items, TaskScore

PAPER = {
    "Retrieval": ("ndcg_at_10", "mean", 10, 0.42),
    "Reranking": ("map_at_1000", "mean", 2, 0.45),
    "Clustering": ("v_measure", "mean", 8, 0.47),
    "Pair classification": ("max_ap", "average_precision", 3, 0.78),
    "Classification": ("accuracy", "mean", 8, 0.72),
    "STS": ("cosine_spearman", "spearman", 9, 0.76),
    "Summarization": ("cosine_spearman", "spearman", 1, 0.29),
}
APART = {"Reasoning": ("ndcg_at_10", "mean", 12, 0.14), "Safety": ("top_5_rate", "mean", 1, 0.47)}


def items_of(kind: str, task: int, score: float, skill: float, count: int) -> Items:
    """Items of a task that all encoders share, seen by an encoder with some skill."""
    shared, own = np.random.default_rng([task, 1]), np.random.default_rng([task, round(1e6 * skill)])
    base = shared.normal(size=count)
    if kind == "mean":
        return Items("mean", np.clip(score + 0.3 * base + 0.05 * own.normal(size=count), 0, 1).tolist())
    gold = base if kind == "spearman" else (base > 0).astype(float)
    return Items(kind, (base + (1.2 - skill) * own.normal(size=count)).tolist(), gold.round(1).tolist())  # type: ignore[arg-type]


def evaluation(
    names: Sequence[str] = ("mean pooling", "all-MiniLM-L6-v2", "runs/first/model"),
    plan: dict[str, tuple[str, str, int, float]] | None = None,
    count: int = 200,
) -> Evaluation:
    encoders = []
    for e, name in enumerate(names):
        tasks: dict[str, TaskScore] = {}
        for category, (metric, kind, number, level) in (PAPER | APART if plan is None else plan).items():
            for _ in range(number):
                t = len(tasks)
                skill = level + 0.03 * e * (1 + t % 4) + 0.1 * np.sin(t)
                score = float(np.clip(skill if category != "Safety" else level - 0.05 * e, 0, 1))
                task = f"{category.replace(' ', '')}Task{t:02d}" + ("HardNegatives.v2" if t % 7 == 3 else "")
                sides = {"query": f"Generate text that answers this question {t}\nquery: ", "document": "Summarize: "}
                tasks[task] = TaskScore(
                    task=task,
                    category=category,
                    metric=metric,
                    score=score,
                    prompts={"text": ""} if e == 1 else sides,
                    size={"queries": count, "documents": 8_674},
                    texts=9_000 + t,
                    tokens=None if e == 1 else 50 * (9_000 + t),
                    seconds=12.5 * (e + 1),
                    items=None if kind == "v" else items_of(kind, t, score, skill, count),
                    versions={"data": f"{t:04x}b1c5", "mteb": "2.26.24"},
                )
        facts: dict[str, str | int] = {"dimension": 384 * (e + 1), "dtype": "bfloat16", "batch": 32, "length": 512}
        encoders.append(EncoderScores(name, f"{e:03x}4f5a6b7c8d9", facts, tasks))
    return Evaluation(
        suites=("mteb-eng-v2", "bright", "advbench-ir") if plan is None else ("local folder",),
        encoders=tuple(encoders),
        skipped={"MSMARCO": "its data are not on this machine and no hub can be reached"},
        facts={"day": "2026-05-04", "processor": "x86_64, 16 threads", "seed": 0, "sampling": "at most 1,000 queries"},
    )
