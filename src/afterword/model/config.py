"""What a saved model must say about itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from afterword.errors import CorruptError, SettingError
from afterword.model.settings import ModelSettings, Placement
from afterword.prompts import default_prompts, list_names

FORMAT = 1


@dataclass(frozen=True)
class ModelConfig:
    """Everything but the numbers: enough to rebuild the model and to refuse the wrong backbone.

    Attributes:
        backbone: Name by which the frozen LLM can be loaded again.
        backbone_revision: Its revision on the hub.
        backbone_fingerprint: Hash of its weights.
        hidden_size: Width of its states.
        embedding_dimension: Width of the teacher's space, and so of an embedding.
        n_thought: Thought tokens, m.
        n_compression: Compression tokens, n.
        placement: Where the tokens stand.
        token_init: What they started from.
        max_length: Most tokens of a text with the learned ones.
        system: System prompt, if the frame has one.
        prompts: Texts to put before a text, by name.
        default_prompt_name: The one that `encode` takes when none is given.
        training: What made it, for the card: recipe, data and measures.
        similarity_fn_name: How two embeddings are compared.
        teacher: Name of the teacher, its fingerprint and prompt.
        decode_behind_start: Whether the tokens that begin every text (BOS or none) stand before a soft prompt; the
            authors' checkpoints were trained without.
        format: Version of this file.
    """

    backbone: str
    backbone_fingerprint: str
    hidden_size: int
    embedding_dimension: int
    n_thought: int = 0
    n_compression: int = 10
    placement: Placement = "query"
    token_init: str = "random"
    max_length: int = 512
    system: str | None = None
    backbone_revision: str | None = None
    prompts: dict[str, str] = field(default_factory=lambda: dict(default_prompts()))
    default_prompt_name: str | None = None
    training: dict[str, Any] = field(default_factory=dict)
    similarity_fn_name: str = "cosine"
    teacher: dict[str, str] = field(default_factory=dict)
    decode_behind_start: bool = True
    format: int = FORMAT

    def __post_init__(self) -> None:
        for name in ("hidden_size", "embedding_dimension", "n_thought", "n_compression", "max_length"):
            if type(value := getattr(self, name)) is not int:
                raise SettingError(f"{name} is {value!r}: it must be a whole number")
        _check_kinds(self)
        if self.n_compression < 1:
            raise SettingError(f"n_compression is {self.n_compression}: an embedding needs at least one token")
        if self.n_thought < 0:
            raise SettingError(f"n_thought is {self.n_thought}: it cannot be negative")
        if self.placement not in ("query", "answer"):
            raise SettingError(f"placement is {self.placement!r}: it is 'query' or 'answer'")
        if self.max_length <= self.n_tokens:
            raise SettingError(
                f"max_length is {self.max_length}: no room for text beside {self.n_tokens} learned tokens"
            )
        if self.embedding_dimension < 1:
            raise SettingError(f"embedding_dimension is {self.embedding_dimension}: it must be positive")
        if self.default_prompt_name is not None and self.default_prompt_name not in self.prompts:
            raise SettingError(
                f"default_prompt_name is {self.default_prompt_name!r}, prompts are {list_names(self.prompts)}"
            )

    @property
    def n_tokens(self) -> int:
        """All learned tokens, m + n."""
        return self.n_thought + self.n_compression

    @property
    def settings(self) -> ModelSettings:
        """The part of this config that a user chooses."""
        return ModelSettings(**{f.name: getattr(self, f.name) for f in fields(ModelSettings)})

    def to_json(self) -> str:
        """Return the text of the config file."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, source: str) -> ModelConfig:
        """Read a config file.

        Raises:
            CorruptError: It is no JSON, lacks a field, has one too many or a wrong one, or is of another format.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CorruptError(f"{source} is not JSON: {error}") from None
        if not isinstance(values, Mapping) or values.get("format") != FORMAT:
            found = values.get("format") if isinstance(values, Mapping) else type(values).__name__
            raise CorruptError(f"{source} has format {found!r}; this version reads format {FORMAT}")
        try:
            return cls(**_exact_fields(values, source))
        except SettingError as error:
            raise CorruptError(f"{source}: {error}") from None


def _check_kinds(config: ModelConfig) -> None:
    """Refuse values of another kind in what a file may say: names, prompts, and the one choice."""
    words: dict[str, Any] = {name: getattr(config, name) for name in ("backbone", "backbone_fingerprint", "token_init")}
    if not isinstance(config.prompts, dict):
        raise SettingError(f"prompts are {config.prompts!r}: they must be texts by name")
    words |= {f"prompt {name!r}": prompt for name, prompt in config.prompts.items()}
    for name, value in words.items():
        if not isinstance(value, str):
            raise SettingError(f"{name} is {value!r}: it must be a text")
    if type(config.decode_behind_start) is not bool:
        raise SettingError(f"decode_behind_start is {config.decode_behind_start!r}: it is true or false")


def _exact_fields(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    known = {f.name for f in fields(ModelConfig)}
    required = {"backbone", "backbone_fingerprint", "hidden_size", "embedding_dimension"}
    for what, names in (("lacks", required - set(values)), ("has unknown", set(values) - known)):
        if names:
            raise CorruptError(f"{source} {what} {', '.join(sorted(names))}")
    return dict(values)
