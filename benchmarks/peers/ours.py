"""The same work as official.py, by Afterword and by what stands beside it: ``python ours.py WORK.json OUT.json``.

Tasks: ``train`` and ``encode`` (Afterword), ``mean`` (mean pooling of the same LLM through sentence-transformers, the
limit for encoding) and ``hyde`` (64 tokens are written for each query, then that text is embedded by mean pooling).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling, Transformer

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import by_length, token_batch
from afterword.backbone.frames import make_frame
from afterword.backbone.generate import Sampling, generate
from afterword.backbone.load import load_backbone
from afterword.backbone.settings import BackboneSettings
from afterword.bench.cases import encode_trial, train_trial
from afterword.bench.clock import timed
from afterword.bench.work import Work
from afterword.machine import package_versions
from afterword.model.settings import ModelSettings
from afterword.teacher.llm import LLMTeacher
from afterword.training.settings import TrainSettings

WRITTEN = 64
Repeat = Callable[[int], object]


def train(work: dict[str, Any], backbone: Backbone) -> tuple[Repeat, int]:
    """Steps of training on the texts, in order; their targets were made before, once."""
    batch, turns = work["batch_size"], work["warmup"] + work["repeats"]
    need = batch * turns
    texts = Work(*((work[name] * need)[:need] for name in ("queries", "responses")))
    settings = TrainSettings(lr_scale="absolute", lr=3e-4, **work.get("settings", {}))
    folder = Path(tempfile.mkdtemp())
    trial = train_trial(backbone, texts, batch, ModelSettings(n_compression=work["n_tokens"]), settings, folder)
    return trial.work, batch


def encode(work: dict[str, Any], backbone: Backbone) -> tuple[Repeat, int]:
    """`Afterword.encode` of all queries, behind an instruction where there is one."""
    shape = ModelSettings(n_compression=work["n_tokens"])
    trial = encode_trial(backbone, work["queries"], work["batch_size"], shape, work.get("instruction", ""))
    return trial.work, len(work["queries"])


def mean(work: dict[str, Any], _: Backbone) -> tuple[Repeat, int]:
    """Mean pooling of the LLM's last states."""
    options = {"dtype": getattr(torch, work["dtype"])}
    transformer = Transformer(work["backbone"], max_seq_length=work["max_length"], model_kwargs=options)
    model = SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension(), "mean")])
    return lambda _: model.encode(work["queries"], batch_size=work["batch_size"]), len(work["queries"])


def hyde(work: dict[str, Any], backbone: Backbone) -> tuple[Repeat, int]:
    """Write an answer to each query, then embed it."""
    frame, embed = make_frame(backbone.text, "auto", None), LLMTeacher(backbone, prompt="")
    bodies = backbone.text.plain([frame.glue + query for query in work["queries"]])
    rows = [[*body, *frame.after] for body in bodies]

    def repeat(_: int) -> None:
        for group in by_length([len(row) for row in rows], work["batch_size"]):
            batch = token_batch([rows[i] for i in group], backbone.device, frame.before)
            answers = generate(backbone, batch, Sampling(WRITTEN), stop_ids=())
            embed.encode([backbone.text.decode(answer.ids) for answer in answers], batch_size=work["batch_size"])

    return repeat, len(rows)


def main() -> None:
    """Do one task and write its result."""
    work = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.set_num_threads(work["threads"])
    backbone = load_backbone(BackboneSettings(work["backbone"], dtype=work["dtype"], device="cpu"))
    prepare = {"train": train, "encode": encode, "mean": mean, "hyde": hyde}[work["task"]]
    if work["task"] == "mean":  # only one copy of the LLM may be in memory
        repeat, items = prepare(work, None)  # type: ignore[arg-type]
        del backbone
    else:
        repeat, items = prepare(work, backbone)
    timing = timed(repeat, torch.device("cpu"), work["warmup"], work["repeats"])
    result = {
        "task": work["task"],
        "seconds": list(timing.seconds),
        "items": items,
        "peak_memory": timing.process_bytes,
        "versions": package_versions(),
    }
    Path(sys.argv[2]).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
