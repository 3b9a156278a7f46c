"""Real processes for tests. Run by itself, this module imports everything once and forks a process for each life.

    python -m tests.lives kill FOLDER SEED     the whole work without a break in FOLDER/whole, and killed again and
                                               again in FOLDER/killed; prints where each kill came
    python -m tests.lives share FOLDER         one training by one process in FOLDER/one, by two in FOLDER/two
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from afterword.corpus.records import Query, Response
from afterword.corpus.responses import ResponseSettings, generate_responses, open_responses
from afterword.corpus.targets import TargetSettings, embed_targets, open_targets
from afterword.model.settings import ModelSettings
from afterword.teacher.llm import LLMTeacher
from afterword.training.settings import TrainSettings
from afterword.training.train import train
from tests.world import make_backbone

QUERIES = [Query(f"q{i}", f"question {'very ' * (i % 5)}number {i}? café ☃") for i in range(28)]
STEPS = 18


def work(folder: Path) -> None:
    """Respond, target and train, in small batches: whatever is there already is not done again."""
    backbone = make_backbone("llama")
    asked = ResponseSettings(style="raw", max_new_tokens=24, respond_batch=2, temperature=1.0)
    generate_responses(backbone, QUERIES, folder / "responses", asked)
    responses = open_responses(folder / "responses", backbone)
    embed_targets(LLMTeacher(backbone), responses, folder / "targets", TargetSettings(teacher="llm", target_batch=2))
    train_on(responses, folder)


def train_on(responses: list[Response], folder: Path) -> None:
    """Train for 18 steps on 24 responses and their documents, a checkpoint after each."""
    settings = TrainSettings(
        batch_size=8,
        epochs=4.0,
        lr=1e-2,
        warmup_steps=3,
        validation=4,
        eval_every=2,
        save_every=1,
        recon_share=0.5,
        tokens_per_pass=400,
    )
    shape = ModelSettings(n_thought=1, n_compression=3, max_length=96)
    backbone, targets = make_backbone("llama"), open_targets(folder / "targets")
    assert train(backbone, responses, targets, folder / "run", shape, settings).steps == STEPS


def fork(target: Callable[..., None], *arguments: object, **environment: str) -> int:
    """Begin a life and return its process id."""
    child = os.fork()
    if child:
        return child
    try:
        os.environ.update(environment)
        torch.set_num_threads(1)
        target(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def ended(child: int) -> int | None:
    """Return how a life ended, negative for a signal; None while it goes on."""
    found, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def finish(child: int) -> None:
    """Let a life come to its end."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        sys.exit(f"a process ended with {code}")


def size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def done(folder: Path) -> dict[str, int]:
    """How far each stage is: bytes of the shards, lines of the log."""
    log = folder / "run" / "log.jsonl"
    return {
        "respond": size(folder / "responses" / "part-00000.jsonl"),
        "target": size(folder / "targets" / "part-00000.vec"),
        "train": log.read_bytes().count(b"\n") if log.is_file() else 0,
    }


def moments(whole: dict[str, int], seed: int) -> Iterator[tuple[str, int, float]]:
    """Draw when to kill: a stage, how much of it is to be there, and a little time behind that."""
    draw = random.Random(seed)
    yield "respond", 0, draw.uniform(0.0, 0.2)
    for stage, count in (("respond", 5), ("target", 4), ("train", 8)):
        for share in sorted(draw.uniform(0.02, 0.95) for _ in range(count)):
            yield stage, round(share * whole[stage]), draw.uniform(0.0, 0.03)


def kill_again_and_again(folder: Path, seed: int) -> None:
    finish(fork(work, folder / "whole"))
    killed, places = folder / "killed", []
    for stage, amount, delay in moments(done(folder / "whole"), seed):
        child = fork(work, killed)
        while ended_as(child) is None and done(killed)[stage] < amount:
            time.sleep(0.0005)
        time.sleep(delay)
        places.append([stage, end(child), done(killed)])
    for number in (4, 9, 14):  # in the middle of writing a checkpoint
        child = fork(work, killed)
        writing = killed / "run" / "checkpoints" / ".writing"
        while ended_as(child) is None and not (writing.exists() and done(killed)["train"] >= number):
            pass
        places.append(["checkpoint", end(child), done(killed)])
    finish(fork(work, killed))
    print(json.dumps(places))
