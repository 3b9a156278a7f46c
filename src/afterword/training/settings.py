"""How training runs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from afterword.errors import SettingError

Reduction = Literal["mean", "sum"]
AlignReduction = Literal["relative", "mean", "sum"]


@dataclass(frozen=True)
class LoopSettings:
    """What the loop must know, whatever it trains.

    Attributes:
        lr: Peak learning rate of AdamW.
        epochs: Passes over the examples.
        batch_size: Examples in one step.
        tokens_per_pass: Most tokens run at once.
        warmup_steps: Steps in which the learning rate rises; then it falls linearly to 0.
        clip: Longest gradient.
        weight_decay: AdamW's decay of the weights.
        eval_every: Steps between two measurements.
        save_every: Steps between two checkpoints.
        seed: Seed of the order.
    """

    lr: float
    epochs: float
    batch_size: int
    tokens_per_pass: int
    warmup_steps: int
    clip: float
    weight_decay: float
    eval_every: int
    save_every: int
    seed: int


@dataclass(frozen=True)
class TrainSettings:
    """What is minimised, and how."""

    lr: float = 0.01
    """Peak learning rate of AdamW."""
    lr_scale: Literal["relative", "absolute"] = "relative"
    """Whether the learning rate is a share of each parameter's own size at the start, or one number for all (paper).
    Tokens, heads and a teacher's space differ in size by a factor of a thousand."""
    token_rate: float = 0.1
    """How fast tokens learn where lr is relative: this times as fast as the alignment head."""
    recon_rate: float = 6.0
    """How fast the reconstruction head learns where lr is relative: this times as fast as the alignment head."""
    epochs: float = 1.0
    """Passes over the training responses; parts of a pass are fine."""
    batch_size: int = 16
    """Responses in one step. With few responses many small steps teach more than few large ones."""
    tokens_per_pass: int = 4096
    """Most tokens run at once; a step is split accordingly and its gradients are accumulated."""
    warmup_steps: int = 10
    """Steps in which the learning rate rises; then it falls linearly to 0."""
    clip: float = 1.0
    """Longest gradient."""
    weight_decay: float = 0.0
    """AdamW's decay of the weights."""
    w_recon: float = 0.05
    """Weight of the reconstruction loss. Its gradient at the tokens is some fifty times that of the alignment loss."""
    w_align: float = 1.0
    """Weight of the alignment loss."""
    recon_reduction: Reduction = "mean"
    """Reconstruction loss: mean over tokens (authors' code) or their sum in each response (paper)."""
    align_reduction: AlignReduction = "relative"
    """Alignment loss: over the variance of the targets (1 is no better than their mean, whatever the teacher's scale),
    mean over dimensions (authors' code), or their sum (paper)."""
    document_share: float = 0.5
    """Share of the responses that are also shown as documents, under the model's document prompt, to be answered by
    themselves: the side of a search that is not asked but found. 0 trains on queries only, as the paper."""
    recon_share: float = 1.0
    """Share of each step's responses that are reconstructed, drawn anew each step."""
    recon_every: int = 1
    """Reconstruct on one step in so many, with so many times the weight; the steps between only align."""
    position_share: float = 1.0
    """Share of each response's tokens whose prediction is scored, drawn anew each step; the vocabulary head, half of
    the work of a small LLM, sees these only. The loss stays right on average."""
    max_response_tokens: int = 512
    """Longer responses are cut, and then have no end token."""
    warm_start: bool = True
    """Start the heads in closed form; otherwise at random, as in the paper."""
    warm_start_samples: int = 4096
    """Most responses the closed form looks at."""
    refit: bool = True
    """Fit the alignment head once more in closed form at the end, on the tokens as they then are."""
    validation: int = 128
    """Responses held out to measure on."""
    eval_every: int = 25
    """Steps between two measurements; there is one at the start and one at the end."""
    save_every: int = 25
    """Steps between two checkpoints."""
    seed: int = 0
    """Seed of tokens, heads, order and draws."""
    track: Literal["none", "tensorboard", "wandb"] = "none"
    """Also log to a tracker."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be used."""
        for name in ("batch_size", "tokens_per_pass", "max_response_tokens", "eval_every", "save_every", "recon_every"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)}: it must be at least 1")
        for name in ("lr", "token_rate", "recon_rate", "epochs", "clip"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SettingError(f"{name} is {getattr(self, name)}: it must be a number above 0")
        for name in ("w_recon", "w_align", "weight_decay", "warmup_steps", "validation", "warm_start_samples"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise SettingError(f"{name} is {getattr(self, name)}: it must be a number, and cannot be negative")
        if not 0 <= self.document_share <= 1:
            raise SettingError(f"document_share is {self.document_share}: it is between 0 and 1")
        for name in ("recon_share", "position_share"):
            if not 0 < getattr(self, name) <= 1:
                raise SettingError(f"{name} is {getattr(self, name)}: it is above 0 and at most 1")
        if self.w_recon == 0 and self.w_align == 0:
            raise SettingError("w_recon and w_align are both 0: there is nothing to minimise")

    @property
    def loop(self) -> LoopSettings:
        """The part that the loop must know."""
        return LoopSettings(**{f.name: getattr(self, f.name) for f in fields(LoopSettings)})
