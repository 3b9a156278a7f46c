"""Afterword beside the authors' package, in one run: ``compare.py PEERS_PYTHON BACKBONE_FOLDER TEACHER_FOLDER OUT``.

PEERS_PYTHON is the interpreter of the environment that README.md describes; BACKBONE_FOLDER a Hugging Face folder,
TEACHER_FOLDER a SentenceTransformer folder. Each measurement is a process of its own; the whole round is done
`--rounds` times, one system after the other, so that a noisy machine is noisy for all. Writes OUT.json and OUT.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from transformers import AutoTokenizer

from afterword.backbone.text import TextTokenizer
from afterword.bench.report import markdown_table
from afterword.bench.work import cut_texts
from afterword.machine import processor_name

HERE = Path(__file__).parent
TRAIN = {
    "authors, checkpointing": ("official.py", {"task": "train", "checkpointing": True}),
    "authors, no checkpointing": ("official.py", {"task": "train", "checkpointing": False}),
    "Afterword": ("ours.py", {"task": "train"}),
}
ENCODE = {
    "authors": ("official.py", {"task": "encode"}),
    "Afterword": ("ours.py", {"task": "encode"}),
    "mean pooling (sentence-transformers)": ("ours.py", {"task": "mean"}),
}
HYDE = {"generate 64, then encode": ("ours.py", {"task": "hyde"}), "Afterword": ("ours.py", {"task": "encode"})}


def main() -> None:
    """Measure all and write the tables."""
    asked = arguments()
    text = TextTokenizer(AutoTokenizer.from_pretrained(asked.backbone))
    common = {
        "backbone": str(asked.backbone),
        "teacher": str(asked.teacher),
        "dtype": asked.dtype,
        "threads": asked.threads,
        "n_tokens": 10,
        "teacher_dimension": 384,
        "max_length": 512,
        "warmup": 1,
    }
    train_texts = {"queries": cut_texts(text, 64, 25, 0), "responses": cut_texts(text, 64, 40, 1)}
    suites: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("train: 25 + 40 tokens, batch 16", TRAIN, {**train_texts, "batch_size": 16, "repeats": 2}),
        (
            "encode: mixed lengths around 60 tokens, batch 32",
            ENCODE,
            {"queries": mixed(text), "batch_size": 32, "repeats": 2},
        ),
        (
            "encode: texts of 100 tokens and more, batch 32",
            {name: ENCODE[name] for name in list(ENCODE)[1:]},
            {"queries": cut_texts(text, 64, 150, 3, spread=0.3), "batch_size": 32, "repeats": 2},
        ),
        (
            "an answer's embedding: 25 tokens, batch 16",
            HYDE,
            {"queries": cut_texts(text, 16, 25, 4), "batch_size": 16, "repeats": 2},
        ),
    ]
    tables = []
    for title, systems, work in suites:
        if asked.only and asked.only not in title:
            continue
        tables.append((title, measure(asked, systems, {**common, **work})))
        write(asked, tables)


def mixed(text: TextTokenizer) -> list[str]:
    """Return short, middling and long texts in a mixed order."""
    parts = [cut_texts(text, 32, tokens, tokens) for tokens in (15, 45, 120)]
    return [item for group in zip(*parts, strict=True) for item in group]


def measure(asked: argparse.Namespace, systems: dict[str, Any], work: dict[str, Any]) -> list[dict[str, Any]]:
    """Run every system once a round and return a row for each."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in systems}
    for turn in range(asked.rounds):
        for name, (script, own) in systems.items():
            python = asked.peers if script == "official.py" else sys.executable
            found[name].append(run(python, HERE / script, {**work, **own}))
            print(f"round {turn + 1}: {name}: {found[name][-1]['seconds']}", file=sys.stderr, flush=True)
    rows = []
    for name, results in found.items():
        seconds = [s for result in results for s in result["seconds"]]
        rate = results[0]["items"] / median(seconds)
        rows.append(
            {
                "system": name,
                "items/s": round(rate, 2),
                "spread": round((max(seconds) - min(seconds)) / 2 / median(seconds), 3),
                "peak GB": round(max(result["peak_memory"] for result in results) / 1e9, 2),
            }
        )
    ours = next(row for row in rows if row["system"] == "Afterword")
    for row in rows:
        row["Afterword is faster by"] = round(ours["items/s"] / row["items/s"], 2)
        row["Afterword's memory"] = round(ours["peak GB"] / row["peak GB"], 2)
    return rows


def run(python: str, script: Path, work: dict[str, Any]) -> dict[str, Any]:
    """Run one script on one piece of work in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "work.json", Path(folder) / "out.json"
        given.write_text(json.dumps(work), encoding="utf-8")
        subprocess.run([python, "-W", "ignore", str(script), str(given), str(result)], check=True, stdout=sys.stderr)
        return json.loads(result.read_text(encoding="utf-8"))


def write(asked: argparse.Namespace, tables: list[tuple[str, list[dict[str, Any]]]]) -> None:
    """Write what is there so far."""
    machine = f"{processor_name()}, {asked.threads} threads, {asked.dtype}, {date.today().isoformat()}"
    asked.out.with_suffix(".json").write_text(json.dumps({"machine": machine, "tables": tables}, indent=2) + "\n")
    parts = [f"### {title}\n\n{markdown_table(rows)}" for title, rows in tables]
    asked.out.with_suffix(".md").write_text("\n".join([*parts, machine, ""]))


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", help="python of the peers' environment")
    parser.add_argument("backbone", type=Path)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--only", help="measure only what has this in its title")
    return parser.parse_args()


if __name__ == "__main__":
    main()
