"""Measure the authors' package ``llm2vec-gen`` on given work: ``python official.py WORK.json OUT.json``.

It runs in an environment of its own (see README.md beside this file) and imports nothing of Afterword. It only drives
the installed package; every line that had to go around something appends a sentence to the notes of the result.
"""

import json
import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import Any

import torch
from llm2vec_gen import LLM2VecGenModel
from llm2vec_gen.config import CustomTrainingArguments
from llm2vec_gen.dataset import DataSample
from llm2vec_gen.losses import compute_mse_loss, get_teacher_embeddings
from llm2vec_gen.models import EncoderDecoderModel
from llm2vec_gen.trainer import CustomTrainer
from official_parts import Work, checkpoint, load_collator, load_model, load_teacher, load_tokenizer
from torch.utils.data import DataLoader
from transformers import TrainerCallback

PACKAGES = ("llm2vec-gen", "torch", "transformers", "peft", "accelerate", "tokenizers", "datasets", "numpy")
LEARNING_RATE = 3e-4  # the paper's, for Qwen3


@dataclass
class Measured:
    """What came out: seconds of each repeat, losses of each step (warm-up included), memory in bytes."""

    seconds: list[float]
    items: int
    memory_after_load: int
    loss: list[float] = field(default_factory=list)


def memory(name: str) -> int:
    """Return ``VmRSS`` (now) or ``VmHWM`` (the most so far) of this process in bytes."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"/proc/self/status has no {name}: this needs Linux")
    return int(found.group(1)) * 1024


class LossTrainer(CustomTrainer):
    """The package's trainer with the loss that its base class leaves out (there it raises NotImplementedError)."""

    losses: list[float]

    def get_train_dataloader(self) -> DataLoader:
        """Give the batches in order: the trainer's own loader shuffles."""
        return DataLoader(self.train_dataset, batch_size=self.args.train_batch_size, collate_fn=self.data_collator)

    def compute_loss(
        self, model: EncoderDecoderModel, inputs: dict[str, torch.Tensor], *_: object, **__: object
    ) -> torch.Tensor:
        """Return reconstruction plus alignment, both by the package's functions, the teacher run on the spot."""
        names = ("query_input_ids", "query_attention_mask", "answer_input_ids", "answer_attention_mask", "labels")
        states, decoded = model(**{name: inputs[name] for name in names})
        loss = self.recon_loss_weight * decoded.loss
        if self.teacher_model is not None:
            text = inputs["teacher_answer_input_ids"], inputs["teacher_answer_attention_mask"]
            targets = get_teacher_embeddings(*text, self.teacher_model, student_encoder_states=states)
            loss = loss + compute_mse_loss(states.mean(dim=1), targets, mse_loss_weight=self.align_loss_weight)[0]
        self.losses.append(loss.item())
        return loss


class StepClock(TrainerCallback):
    """Take the time at the start and after each optimiser step: collation, both passes, backward, AdamW."""

    def __init__(self) -> None:
        """Start with no time taken; the trainer calls the rest."""
        self.times: list[float] = []

    def on_train_begin(self, *_: object, **__: object) -> None:
        """Take the time."""
        self.times.append(time.perf_counter())

    on_step_end = on_train_begin


def training_arguments(work: Work, folder: str) -> CustomTrainingArguments:
    """Set the package's training arguments: no logging, no saving, on the CPU."""
    return CustomTrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=work.batch_size,
        max_steps=work.warmup + work.repeats,
        learning_rate=LEARNING_RATE,
        use_cpu=True,
        remove_unused_columns=False,
        report_to=[],
        logging_strategy="no",
        save_strategy="no",
        disable_tqdm=True,
    )


def samples_in_order(work: Work) -> list[DataSample]:
    """Give the pairs of all steps in order, from the start again where they run out."""
    pairs = cycle(zip(work.queries, work.responses, strict=True))
    wanted = islice(pairs, (work.warmup + work.repeats) * work.batch_size)
    return [DataSample(id_=i, question=query, answer=response) for i, (query, response) in enumerate(wanted)]


def train(work: Work, notes: list[str]) -> Measured:
    """Time optimiser steps of the package's trainer."""
    tokenizer = load_tokenizer(work, notes)
    collate = load_collator(work, tokenizer, notes)
    model = load_model(work, tokenizer)
    teacher = load_teacher(work, notes) if work.teacher else None
    if work.checkpointing:
        checkpoint(model, notes)
    after_load, clock = memory("VmRSS"), StepClock()
    notes.append("CustomTrainer.compute_loss raises NotImplementedError: a subclass adds the package's two losses")
    with tempfile.TemporaryDirectory() as folder:
        trainer = LossTrainer(
            model=model,
            teacher_model=teacher,
            args=training_arguments(work, folder),
            train_dataset=samples_in_order(work),
            data_collator=collate,
            callbacks=[clock],
            recon_loss_weight=1.0,
            align_loss_weight=1.0,
        )
        trainer.losses = []
        trainer.train()
    seconds = [after - before for before, after in pairwise(clock.times)]
    return Measured(seconds[work.warmup :], work.batch_size, after_load, trainer.losses)


def encode(work: Work, notes: list[str]) -> Measured:
    """Time the package's ``encode`` over all queries, in their order."""
    tokenizer = load_tokenizer(work, notes)
    model = LLM2VecGenModel(load_model(work, tokenizer).eval(), tokenizer, device="cpu")
    notes.append("encode has no batch size: it's called on slices of batch_size queries")
    after_load, seconds = memory("VmRSS"), []
    for _ in range(work.warmup + work.repeats):
        start = time.perf_counter()
        for first in range(0, len(work.queries), work.batch_size):
            model.encode(work.queries[first : first + work.batch_size], max_length=work.max_length)
        seconds.append(time.perf_counter() - start)
    return Measured(seconds[work.warmup :], len(work.queries), after_load)


def measure(work: Work) -> dict[str, Any]:
    """Do the work and describe it."""
    torch.set_num_threads(work.threads)
    torch.manual_seed(0)
    notes: list[str] = []
    measured = (train if work.task == "train" else encode)(work, notes)
    return {
        "task": work.task,
        "seconds": measured.seconds,
        "items": measured.items,
        "memory_after_load": measured.memory_after_load,
        "peak_memory": memory("VmHWM"),
        "versions": {name: version(name) for name in PACKAGES},
        "notes": notes,
        "loss": measured.loss,
    }


def main() -> None:
    """Read WORK.json, write OUT.json."""
    if len(sys.argv) != 3:
        raise SystemExit("usage: python official.py WORK.json OUT.json")
    work = Work(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(measure(work), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
