"""Training a teacher: MNTP, then SimCSE on the merged result, each with an adapter of its own (LLM2Vec)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from afterword.backbone.backbone import Backbone
from afterword.corpus.manifest import Manifest, open_or_create
from afterword.corpus.pairs import StsPairs
from afterword.encoder import hash_text
from afterword.errors import ArtefactError, InputError, MismatchError
from afterword.teacher.adapters import Adapter, LoraSettings, adapter_hash, merge_adapter
from afterword.teacher.checkpoint import is_teacher, load_adapted, save_teacher
from afterword.teacher.llm import LLMTeacher
from afterword.teacher.settings import PoolingSettings
from afterword.training.loop import Loop, held_run
from afterword.training.mntp import MNTPObjective
from afterword.training.objective import Objective
from afterword.training.order import rank
from afterword.training.run_folder import RunFolder
from afterword.training.simcse import SimCSEObjective
from afterword.training.teacher_settings import STAGES, TeacherSettings

KIND = "teacher training"
Report = Callable[[str, int, int, Mapping[str, float]], None]


def llm2vec_pooling() -> PoolingSettings:
    """Return how an LLM2Vec teacher embeds where nothing else is said."""
    return PoolingSettings(attention="bidirectional", prompt="")


@dataclass(frozen=True)
class TeacherResult:
    """What a teacher's training gave.

    Attributes:
        teacher: The trained teacher, its adapters merged.
        folder: Where it is saved; `load_teacher` and `--teacher` read it.
        validation: Measures on held-out texts by stage, first to last.
    """

    teacher: LLMTeacher
    folder: Path
    validation: dict[str, list[dict[str, Any]]]


@dataclass
class _Run:
    """A training being carried out."""

    backbone: Backbone
    base: str
    train: list[str]
    held_out: list[str]
    out: Path
    pooling: PoolingSettings
    lora: LoraSettings
    settings: TeacherSettings
    sts: StsPairs | None
    resume: bool
    report: Report | None
    adapters: list[Path] = field(default_factory=list)


def train_teacher(
    backbone: Backbone,
    texts: Sequence[str],
    out: str | Path,
    pooling: PoolingSettings | None = None,
    lora: LoraSettings | None = None,
    settings: TeacherSettings | None = None,
    *,
    sts: StsPairs | None = None,
    resume: bool = True,
    report: Report | None = None,
) -> TeacherResult:
    """Turn an LLM into an unsupervised text encoder (LLM2Vec, arXiv 2404.05961).

    Args:
        backbone: The LLM. Its weights are changed: a copy that nobody else needs.
        texts: What it learns from; nothing is known about them.
        out: Folder: `mntp/` and `simcse/`, each a run with a `teacher/` in it that can be used.
        pooling: How its states become an embedding.
        lora: Shape of the adapters.
        settings: How it is trained.
        sts: Pairs with a similarity, to measure on.
        resume: Go on where a run in this folder was cut; otherwise a folder that holds one is refused.
        report: Called after each step with the stage, the step, the number of steps and the losses.

    Raises:
        InputError: Fewer texts are left than are held out.
        MismatchError: The folder holds a run with other settings or data, or a later stage than these settings have.
        WorkError: Another process is training into the folder.
    """
    settings = settings or TeacherSettings()
    train, held_out = _hold_out(texts, settings)
    for stage in STAGES[STAGES.index(settings.stages[-1]) + 1 :]:
        if is_teacher(Path(out) / stage / "teacher"):  # whoever opens the folder would get that one
            raise MismatchError(
                f"{out} holds a teacher after {stage}, which {stage}_steps 0 leaves out: choose another folder"
            )
    run = _Run(
        backbone,
        backbone.fingerprint,
        train,
        held_out,
        Path(out),
        pooling or llm2vec_pooling(),
        lora or LoraSettings(),
        settings,
        sts,
        resume,
        report,
    )
    measured = {stage: _carry_out(run, stage) for stage in settings.stages}
    folder = run.out / settings.stages[-1] / "teacher"
    return TeacherResult(load_adapted(backbone, folder, run.base), folder, measured)


def _carry_out(run: _Run, stage: str) -> list[dict[str, Any]]:
    """Carry out a stage, or merge what it gave before; return what was measured."""
    path = run.out / stage
    existed = open_or_create(path, _manifest(run, stage))
    folder = RunFolder(path)
    adapter_folder = path / "teacher" / "adapters" / stage
    if existed and is_teacher(path / "teacher"):
        if not run.resume:
            raise ArtefactError(f"{path} holds a finished stage: resume it, or choose another --out")
        merge_adapter(run.backbone, adapter_folder)
        run.adapters.append(adapter_folder)
        return folder.measures()
    accelerator = Accelerator(cpu=run.backbone.device.type == "cpu")
    adapter = Adapter(run.backbone, run.lora, run.settings.seed)
    objective = _objective(run, stage, adapter, accelerator.num_processes)
    loop = Loop(objective, run.settings.loop(stage, len(objective)), folder, accelerator)
    if run.report:
        report = run.report
        loop.report = lambda step, steps, losses: report(stage, step, steps, losses)
    with held_run(loop, refuse=not run.resume) as checkpoint:
        if checkpoint:
            loop.restore(checkpoint)
        elif accelerator.is_main_process:
            folder.rewind(-1)
        loop.run(checkpoint.step if checkpoint else None)
        if accelerator.is_main_process:
            adapter.save(adapter_folder, _card(run, stage))
            run.adapters.append(adapter_folder)
            save_teacher(path / "teacher", run.backbone, run.base, run.pooling, run.adapters)
    adapter.merge()
    return folder.measures()


def _objective(run: _Run, stage: str, adapter: Adapter, processes: int) -> Objective:
    teacher = LLMTeacher(run.backbone, run.pooling, max_seq_length=run.settings.train_tokens)
    train, held_out = teacher.rows(run.train), teacher.rows(run.held_out)
    if stage == "simcse":
        return SimCSEObjective(teacher, adapter, train, held_out, run.settings, run.sts, processes)
    whole, held = ([teacher.whole(row) for row in rows] for rows in (train, held_out))
    return MNTPObjective(run.backbone, adapter, whole, held, run.settings)


def _hold_out(texts: Sequence[str], settings: TeacherSettings) -> tuple[list[str], list[str]]:
    """Split off the texts whose hash is smallest, so that more texts keep the choice."""
    distinct = list(dict.fromkeys(text for text in texts if text.strip()))
    if settings.validation + 2 > len(distinct):
        raise InputError(
            f"validation is {settings.validation}, but there are only {len(distinct)} distinct texts: hold out fewer"
        )
    order = sorted(range(len(distinct)), key=lambda i: rank(settings.seed, distinct[i]))
    held = set(order[: settings.validation])
    return [t for i, t in enumerate(distinct) if i not in held], [distinct[i] for i in sorted(held)]


def _manifest(run: _Run, stage: str) -> Manifest:
    settings = run.settings.of_stage(stage)
    del settings["save_every"]
    decides = {
        **settings,
        **asdict(run.lora),
        **run.pooling.to_dict(),
        "stage": stage,
        "dtype": str(run.backbone.dtype).removeprefix("torch."),
    }
    sources = {"backbone": run.base, "texts": hash_text("\n".join([*run.train, "", *run.held_out]))}
    return Manifest(KIND, decides, {**sources, **{path.name: adapter_hash(path) for path in run.adapters}})


def _card(run: _Run, stage: str) -> str:
    stands_on = " with the adapter of the stage before merged into it" if run.adapters else ""
    what = {"mntp": "masked next-token prediction", "simcse": "unsupervised SimCSE"}[stage]
    return f"""---
library_name: peft
base_model: {run.backbone.name}
tags: [afterword, llm2vec, {stage}]
---

# {stage}: an adapter for `{run.backbone.name}`

LoRA weights from {what} (LLM2Vec, arXiv 2404.05961) on {len(run.train)} texts, for that LLM{stands_on}
(fingerprint without adapters `{run.base}`), with {run.pooling.attention} attention and {run.pooling.pooling} pooling.
The whole teacher is two folders above this one, where `teacher.json` is.
"""
