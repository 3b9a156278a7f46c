"""How long until a training is as good as the plain recipe gets: ``time_to_quality.py RUN OUT [--samples N]``.

RUN is a folder with `responses/` and `targets/` (of `afterword run` or `afterword demo`, backbone demo). First the
plain recipe of the paper (random heads, every response reconstructed, one learning rate for all) trains on N samples;
then Afterword's defaults train for a fifth of that time at most. Both are measured on the same held-out responses.
Times are of the whole call, closed forms and the measuring at start and end included.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from afterword import ModelSettings, TrainSettings, load_backbone, open_responses, open_targets, train
from afterword.backbone.settings import BackboneSettings
from afterword.bench.report import markdown_table
from afterword.corpus.manifest import write_whole
from afterword.corpus.records import Response
from afterword.corpus.targets import Targets
from afterword.machine import describe_machine
from afterword.training.alignment import alignment_unit

PLAIN: dict[str, Any] = {
    "lr": 5e-4,
    "lr_scale": "absolute",
    "batch_size": 32,
    "warm_start": False,
    "refit": False,
    "document_share": 0.0,
    "w_recon": 1.0,
    "align_reduction": "mean",
}
OURS: dict[str, Any] = {
    "batch_size": 8,
    "warmup_steps": 4,
    "position_share": 0.5,
    "recon_rate": 15.0,
    "document_share": 1.0,
    "warm_start_samples": 300,
    "refit": False,
}


def main() -> None:
    """Train twice and write a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--samples", type=int, default=1920)
    parser.add_argument("--our-samples", type=int, default=280)
    parser.add_argument("--validation", type=int, default=64)
    asked = parser.parse_args()
    backbone = load_backbone(BackboneSettings("demo"))
    responses, targets = open_responses(asked.run / "responses"), open_targets(asked.run / "targets")
    shape = ModelSettings(placement="answer", max_length=384)
    rows = []
    for name, values, samples in (("plain recipe", PLAIN, asked.samples), ("Afterword", OURS, asked.our_samples)):
        share = 1 + values.get("document_share", TrainSettings.document_share)
        examples = (sum(bool(response.text) for response in responses) - asked.validation) * share
        settings = TrainSettings(
            **values, validation=asked.validation, epochs=samples / examples, eval_every=10_000, save_every=10_000
        )
        began = time.perf_counter()
        result = train(backbone, responses, targets, asked.out / name.replace(" ", "-"), shape, settings)
        minutes = (time.perf_counter() - began) / 60
        for when, measured in (("start", result.validation[0]), ("end", result.validation[-1])):
            rows.append(
                {
                    "training": name,
                    "at": when,
                    "minutes": round(minutes, 2) if when == "end" else 0,
                    "steps": measured["step"],
                    "nats a token": round(measured["recon"], 3),
                    "alignment": round(measured["align"] * relative(targets, responses, values), 3),
                    "cosine": round(measured["cosine"], 3),
                    "retrieval": round(measured["retrieval"], 3),
                }
            )
        machine = describe_machine(backbone.device, backbone.dtype)
        text = markdown_table(rows) + "\n" + ", ".join(f"{key} {value}" for key, value in machine.items()) + "\n"
        write_whole(asked.out / "time_to_quality.md", text)
        print(text, flush=True)


def relative(targets: Targets, responses: list[Response], values: dict[str, Any]) -> float:
    """Return what brings an alignment loss to a share of the spread of the targets: 1 is no better than their mean."""
    vectors = torch.from_numpy(targets.lookup([response.text for response in responses if response.text]))
    kind = values.get("align_reduction", TrainSettings.align_reduction)
    return alignment_unit(vectors, kind) / alignment_unit(vectors, "relative")


if __name__ == "__main__":
    main()
