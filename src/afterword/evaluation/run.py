"""Scores of encoders on tasks, one task after the other, each kept as soon as it is there."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import mteb
from mteb.abstasks import AbsTask
from sklearn.exceptions import ConvergenceWarning

from afterword.corpus.lock import FolderLock
from afterword.encoder import Encoder
from afterword.errors import AfterwordError, SettingError
from afterword.evaluation.adapter import MtebEncoder, Work
from afterword.evaluation.exclusions import honour_exclusions
from afterword.evaluation.instructions import Prompter, read_instructions
from afterword.evaluation.items import items_of, sizes_of
from afterword.evaluation.local import find_sets
from afterword.evaluation.local_data import Sampling
from afterword.evaluation.local_tasks import local_task
from afterword.evaluation.notes import Notes
from afterword.evaluation.results import EncoderScores, Evaluation, TaskScore
from afterword.evaluation.settings import EvaluateSettings
from afterword.evaluation.suites import category_of, suite_tasks
from afterword.machine import package_versions, processor_name

Report = Callable[[str, str, int, int], None]
Progress = Callable[[int, int], None]
Source = Encoder | Callable[[], Encoder]


def evaluate(
    encoders: Mapping[str, Source] | Encoder,
    suites: Sequence[str] = (),
    data: str | Path | None = None,
    out: str | Path = "evaluation",
    settings: EvaluateSettings | None = None,
    *,
    report: Report | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Measure encoders on suites of mteb and on a folder of labelled files.

    Results are kept as they come, in mteb's layout under `out/results` with notes beside them: what was interrupted
    goes on, and a second run encodes nothing. A checkpoint, prompt, type or length of its own has results of its own.

    Args:
        encoders: An encoder, or encoders by name; a function is called when its turn comes, so that two large ones need
            not be in memory together.
        suites: Names of suites (`mteb-eng-v2`, `mteb-lite`, `bright`, `advbench-ir`), of benchmarks or tasks of mteb.
        data: A folder of labelled files.
        out: Folder of the results.
        settings: How.
        report: Called before each task with encoder, task, its number and their number.
        progress: Called within a task with the texts of a side that are encoded, and their number.

    Returns:
        All scores, and the tasks that could not run with the reason.

    Raises:
        SettingError: There is nothing to measure on, or no such suite.
        MissingPartError: There is no such folder.
        WorkError: An encoder failed, or another process is writing to the folder; what was finished stays.
    """
    settings = settings or EvaluateSettings()
    tasks = _tasks(suites, data, settings)
    named: Mapping[str, Source] = encoders if isinstance(encoders, Mapping) else {"": encoders}
    if not named:
        raise SettingError("there is no encoder to measure")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    skipped: dict[str, str] = {}
    scores = []
    lock = FolderLock(folder)
    lock.acquire()
    try:
        for name, source in named.items():
            encoder = source if isinstance(source, Encoder) else source()
            scores.append(_measure(name, encoder, tasks, folder, settings, skipped, report, progress))
            del encoder
    finally:
        lock.release()
    facts: dict[str, str | int] = {"day": date.today().isoformat(), "seed": settings.seed}
    if settings.sample is not None:
        facts["sample"] = f"{settings.sample} items of each local set"
    facts |= {
        "processor": processor_name(),
        "cores": os.cpu_count() or 1,
        **package_versions(),
        "mteb": version("mteb"),
    }
    where = () if data is None else (Path(data).expanduser().resolve().name,)
    return Evaluation((*suites, *where), tuple(scores), skipped, facts)


def _tasks(suites: Sequence[str], data: str | Path | None, settings: EvaluateSettings) -> list[AbsTask]:
    tasks = [task for suite in suites for task in suite_tasks(suite)]
    if data is not None:
        sampling = Sampling(settings.sample, settings.seed)
        tasks += [local_task(found, sampling) for found in find_sets(data)[0]]
    if not tasks:
        raise SettingError("there is nothing to measure on: name a suite, or a folder with --data")
    unique = {task.metadata.name: task for task in tasks}
    wanted = {
        name: task
        for name, task in unique.items()
        if not settings.only or any(part.lower() in name.lower() for part in settings.only)
    }
    if not wanted:
        raise SettingError(f"no task has {' or '.join(settings.only)} in its name; there are {', '.join(unique)}")
    for task in wanted.values():
        category_of(task)
    return list(wanted.values())


def _measure(
    name: str,
    encoder: Encoder,
    tasks: Sequence[AbsTask],
    folder: Path,
    settings: EvaluateSettings,
    skipped: dict[str, str],
    report: Report | None,
    progress: Progress | None,
) -> EncoderScores:
    """Measure one encoder on all tasks."""
    prompter = Prompter.of(encoder, settings.instructions, read_instructions(settings.instructions_file))
    adapter = MtebEncoder(encoder, name, prompter, settings.batch_size)
    adapter.progress = progress
    notes = Notes(folder, adapter.meta)
    scores: dict[str, TaskScore] = {}
    for number, task in enumerate(tasks):
        if report:
            report(str(adapter.meta.name), task.metadata.name, number, len(tasks))
        done = notes.read(task.metadata.name, str(task.metadata.dataset.get("revision")))
        if done is None:
            reason = _load(task)
            if reason is not None:
                skipped[task.metadata.name] = reason
                continue
            done = _carry_out(task, adapter, folder)
            notes.write(done)
            task.dataset, task.data_loaded = None, False  # 41 tasks would add up; the next encoder reads them again
        scores[task.metadata.name] = done
    return EncoderScores(name or str(adapter.meta.name), adapter.revision, adapter.facts, scores)


def _load(task: AbsTask) -> str | None:
    """Load the data of a task; return why that cannot be done.

    An error of the data itself (a broken local file) is ours and is raised.
    """
    if task.data_loaded:
        return None
    quiet = logging.getLogger("huggingface_hub")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        task.load_data()
        honour_exclusions(task)
    except AfterwordError:
        raise
    except Exception as error:  # the hub, its cache, data sets with code of their own: each has errors of its own
        source = task.metadata.dataset
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        return f"needs the data set {source['path']} (revision {source.get('revision')}) of the hub: {first}"
    finally:
        quiet.setLevel(level)
    return None


def _carry_out(task: AbsTask, adapter: MtebEncoder, folder: Path) -> TaskScore:
    """Run one task with mteb, and read what it found."""
    adapter.work = Work()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".predictions-") as predictions, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # mteb fixes the steps of its logistic regression
        kwargs: Any = {"batch_size": adapter.batch_size, "show_progress_bar": False}
        found = mteb.evaluate(
            cast("Any", adapter),  # its protocol wants arguments of __init__ that only a registered model needs
            task,
            cache=mteb.ResultCache(folder),
            overwrite_strategy="always",
            prediction_folder=predictions,
            encode_kwargs=kwargs,
            show_progress_bar=False,
            co2_tracker=False,
        )
        result = found.task_results[0]
        kept: dict[str, Any] = {}
        for file in Path(predictions).glob("*.json"):
            kept = json.loads(file.read_text(encoding="utf-8"))
    splits = list(result.scores.values())
    only = splits[0][0] if len(splits) == 1 and len(splits[0]) == 1 else {}
    return TaskScore(
        task=task.metadata.name,
        category=category_of(task),
        metric=task.metadata.main_score,
        score=float(result.get_score()),
        prompts=adapter.work.prompts,
        size=sizes_of(task),
        texts=adapter.work.texts,
        tokens=adapter.work.tokens,
        seconds=round(adapter.work.seconds, 4),
        items=items_of(task, kept, only),
        versions={"data": str(task.metadata.dataset.get("revision")), "mteb": str(result.mteb_version)},
    )
