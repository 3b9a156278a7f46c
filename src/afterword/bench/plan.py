"""What a training will take on this machine, before it is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from afterword.backbone.backbone import Backbone
from afterword.backbone.cost import Cost
from afterword.bench.ceiling import gemm_ceiling
from afterword.bench.counted import sample_flops
from afterword.corpus.records import Response
from afterword.corpus.targets import Targets
from afterword.model.model import Afterword
from afterword.model.settings import ModelSettings
from afterword.training.examples import Examples, hold_out, make_examples, with_documents
from afterword.training.order import total_steps
from afterword.training.settings import TrainSettings

REACHED = 0.65
"""Share of the best matrix product that a step reaches; 0.65 to 0.75 was measured (`afterword bench train`)."""
BASE = 600_000_000
"""Bytes of a process that has imported everything and done nothing."""


@dataclass(frozen=True)
class Plan:
    """An estimate.

    Attributes:
        examples: What is trained on, documents counted.
        steps: Optimizer steps.
        tokens: Tokens of queries and responses in one epoch.
        flops: Operations of the whole training: steps and closed forms, without validation.
        ceiling: Best matrix product of this machine, in FLOP/s.
        hours: `flops` at a usual share of the ceiling.
        weights: Bytes of the LLM.
        learned: Bytes of tokens and heads with gradients and optimizer.
        one_pass: Bytes of what the largest pass keeps for the backward pass.
        memory: All of these and the process itself, in bytes.
    """

    examples: int
    steps: int
    tokens: int
    flops: float
    ceiling: float
    hours: float
    weights: int
    learned: int
    one_pass: int
    memory: int

    def __str__(self) -> str:
        return (
            f"{self.examples:,} examples with {self.tokens:,} tokens, {self.steps:,} steps\n"
            f"{self.flops / 1e12:,.1f} TFLOP at {REACHED:.0%} of {self.ceiling / 1e9:,.0f} GFLOP/s: "
            f"{_duration(self.hours)}\n"
            f"{self.memory / 1e9:.1f} GB of memory: {self.weights / 1e9:.1f} the LLM, {self.learned / 1e9:.2f} what is "
            f"learned, {self.one_pass / 1e9:.1f} one pass, {BASE / 1e9:.1f} the program"
        )


def plan_training(
    backbone: Backbone, responses: Sequence[Response], targets: Targets, shape: ModelSettings, settings: TrainSettings
) -> Plan:
    """Estimate a training from its real data; nothing is run but matrix products, for a few seconds."""
    model = Afterword.from_backbone(backbone, settings=shape, embedding_dimension=targets.dimension)
    examples, _ = make_examples(model, responses, targets, settings.max_response_tokens)
    training, _ = hold_out(examples, settings.validation, settings.seed)
    training = with_documents(model, training, settings.document_share, settings.seed)
    steps = total_steps(len(training), settings.batch_size, settings.epochs)
    flops = _flops(model, training, steps, settings)
    ceiling = gemm_ceiling(backbone, repeats=3)
    weights = sum(p.numel() * p.element_size() for p in backbone.model.parameters())
    learned = 16 * sum(p.numel() for p in model.parts.parameters())  # the weight, its gradient and two moments
    one_pass = _pass_bytes(model, training, settings)
    return Plan(
        examples=len(training),
        steps=steps,
        tokens=sum(map(len, training.rows)) + sum(map(len, training.responses)),
        flops=flops,
        ceiling=ceiling,
        hours=flops / (REACHED * ceiling) / 3600,
        weights=weights,
        learned=learned,
        one_pass=one_pass,
        memory=BASE + weights + learned + one_pass,
    )


def kept_bytes(backbone: Backbone) -> int:
    """Return about how much one token in the graph keeps for the backward pass, in bytes.

    A frozen linear layer keeps nothing; norms, rotations, attention and the gate of the MLP, both fused, keep what they
    are given.
    """
    config = backbone.config
    attention = Cost.of(backbone.model).attention // config.num_hidden_layers
    each = 4 * config.hidden_size + 2 * config.intermediate_size + 4 * attention
    return int(config.num_hidden_layers * each * backbone.embedding_matrix.element_size())


def _flops(model: Afterword, training: Examples, steps: int, settings: TrainSettings) -> float:
    fits = settings.warm_start + settings.refit
    fitted = fits * min(len(training), settings.warm_start_samples)
    cost, k, shared = Cost.of(model.backbone.model), model.config.n_tokens, len(model.inputs.frame.before)
    lengths = [len(row) + k for row in training.rows]
    encoding = sum(cost.forward(n) + cost.attending(n, shared + n) for n in lengths) / len(training)
    return float(steps * settings.batch_size * sample_flops(model, training, settings) + fitted * encoding)


def _pass_bytes(model: Afterword, training: Examples, settings: TrainSettings) -> int:
    longest = max(len(row) + len(response) for row, response in zip(training.rows, training.responses, strict=True))
    learned = model.config.n_tokens + model.config.n_compression
    average = sum(map(len, training.rows)) / len(training)
    tokens = max(settings.tokens_per_pass, longest + learned)
    rows = min(settings.batch_size, max(1, tokens // (longest + learned)))
    in_graph = min(tokens, rows * (longest + learned)) - rows * average * 0.5
    cached = Cost.of(model.backbone.model).kept * model.backbone.embedding_matrix.element_size() * rows * average
    return int(max(in_graph, 0) * kept_bytes(model.backbone) + cached)


def _duration(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.0f} minutes"
