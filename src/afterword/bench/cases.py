"""What is timed: a training step, encoding, responding. Each through the door that users take."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from accelerate import Accelerator

from afterword.backbone.backbone import Backbone
from afterword.backbone.frames import make_frame
from afterword.bench.counted import encoding_flops, sample_flops, shared_flops, writing_flops
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
        close: Called last: puts the LLM back to what it was.
    """

    work: Callable[[int], object]
    items: int
    count: Callable[[], tuple[float, float]]
    close: Callable[[], object] = lambda: None


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
    loop = Loop(objective, settings.loop, RunFolder(folder), Accelerator(cpu=backbone.device.type == "cpu"))
    steps = len(examples) // batch

    def count() -> tuple[float, float]:
        tokens = sum(map(len, examples.rows)) + sum(map(len, examples.responses))
        return tokens / steps, batch * sample_flops(model, examples, settings) + shared_flops(model) / steps

    return Trial(loop.step, batch, count)


def encode_trial(backbone: Backbone, texts: list[str], batch: int, shape: ModelSettings, prompt: str) -> Trial:
    """`Afterword.encode` on unsorted texts, tokenisation included.

    Learned tokens and the prompt count among the tokens, padding does not. Operations are those that must be done, so
    the prompt, which is run once for all, is not among them.
    """
    model = Afterword.from_backbone(backbone, settings=shape)

    def count() -> tuple[float, float]:
        tokens = sum(map(len, model.inputs.rows(texts, prompt)))
        learned = model.config.n_tokens * len(texts)
        return float(tokens + learned), encoding_flops(model, texts, prompt)

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
        frame = make_frame(backbone.text, settings.style, settings.system)
        written = {response.id: response.n_tokens for response in open_responses(folders[-1])}
        bodies = backbone.text.plain([frame.glue + text for text in texts])
        prompts = [min(len(body), settings.max_query_tokens) + len(frame.after) for body in bodies]
        lengths = [written[query.id] for query in queries]
        return float(sum(lengths)), writing_flops(backbone, prompts, lengths, len(frame.before))

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
