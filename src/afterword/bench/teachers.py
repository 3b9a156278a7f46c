"""The stages of a teacher's training, timed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from accelerate import Accelerator

from afterword.backbone.backbone import Backbone
from afterword.backbone.cost import Cost
from afterword.bench.cases import Trial
from afterword.bench.grid import Grid
from afterword.bench.run import Row, grid_rows
from afterword.bench.work import make_work
from afterword.flow.progress import Watcher
from afterword.teacher.adapters import Adapter, LoraSettings
from afterword.teacher.llm import LLMTeacher
from afterword.training.loop import Loop
from afterword.training.mntp import MNTPObjective
from afterword.training.run_folder import RunFolder
from afterword.training.simcse import SimCSEObjective
from afterword.training.teacher_settings import TeacherSettings
from afterword.training.train_teacher import llm2vec_pooling


def bench_teacher(backbone: Backbone, stage: str, grid: Grid, watcher: Watcher) -> list[Row]:
    """Time steps of a stage, `mntp` or `simcse`, with the default settings (see `teacher_trial`)."""
    settings = TeacherSettings(train_tokens=512, validation=0)

    def prepare(length: int, batch: int, folder: Path) -> Trial:
        texts = make_work(backbone, batch * grid.turns, length, 1).queries
        return teacher_trial(backbone, texts, batch, stage, settings, folder)

    return grid_rows(backbone, grid, prepare, watcher)


def teacher_trial(
    backbone: Backbone, texts: list[str], batch: int, stage: str, settings: TeacherSettings, folder: Path
) -> Trial:
    """Steps of a stage: masking or two noisy passes, backward through the frozen layers, the optimizer.

    Operations are the least that the stage takes: a pass forwards and one back to the adapters of the lowest layer, and
    for `mntp` the vocabulary head over masked tokens. What gradient caching runs twice is no merit.
    """
    cost = Cost.of(backbone.model)
    teacher = LLMTeacher(backbone, llm2vec_pooling(), max_seq_length=settings.train_tokens)
    rows = teacher.rows(texts)
    whole = [teacher.whole(row) for row in rows]
    adapter = Adapter(backbone, LoraSettings(), settings.seed)
    steps = len(texts) // batch
    if stage == "mntp":
        settings = replace(settings, mntp_batch=batch, mntp_steps=steps)
    else:
        settings = replace(settings, simcse_batch=batch, simcse_steps=steps)
    objective = (
        MNTPObjective(backbone, adapter, whole, [], settings)
        if stage == "mntp"
        else SimCSEObjective(teacher, adapter, rows, [], settings)
    )
    accelerator = Accelerator(cpu=backbone.device.type == "cpu")
    loop = Loop(objective, settings.loop(stage, len(objective)), RunFolder(folder), accelerator)
    adapted = sum(parameter.numel() for parameter in adapter.parameters())

    def count() -> tuple[float, float]:
        views = 2 if stage == "simcse" else 1
        tokens = views * sum(map(len, whole))
        attention = views * sum(3 * 4 * cost.attention * len(row) ** 2 for row in whole)
        head = 4 * cost.head * settings.mask_share * tokens if stage == "mntp" else 0.0
        flops = 2 * cost.forward(tokens) + 6 * adapted * tokens + attention + head
        return tokens / steps, flops / steps

    return Trial(loop.step, batch, count, adapter.remove)
