"""Carrying out a benchmark: a grid of trials, each a row of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import torch

from afterword.backbone.backbone import Backbone
from afterword.backbone.cost import Cost
from afterword.bench.cases import Trial, encode_trial, respond_trial, scratch, train_trial
from afterword.bench.ceiling import gemm_ceiling
from afterword.bench.clock import Timing, timed
from afterword.bench.grid import Grid
from afterword.bench.work import make_work
from afterword.flow.progress import Watcher
from afterword.model.settings import ModelSettings
from afterword.training.settings import TrainSettings

Row = dict[str, Any]
Prepare = Callable[[int, int, Path], Trial]


def bench_train(
    backbone: Backbone, grid: Grid, shape: ModelSettings, settings: TrainSettings, watcher: Watcher
) -> list[Row]:
    """Time training steps (see `train_trial`)."""

    def prepare(length: int, batch: int, folder: Path) -> Trial:
        work = make_work(backbone, batch * grid.turns, length, grid.response_tokens)
        return train_trial(backbone, work, batch, shape, settings, folder)

    return grid_rows(backbone, grid, prepare, watcher)


def bench_encode(
    backbone: Backbone, grid: Grid, shape: ModelSettings, instruction_tokens: int, watcher: Watcher
) -> list[Row]:
    """Time encoding of four batches at a time (see `encode_trial`), behind an instruction of a length."""
    prompt = make_work(backbone, 1, instruction_tokens, 1, seed=1).queries[0] + " " if instruction_tokens else ""

    def prepare(length: int, batch: int, _: Path) -> Trial:
        return encode_trial(backbone, make_work(backbone, 4 * batch, length, 1).queries, batch, shape, prompt)

    return grid_rows(backbone, grid, prepare, watcher)


def bench_respond(backbone: Backbone, grid: Grid, watcher: Watcher) -> list[Row]:
    """Time responding (see `respond_trial`)."""

    def prepare(length: int, batch: int, folder: Path) -> Trial:
        return respond_trial(
            backbone, make_work(backbone, batch, length, 1).queries, batch, grid.response_tokens, folder
        )

    return grid_rows(backbone, grid, prepare, watcher)


def floor(backbone: Backbone, grid: Grid, shape: ModelSettings) -> list[Row]:
    """Return what the arithmetic allows on this machine at best: nothing is run but matrix products."""
    cost, ceiling = Cost.of(backbone.model), gemm_ceiling(backbone)
    k, n, r = shape.n_thought + shape.n_compression, shape.n_compression, grid.response_tokens
    rows = []
    for q in grid.query_tokens:
        naive_attention = 3 * (cost.attending(q + k, q + k) + cost.attending(n + r, n + r))
        for name, flops in {
            "train": cost.training(q, k, n, r) + cost.training_attention(q, k, n, r),
            "train, alignment only": cost.training(q, k, 0, 0) + cost.training_attention(q, k, 0, 0),
            "train, naive": cost.naive_training(q, k, n, r) + naive_attention,
            "encode": cost.encoding(q, k) + cost.attending(q + k, q + k),
            "respond": cost.writing(q, r) + cost.attending(q + r, q + r),
        }.items():
            per_s = round(ceiling / flops, 2)
            rows.append({"what": name, "query": q, "GFLOP/item": round(flops / 1e9, 2), "items/s at most": per_s})
    return rows


def grid_rows(backbone: Backbone, grid: Grid, prepare: Prepare, watcher: Watcher) -> list[Row]:
    """Time a trial for each length and batch of a grid."""
    ceiling, rows = gemm_ceiling(backbone), []
    for length, batch in product(grid.query_tokens, grid.batch_sizes):
        with scratch() as folder, _steady():
            trial = prepare(length, batch, Path(folder))
            timing = timed(trial.work, backbone.device, grid.warmup, grid.repeats)
            tokens, flops = trial.count()
            trial.close()
        rows.append({"tokens": length, "batch": batch, **_numbers(timing, trial.items, tokens, flops, ceiling)})
        watcher.advance(1, f"{rows[-1]['items/s']} items/s")
    return rows


def _numbers(timing: Timing, items: int, tokens: float, flops: float, ceiling: float) -> Row:
    seconds = timing.median
    row: Row = {
        "s": round(seconds, 4),
        "spread": round(timing.spread, 3),
        "items/s": round(items / seconds, 2),
        "tokens/s": round(tokens / seconds, 1),
        "GFLOP/s": round(flops / seconds / 1e9, 1),
        "of ceiling": round(flops / seconds / ceiling, 3),
        "process GB": round(timing.process_bytes / 1e9, 2),
    }
    if timing.device_bytes is not None:
        row["device GB"] = round(timing.device_bytes / 1e9, 2)
    return row


@contextmanager
def _steady() -> Iterator[None]:
    """Draw nothing from the caller's generator, and leave it as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
