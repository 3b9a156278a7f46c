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

from afterword.corpus.records import Query
from afterword.corpus.responses import ResponseSettings, generate_responses, open_responses
from afterword.corpus.targets import TargetSettings, embed_targets, open_targets
from afterword.model.settings import ModelSettings
from afterword.teacher.llm import LLMTeacher
from afterword.training.settings import TrainSettings
from afterword.training.train import train
from tests.world import make_backbone

QUERIES = [Query(f"q{i}", f"question {'very ' * (i % 5)}number {i}? café ☃") for i in range(28)]
STEPS = 18


def respond_and_target(folder: Path) -> None:
    """Answer and embed in small batches; what is there already is not done again."""
    backbone = make_backbone("llama")
    asked = ResponseSettings(style="raw", max_new_tokens=24, respond_batch=2, temperature=1.0)
    generate_responses(backbone, QUERIES, folder / "responses", asked)
    responses = open_responses(folder / "responses", backbone)
    embed_targets(LLMTeacher(backbone), responses, folder / "targets", TargetSettings(teacher="llm", target_batch=2))


def train_on(folder: Path, out: Path) -> None:
    """Train for 18 steps on 24 responses and 12 documents, a checkpoint after each."""
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
    backbone = make_backbone("llama")
    responses, targets = open_responses(folder / "responses"), open_targets(folder / "targets")
    assert train(backbone, responses, targets, out, shape, settings).steps == STEPS


def work(folder: Path) -> None:
    """Carry out all stages."""
    respond_and_target(folder)
    train_on(folder, folder / "run")


class Life:
    """A forked process that does one thing."""

    def __init__(self, target: Callable[..., None], *arguments: object, **environment: str) -> None:
        self.code: int | None = None
        self.process = os.fork()
        if self.process:
            return
        try:
            os.environ.update(environment)
            torch.set_num_threads(1)
            target(*arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def is_over(self) -> bool:
        if self.code is None:
            found, status = os.waitpid(self.process, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if found else None
        return self.code is not None

    def kill(self) -> bool:
        """End it, and return whether it was not over already."""
        if not self.is_over():
            os.kill(self.process, signal.SIGKILL)
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        if self.code not in (0, -signal.SIGKILL):
            sys.exit(f"a process ended with {self.code}")
        return self.code == -signal.SIGKILL

    def finish(self) -> None:
        while not self.is_over():
            time.sleep(0.01)
        if self.code:
            sys.exit(f"a process ended with {self.code}")


def done(folder: Path) -> dict[str, int]:
    """How far each stage is: bytes of the shards, lines of the log."""
    log = folder / "run" / "log.jsonl"
    shards = {"respond": folder / "responses" / "part-00000.jsonl", "target": folder / "targets" / "part-00000.vec"}
    sizes = {stage: path.stat().st_size if path.is_file() else 0 for stage, path in shards.items()}
    return {**sizes, "train": log.read_bytes().count(b"\n") if log.is_file() else 0}


def begun(folder: Path) -> int | None:
    """When the checkpoint that is half written was begun; a kill may have left it."""
    try:
        return (folder / "run" / "checkpoints" / ".writing").stat().st_ctime_ns
    except FileNotFoundError:
        return None


def moments(whole: dict[str, int], seed: int) -> Iterator[tuple[str, float, float]]:
    """Draw when to kill: a stage, how much of it is to be there, and a little time behind that; or in a checkpoint."""
    draw = random.Random(seed)
    yield "respond", 0, draw.uniform(0.0, 0.2)
    for stage, count in (("respond", 5), ("target", 4), ("train", 8)):
        for number, share in enumerate(sorted(draw.uniform(0.02, 0.95) for _ in range(count))):
            yield stage, share * whole[stage], draw.uniform(0.0, 0.03)
            if stage == "train" and number in (1, 4, 6):
                yield "checkpoint", 0, 0.0


def kill_again_and_again(folder: Path, seed: int) -> None:
    """Print for each kill: what it was meant for, whether it met a living process, and how far that one had come."""
    Life(work, folder / "whole").finish()
    killed, places = folder / "killed", []
    for stage, amount, delay in moments(done(folder / "whole"), seed):
        writing = begun(killed)
        life = Life(work, killed)
        if stage == "checkpoint":
            while not life.is_over() and begun(killed) in (None, writing):
                pass
        else:
            while not life.is_over() and done(killed)[stage] < amount:
                time.sleep(0.0005)
            time.sleep(delay)
        places.append([stage, life.kill(), done(killed)])
    Life(work, killed).finish()
    print(json.dumps(places))


def share_the_work(folder: Path) -> None:
    """Train once alone and once with two processes that know of each other."""
    Life(respond_and_target, folder).finish()
    Life(train_on, folder, folder / "one").finish()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    together = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    lives = [Life(train_on, folder, folder / "two", RANK=str(i), LOCAL_RANK=str(i), **together) for i in range(2)]
    for life in lives:
        life.finish()


if __name__ == "__main__":
    if sys.argv[1] == "kill":
        kill_again_and_again(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        share_the_work(Path(sys.argv[2]))
