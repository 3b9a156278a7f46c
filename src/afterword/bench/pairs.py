"""Two ways to encode the same texts, side by side: one after the other within each repeat, so that noise meets both."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from statistics import median
from typing import Any

from afterword.backbone.backbone import Backbone
from afterword.backbone.compiled import eagerly
from afterword.bench.clock import timed_in_turn
from afterword.bench.grid import Grid
from afterword.bench.work import cut_texts
from afterword.errors import SettingError
from afterword.flow.progress import Watcher
from afterword.model.inputs import Inputs
from afterword.model.model import Afterword
from afterword.model.settings import ModelSettings

Row = dict[str, Any]
BATCHES = 4
"""Batches of texts in one repeat."""


def bench_instruction(backbone: Backbone, grid: Grid, shape: ModelSettings, watcher: Watcher) -> list[Row]:
    """Time encoding behind an instruction that is a third of each text: run once for all, and once for each text.

    Raises:
        SettingError: A text is too short to have a third.
    """
    if min(grid.query_tokens) < 3:
        raise SettingError(f"query_tokens {grid.query_tokens}: a third of a text is an instruction, so 3 at least")
    shared, repeated = (Afterword.from_backbone(backbone, settings=shape) for _ in range(2))
    repeated.inputs = Inputs(backbone, repeated.config, share=False)
    rows = []
    for length, batch in product(grid.query_tokens, grid.batch_sizes):
        words = length // 3
        prompt = cut_texts(backbone.text, 1, words, seed=1, spread=0.0)[0] + " "
        texts = cut_texts(backbone.text, BATCHES * batch, length - words, seed=0)
        encode = [partial(model.encode, texts, prompt=prompt, batch_size=batch) for model in (shared, repeated)]
        row = side_by_side(backbone, grid, dict(zip(("shared", "repeated"), encode, strict=True)), len(texts))
        rows.append({"tokens": length, "instruction": words, "batch": batch, **row})
        watcher.advance(1, f"{row['faster by']} times as fast")
    return rows


def bench_compiled(backbone: Backbone, grid: Grid, shape: ModelSettings, watcher: Watcher) -> list[Row]:
    """Time encoding with compiled layers and with layers as they are; the first call, which compiles, stands apart."""
    model = Afterword.from_backbone(backbone, settings=shape)
    model.compile()
    rows = []
    for length, batch in product(grid.query_tokens, grid.batch_sizes):
        texts = cut_texts(backbone.text, BATCHES * batch, length, seed=0)
        encode = partial(model.encode, texts, batch_size=batch)
        began = time.perf_counter()
        encode()
        first = round(time.perf_counter() - began, 1)
        row = side_by_side(backbone, grid, {"compiled": encode, "eager": partial(_eager, encode)}, len(texts))
        rows.append({"tokens": length, "batch": batch, "first s": first, **row})
        watcher.advance(1, f"{row['faster by']} times as fast")
    return rows


def _eager(work: Callable[[], object]) -> object:
    with eagerly():
        return work()


def side_by_side(backbone: Backbone, grid: Grid, ways: Mapping[str, Callable[[], object]], items: int) -> Row:
    """Time two ways in turn; the first is compared with the second, by the median over repeats of their ratio."""
    timings = timed_in_turn(list(ways.values()), backbone.device, grid.warmup, grid.repeats)
    row: Row = {}
    for name, timing in zip(ways, timings, strict=True):
        row |= {f"{name} items/s": round(items / timing.median, 2), f"{name} spread": round(timing.spread, 3)}
    first, second = (timing.seconds for timing in timings)
    return {**row, "faster by": round(median(b / a for a, b in zip(first, second, strict=True)), 3)}
