"""Three quick measures of an encoder on local files: STS-B dev, Banking77, CLINC domains.

    python benchmarks/quality.py DATA ENCODER [ENCODER ...]

DATA is a folder with `sts/stsb_dev.jsonl.gz`, `classification/banking77.jsonl.gz` and
`clustering/clinc150_domains.jsonl.gz`. An ENCODER is `mean:BACKBONE` (mean of the LLM's last states), `st:NAME` (a
SentenceTransformer; `st:demo` is the packaged one), `random:RUN`, `warm:RUN` or `trained:RUN` (the model of a run
folder with random heads, after its warm start, and at its end). Seeded subsets, unless --full: they are for comparing
encoders with each other, not with published scores.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import v_measure_score

Embed = Callable[[list[str]], np.ndarray]


def read(path: Path) -> list[dict]:
    """Return the rows of a gzipped JSONL file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def sample(rows: list[dict], count: int | None, seed: int = 0) -> list[dict]:
    """Return `count` rows drawn with a seed, or all."""
    return rows if count is None or count >= len(rows) else random.Random(seed).sample(rows, count)


def sts(embed: Embed, data: Path, pairs: int | None) -> float:
    """Spearman correlation (×100) of cosines with human scores."""
    rows = sample(read(data / "sts" / "stsb_dev.jsonl.gz"), pairs)
    first, second = (unit(embed([row[f"sentence{side}"] for row in rows])) for side in (1, 2))
    return 100 * float(spearmanr((first * second).sum(axis=1), [row["score"] for row in rows]).statistic)


def banking(embed: Embed, data: Path, train: int | None, test: int | None) -> float:
    """Accuracy (×100) of logistic regression on the vectors."""
    rows = read(data / "classification" / "banking77.jsonl.gz")
    fit = sample([row for row in rows if row["split"] == "train"], train)
    held = sample([row for row in rows if row["split"] == "test"], test)
    x, held_x = (unit(embed([row["text"] for row in part])) for part in (fit, held))
    scale = 1 / np.maximum(x.std(axis=0), 1e-9)
    classifier = LogisticRegression(max_iter=1000).fit(x * scale, [row["label"] for row in fit])
    return 100 * float(classifier.score(held_x * scale, [row["label"] for row in held]))


def clinc(embed: Embed, data: Path, texts: int | None) -> float:
    """V-measure (×100) of k-means with as many clusters as domains."""
    rows = sample(read(data / "clustering" / "clinc150_domains.jsonl.gz"), texts)
    labels = [row["label"] for row in rows]
    found = KMeans(len(set(labels)), n_init=10, random_state=0).fit_predict(unit(embed([row["text"] for row in rows])))
    return 100 * float(v_measure_score(labels, found))


def measure(embed: Embed, data: Path, full: bool = False) -> dict[str, float]:
    """Return all three measures."""
    return {
        "stsb_dev": sts(embed, data, None if full else 500),
        "banking77": banking(embed, data, None if full else 800, None if full else 300),
        "clinc_domains": clinc(embed, data, None if full else 700),
    }


def unit(vectors: np.ndarray) -> np.ndarray:
    """Return rows of length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def open_encoder(name: str, prompt_name: str | None) -> Embed:
    """Return what turns texts into vectors."""
    from afterword import Afterword, BackboneSettings, load_backbone, open_teacher
    from afterword.model.heads import random_heads
    from afterword.teacher.llm import LLMTeacher
    from afterword.training.run_folder import RunFolder

    kind, _, rest = name.partition(":")
    if kind == "mean":
        return LLMTeacher(load_backbone(BackboneSettings(rest)), prompt="").encode
    if kind == "st":
        return open_teacher(rest).encode
    model = Afterword.from_pretrained(str(Path(rest) / "model"))
    if kind in ("random", "warm"):
        model.parts.load_state_dict(RunFolder(rest).first().weights)
    if kind == "random":
        random_heads(model.parts, seed=0)
    return lambda texts: model.encode(texts, prompt_name=prompt_name)


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("encoders", nargs="+")
    parser.add_argument("--prompt-name", help="saved prompt that our models take, such as document")
    parser.add_argument("--full", action="store_true", help="use the whole sets")
    arguments = parser.parse_args()
    print("| encoder | STS-B dev | Banking77 | CLINC domains | seconds |\n|---|---|---|---|---|")
    for name in arguments.encoders:
        began = time.perf_counter()
        scores = measure(open_encoder(name, arguments.prompt_name), arguments.data, arguments.full)
        print(
            f"| {name} | " + " | ".join(f"{v:.1f}" for v in scores.values()) + f" | {time.perf_counter() - began:.0f} |"
        )


if __name__ == "__main__":
    main()
