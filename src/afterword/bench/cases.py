"""What is timed: a training step, encoding, responding. Each through the door that users take."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from accelerate import Accelerator

from afterword.backbone.backbone import Backbone
from afterword.backbone.cost import Cost
from afterword.bench.counted import sample_flops
from afterword.bench.work import Work
from afterword.corpus.records import Query
from afterword.corpus.responses import ResponseSettings, generate_responses, open_responses
from afterword.model.model import Afterword
from afterword.model.settings import ModelSettings
from afterword.training.examples import Examples
from afterword.training.generative import GenerativeObjective
from afterword.training.loop import Loop
from afterword.training.run_folder import RunFolder
from afterword.training.settings import TrainSettings

DIMENSION = 384


@dataclass(frozen=True)
class Trial:
    """One thing to time.

    Attributes:
        work: Called once a repeat, with its number.
        items: Samples or texts in one repeat.
        count: Called afterwards; returns the tokens and the operations of one repeat (means, where repeats differ).
    """

    work: Callable[[int], object]
    items: int
    count: Callable[[], tuple[float, float]]


def train_trial(
    backbone: Backbone, work: Work, batch: int, shape: ModelSettings, settings: TrainSettings, folder: Path
) -> Trial:
    """Steps of training: forward, backward, clipping and the optimizer, on a batch of its own each.

    Operations are those of the floor formula, so padding and recomputation are no merit.
    """
    model = Afterword.from_backbone(backbone, settings=shape, embedding_dimension=DIMENSION)
    examples = _examples(model, work)
    settings = replace(settings, batch_size=batch, epochs=1.0, validation=0)
    objective = GenerativeObjective(model, examples, examples.subset([]), settings)
    loop = Loop(objective, settings, RunFolder(folder), Accelerator(cpu=backbone.device.type == "cpu"))
    steps = len(examples) // batch

    def count() -> tuple[float, float]:
        tokens = sum(map(len, examples.rows)) + sum(map(len, examples.responses))
        once = Cost.of(backbone.model).forward(len(model.inputs.frame.before))  # the frame's prefix runs once for all
        return tokens / steps, batch * sample_flops(model, examples, settings) + once / steps

    return Trial(loop.step, batch, count)


def encode_trial(backbone: Backbone, texts: list[str], batch: int, shape: ModelSettings, prompt: str) -> Trial:
    """`Afterword.encode` on unsorted texts, tokenisation included. Learned tokens count as work, padding does not."""
    model = Afterword.from_backbone(backbone, settings=shape)

    def count() -> tuple[float, float]:
        tokens = sum(map(len, model.inputs.rows(texts, prompt)))
        learned = model.config.n_tokens * len(texts)
        return float(tokens + learned), float(Cost.of(backbone.model).encoding(tokens, learned))

    return Trial(lambda _: model.encode(texts, prompt=prompt, batch_size=batch), len(texts), count)


def respond_trial(backbone: Backbone, texts: list[str], batch: int, most: int, folder: Path) -> Trial:
    """`generate_responses`, shards and all; tokens are those written."""
    queries = [Query(f"q{i}", text) for i, text in enumerate(texts)]
    settings = ResponseSettings(max_new_tokens=most, respond_batch=batch)
    folders: list[Path] = []

    def answer(turn: int) -> None:
        folders.append(folder / str(turn))
        generate_responses(backbone, queries, folders[-1], settings)

    def count() -> tuple[float, float]:
        written = sum(response.n_tokens for response in open_responses(folders[-1]))
        prompts = sum(map(len, backbone.text.plain(texts)))
        return float(written), float(Cost.of(backbone.model).writing(prompts, written))

    return Trial(answer, len(texts), count)


def _examples(model: Afterword, work: Work) -> Examples:
    end = model.backbone.end_ids[0]
    responses = [[*ids, end] for ids in model.backbone.text.plain(work.responses)]
    generator = torch.Generator().manual_seed(0)
    targets = torch.nn.functional.normalize(torch.randn(len(responses), DIMENSION, generator=generator), dim=1)
    ids = [f"q{i}" for i in range(len(responses))]
    return Examples(ids, model.inputs.rows(work.queries), responses, work.responses, targets)


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for what a trial writes, gone after it."""
    return tempfile.TemporaryDirectory(prefix="afterword-bench-")
