"""How fast the stores of an index are built and searched, and how much FAISS finds.

    python benchmarks/search.py TEXTS OUT [--count 100000] [--texts 4000] [--encoder teacher:demo]

TEXTS is a file of real texts (JSONL, CSV, text, …). Some of them are encoded, the last 200 as queries. The others are
mixed in pairs, with a little noise, until there are COUNT vectors: so they lie as real ones do, and nobody has to wait
for an encoder. Build time is that of the store alone: adding and finishing. Every store is opened anew for searching;
one search goes before those that are timed.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from afterword.corpus.readers import read_rows
from afterword.encoder import encode_array
from afterword.flow.open_encoder import open_encoder
from afterword.machine import package_versions, processor_name
from afterword.search.documents import Document
from afterword.search.store import VectorStore, open_store

QUERIES, TOP, BLOCK = 200, 10, 1024


def unit(vectors: np.ndarray) -> np.ndarray:
    """Return rows of length 1."""
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def mixed(vectors: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """Yield `count` vectors in blocks: each between two real ones, nearer to one."""
    draw = np.random.default_rng(0)
    for start in range(0, count, BLOCK):
        number = min(BLOCK, count - start)
        first, second = vectors[draw.integers(0, len(vectors), (2, number))]
        share = draw.uniform(0.5, 1.0, (number, 1))
        noise = draw.standard_normal(first.shape) * 0.2 / np.sqrt(first.shape[1])
        yield unit(share * first + (1 - share) * second + noise)


def build(store: VectorStore, vectors: np.ndarray, texts: list[str], count: int) -> float:
    """Fill a store and return the seconds that it took itself."""
    store.begin()
    spent, start = 0.0, 0
    chunks = (
        block[at : at + store.chunk] for block in mixed(vectors, count) for at in range(0, len(block), store.chunk)
    )
    for chunk in chunks:
        documents = [
            Document(f"d{start + i}", texts[(start + i) % len(texts)], fields={"group": f"g{(start + i) % 100}"})
            for i in range(len(chunk))
        ]
        began = time.perf_counter()
        store.add(documents, chunk)
        spent += time.perf_counter() - began
        start += len(chunk)
    began = time.perf_counter()
    store.finish()
    store.close()
    return spent + time.perf_counter() - began


def search(store: VectorStore, queries: np.ndarray, at_once: int, where: str | None = None) -> tuple[float, list]:
    """Return queries a second and the ids found."""
    store.search(queries[:1], TOP, where)
    began, found = time.perf_counter(), []
    for start in range(0, len(queries), at_once):
        found += [{hit.id for hit in hits} for hits in store.search(queries[start : start + at_once], TOP, where)]
    return len(queries) / (time.perf_counter() - began), found


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts_file", metavar="TEXTS")
    parser.add_argument("out", type=Path, help="folder for the indexes; what is in it is replaced")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--texts", type=int, default=4000, help="texts to encode, queries included")
    parser.add_argument("--encoder", default="teacher:demo")
    parser.add_argument("--stores", nargs="+", default=["numpy", "lancedb", "faiss"])
    arguments = parser.parse_args()
    texts = [text for _, text in islice(read_rows(arguments.texts_file), arguments.texts)]
    began = time.perf_counter()
    vectors = unit(encode_array(open_encoder(arguments.encoder, "cpu"), texts))
    print(f"{len(texts)} texts encoded in {time.perf_counter() - began:.0f} s, dimension {vectors.shape[1]}")
    print(f"{processor_name()}; {package_versions()}; numpy {np.__version__}\n")
    queries, vectors, texts = vectors[-QUERIES:], vectors[:-QUERIES], texts[:-QUERIES]
    print(
        f"| store, {arguments.count} vectors | build, s | MB | one query, 1/s | 100 at once, 1/s | with a condition, "
        "1/s | recall@10 |\n|---|---|---|---|---|---|---|"
    )
    truth = None
    for name in arguments.stores:
        folder = arguments.out / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        spent = build(open_store(name, folder, vectors.shape[1]), vectors, texts, arguments.count)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
        store = open_store(name, folder, vectors.shape[1])
        alone, found = search(store, queries, 1)
        together, _ = search(store, queries, 100)
        chosen, _ = search(store, queries[:20], 20, "group = 'g7'")
        truth = truth or found
        recall = np.mean([len(a & b) / TOP for a, b in zip(found, truth, strict=True)])
        print(f"| {name} | {spent:.1f} | {size:.0f} | {alone:.0f} | {together:.0f} | {chosen:.1f} | {recall:.3f} |")


if __name__ == "__main__":
    main()
