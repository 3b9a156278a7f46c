"""The training stage: responses and targets in, a run folder with a model out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from afterword.backbone.backbone import Backbone
from afterword.corpus.manifest import Manifest, open_or_create
from afterword.corpus.records import Response
from afterword.corpus.targets import Targets
from afterword.encoder import hash_tensors
from afterword.model.heads import random_heads
from afterword.model.model import Afterword
from afterword.model.settings import ModelSettings
from afterword.training.examples import Examples, hold_out, make_examples, with_documents
from afterword.training.generative import GenerativeObjective
from afterword.training.loop import Loop, Report, held_run
from afterword.training.run_folder import Checkpoint, RunFolder
from afterword.training.settings import TrainSettings
from afterword.training.step_sizes import step_sizes
from afterword.training.warm_start import Ridge, fit_alignment, fit_heads

KIND = "training"


@dataclass(frozen=True)
class TrainResult:
    """What a training gave.

    Attributes:
        model: The trained model.
        folder: The run folder; the model is saved in its `model`.
        steps: Steps done in all.
        resumed_from: The step that a former run had reached, or None.
        skipped: Responses left out because they are empty.
        validation: Measures on held-out responses, by step, first to last.
    """

    model: Afterword
    folder: Path
    steps: int
    resumed_from: int | None
    skipped: int
    validation: list[dict[str, Any]]


def train(
    backbone: Backbone,
    responses: Sequence[Response],
    targets: Targets,
    out: str | Path,
    model_settings: ModelSettings | None = None,
    settings: TrainSettings | None = None,
    *,
    resume: bool = True,
    report: Report | None = None,
) -> TrainResult:
    """Train tokens and heads on the LLM's own responses (paper §3).

    Args:
        backbone: The frozen LLM; its weights are not touched.
        responses: What it answered.
        targets: The teacher's embeddings of the responses.
        out: The run folder.
        model_settings: Shape of the model.
        settings: How it is trained.
        resume: Go on where a run in this folder was cut; otherwise a folder that holds a run is refused.
        report: Called after each step.

    Raises:
        InputError: No response has any text, or fewer are left than are held out.
        MissingPartError: A response has no target.
        MismatchError: The folder holds a run with other settings or data.
        WorkError: Another process is training into the folder.
    """
    model_settings, settings = model_settings or ModelSettings(), settings or TrainSettings()
    model = _untrained(backbone, targets, model_settings, settings)
    examples, skipped = make_examples(model, responses, targets, settings.max_response_tokens)
    training, held_out = hold_out(examples, settings.validation, settings.seed)
    training = with_documents(model, training, settings.document_share, settings.seed)
    existed = open_or_create(out, _manifest(model, targets, examples, settings))
    folder = RunFolder(out)
    loop = _loop(model, training, held_out, settings, folder, report)
    with held_run(loop, refuse=existed and not resume) as checkpoint:
        _carry_out(model, training, settings, loop, checkpoint)
        measured = folder.measures()
        model.config = replace(model.config, training=_history(settings, len(training), len(held_out), measured))
        if loop.accelerator.is_main_process:
            model.save_pretrained(str(folder.model))
    loop.accelerator.end_training()
    return TrainResult(model, folder.path, loop.steps, checkpoint.step if checkpoint else None, skipped, measured)


def _history(settings: TrainSettings, examples: int, held_out: int, measured: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a model keeps of its training, for its card: the recipe, and the measures at its start and end."""
    kept = [{key: value for key, value in event.items() if key != "event"} for event in measured]
    recipe = {key: value for key, value in asdict(settings).items() if key not in ("track", "save_every")}
    return {
        "recipe": recipe,
        "data": {"examples": examples, "held_out": held_out},
        "measures": kept[:1] + kept[1:][-1:],
    }


def _carry_out(
    model: Afterword, training: Examples, settings: TrainSettings, loop: Loop, checkpoint: Checkpoint | None
) -> None:
    """Start or go on, take all steps, and fit the alignment head once more where that is asked for."""
    if checkpoint:
        loop.restore(checkpoint)
    else:
        if loop.accelerator.is_main_process:
            loop.folder.rewind(-1)
        if settings.warm_start:
            recon, align = fit_heads(model, training, settings)
            _log_fit(loop, "warm_start", 0, align, recon_strength=recon.strength)
        else:
            random_heads(model.parts, settings.seed)
        loop.sizes = step_sizes(model.parts, training.targets, settings)
    loop.run(checkpoint.step if checkpoint else None)
    if settings.refit and (checkpoint is None or checkpoint.step <= loop.steps):
        ridge = fit_alignment(model, training, settings)
        _log_fit(loop, "refit", loop.steps + 1, ridge)
        loop.mark(loop.steps + 1)


def _untrained(backbone: Backbone, targets: Targets, shape: ModelSettings, settings: TrainSettings) -> Afterword:
    dimension = targets.dimension
    model = Afterword.from_backbone(backbone, settings=shape, embedding_dimension=dimension, seed=settings.seed)
    model.parts.space = targets.space
    return Afterword(backbone, model.parts, replace(model.config, teacher=targets.teacher))


def _log_fit(loop: Loop, event: str, step: int, ridge: Ridge, **more: float) -> None:
    if loop.accelerator.is_main_process:
        loop.folder.log({"event": event, "step": step, "strength": ridge.strength, "error": ridge.error, **more})


def _loop(
    model: Afterword,
    training: Examples,
    held_out: Examples,
    settings: TrainSettings,
    folder: RunFolder,
    report: Report | None,
) -> Loop:
    tracker = None if settings.track == "none" else settings.track
    accelerator = Accelerator(cpu=model.device.type == "cpu", log_with=tracker, project_dir=folder.path)
    if tracker:
        accelerator.init_trackers("afterword", config={k: v for k, v in asdict(settings).items() if v is not None})
    objective = GenerativeObjective(model, training, held_out, settings)
    return Loop(objective, settings.loop, folder, accelerator, report)


def _manifest(model: Afterword, targets: Targets, examples: Examples, settings: TrainSettings) -> Manifest:
    backbone = model.backbone
    decides = {**asdict(model.config.settings), **asdict(settings), "dtype": str(backbone.dtype).removeprefix("torch.")}
    del decides["track"], decides["save_every"]
    data = hash_tensors(
        [
            ("targets", examples.targets),
            ("ids", torch.empty(0)),
            *(
                (f"{i} {row} {text}", torch.empty(0))
                for i, row, text in zip(examples.ids, examples.rows, examples.texts, strict=True)
            ),
        ]
    )
    sources = {"backbone": backbone.fingerprint, "teacher": targets.teacher["fingerprint"], "data": data}
    return Manifest(KIND, decides, sources)
