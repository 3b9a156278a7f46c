"""How a teacher is trained."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from afterword.errors import SettingError
from afterword.training.settings import LoopSettings

STAGES = ("mntp", "simcse")
OWN = {
    "mntp": ("mask_share", "mask_token", "mask_kind"),
    "simcse": ("temperature", "attention_dropout", "embedding_dropout", "token_dropout", "kept_tokens", "crop"),
}
"""Settings without the name of a stage that only one of them knows."""


@dataclass(frozen=True)
class TeacherSettings:
    """The two stages of LLM2Vec; where nothing else is said, the values are its authors' (arXiv 2404.05961, App. D)."""

    mntp_steps: int = 1000
    """Steps of masked next-token prediction; 0 leaves the stage out."""
    mntp_lr: float = 5e-5
    """Its peak learning rate."""
    mntp_batch: int = 32
    """Texts in one of its steps."""
    mask_share: float = 0.2
    """Share of a text's tokens that are masked and predicted, each from the state before it."""
    mask_token: str = "_"
    """What stands for a masked token: a token of the LLM's vocabulary."""
    mask_kind: Literal["all", "bert"] = "all"
    """Mask all chosen tokens, or as BERT: 8 of 10, one of 10 a random token, one of 10 left as it is."""
    simcse_steps: int = 1000
    """Steps of unsupervised SimCSE; 0 leaves the stage out."""
    simcse_lr: float = 3e-5
    """Its peak learning rate."""
    simcse_batch: int = 128
    """Texts in one of its steps, each a negative for all others. Gradients are cached: memory does not grow with it."""
    temperature: float = 0.05
    """Cosines are divided by it."""
    attention_dropout: float = 0.3
    """SimCSE: share of the attention weights that are dropped. Decoders are published without dropout, and two passes
    over a text would be the same."""
    embedding_dropout: float = 0.0
    """SimCSE: share of the values of the input embeddings that are dropped."""
    token_dropout: float = 0.0
    """SimCSE: share of a text's tokens that are left out."""
    kept_tokens: int = 0
    """SimCSE: first tokens that are never left out: in a short question the first word says what is asked for."""
    crop: float = 0.0
    """SimCSE: each view of a text is a run of its tokens that lacks up to this share of them (independent cropping,
    arXiv 2112.09118), but has 16 at least: short texts stay whole."""
    train_tokens: int = 128
    """Longer texts are cut in training."""
    tokens_per_pass: int = 4096
    """Most tokens run at once; a step is split accordingly."""
    warmup_share: float = 0.1
    """Share of the steps in which the learning rate rises; then it falls linearly to 0."""
    clip: float = 1.0
    """Longest gradient."""
    weight_decay: float = 0.0
    """AdamW's decay of the weights."""
    validation: int = 128
    """Texts held out to measure on."""
    eval_every: int = 50
    """Steps between two measurements; there is one at the start and one at the end."""
    save_every: int = 50
    """Steps between two checkpoints."""
    seed: int = 0
    """Seed of adapters, order, masks and dropout."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be used."""
        for name in ("mntp_batch", "simcse_batch", "train_tokens", "tokens_per_pass", "eval_every", "save_every"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)}: it must be at least 1")
        for name in ("mntp_lr", "simcse_lr", "temperature", "clip"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SettingError(f"{name} is {getattr(self, name)}: it must be a number above 0")
        for name in ("mntp_steps", "simcse_steps", "kept_tokens", "validation", "weight_decay"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise SettingError(f"{name} is {getattr(self, name)}: it must be at least 0, and finite")
        for name in ("attention_dropout", "embedding_dropout", "token_dropout", "crop"):
            if not 0 <= getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)}: it is at least 0 and below 1")
        if not 0 < self.mask_share < 1:
            raise SettingError(f"mask_share is {self.mask_share}: it is between 0 and 1")
        if not 0 <= self.warmup_share < 1:
            raise SettingError(f"warmup_share is {self.warmup_share}: it is at least 0 and below 1")
        if self.simcse_steps and self.simcse_batch < 2:
            raise SettingError("simcse_batch is 1: a text needs others in its batch to differ from")
        if not self.mntp_steps and not self.simcse_steps:
            raise SettingError("mntp_steps and simcse_steps are both 0: there is nothing to train")

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that are carried out, in order."""
        return tuple(stage for stage in STAGES if self._of(stage, "steps"))

    def of_stage(self, stage: str) -> dict[str, Any]:
        """Return the settings that decide what a stage gives: those of the other stage are none of its business."""
        others = [name for name in STAGES if name != stage]
        foreign = tuple(f"{name}_" for name in others), {key for name in others for key in OWN[name]}
        return {k: v for k, v in asdict(self).items() if not k.startswith(foreign[0]) and k not in foreign[1]}

    def loop(self, stage: str, texts: int) -> LoopSettings:
        """Return what the loop must know for a stage over so many texts."""
        steps, batch = int(self._of(stage, "steps")), min(int(self._of(stage, "batch")), texts)
        return LoopSettings(
            lr=self._of(stage, "lr"),
            epochs=steps * batch / texts,
            batch_size=batch,
            tokens_per_pass=self.tokens_per_pass,
            warmup_steps=round(self.warmup_share * steps),
            clip=self.clip,
            weight_decay=self.weight_decay,
            eval_every=self.eval_every,
            save_every=self.save_every,
            seed=self.seed,
        )

    def _of(self, stage: str, what: str) -> float:
        return float(getattr(self, f"{stage}_{what}"))
