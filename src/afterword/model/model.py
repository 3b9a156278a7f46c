"""The embedder: a frozen LLM with learned tokens and heads, behind the names of sentence-transformers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import TokenBatch
from afterword.backbone.generate import Sampling
from afterword.backbone.load import load_backbone
from afterword.backbone.passes import full_pass
from afterword.backbone.settings import BackboneSettings, Device, DType
from afterword.encoder import hash_tensors
from afterword.errors import SettingError
from afterword.model.checkpoint import save_model
from afterword.model.config import ModelConfig
from afterword.model.decoding import decode_soft_prompts
from afterword.model.heads import LearnedParts
from afterword.model.hub import push_model
from afterword.model.inputs import Inputs, as_texts
from afterword.model.latents import Latents
from afterword.model.opening import open_model
from afterword.model.settings import ModelSettings
from afterword.model.tokens import embedding_scale, start_tokens
from afterword.prompts import resolve_prompt

Precision: TypeAlias = Literal["float32"]


class Afterword:
    """Encodes what a frozen LLM would answer to a text (paper §3).

    Args:
        backbone: The frozen LLM; several models may share one.
        parts: Learned tokens and heads.
        config: What goes with them into a saved folder.
    """

    def __init__(self, backbone: Backbone, parts: LearnedParts, config: ModelConfig) -> None:
        self.backbone = backbone
        self.parts = parts.to(backbone.device).eval()
        self.config = config
        self.inputs = Inputs(backbone, config)

    @classmethod
    def from_backbone(
        cls,
        name_or_path: str | Path | Backbone,
        n_thought: int = 0,
        n_compression: int = 10,
        *,
        embedding_dimension: int | None = None,
        settings: ModelSettings | None = None,
        device: Device = "auto",
        dtype: DType = "auto",
        revision: str | None = None,
        trust_remote_code: bool = False,
        seed: int = 0,
    ) -> Afterword:
        """Start an untrained model on a frozen LLM.

        Args:
            name_or_path: Hub name, folder, packaged model (`demo`, `demo-qwen`), or a loaded backbone.
            n_thought: Thought tokens, m.
            n_compression: Compression tokens, n.
            embedding_dimension: Width of the teacher's space; the hidden size by default.
            settings: All settings at once; then `n_thought` and `n_compression` are taken from it.
            device: Where the LLM runs.
            dtype: Type of its weights.
            revision: Revision on the hub.
            trust_remote_code: Run code that comes with the LLM.
            seed: Seed of random tokens.
        """
        if isinstance(name_or_path, Backbone):
            backbone = name_or_path
        else:
            backbone = load_backbone(BackboneSettings(str(name_or_path), revision, device, dtype, trust_remote_code))
        settings = settings or ModelSettings(n_thought=n_thought, n_compression=n_compression)
        config = ModelConfig(
            backbone=backbone.name,
            backbone_revision=backbone.revision,
            backbone_fingerprint=backbone.fingerprint,
            hidden_size=backbone.hidden_size,
            embedding_dimension=embedding_dimension or backbone.hidden_size,
            **vars(settings),
        )
        tokens = start_tokens(backbone, config.n_tokens, settings.token_init, seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            parts = LearnedParts(tokens, config.embedding_dimension, embedding_scale(backbone))
        return cls(backbone, parts, config)

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        backbone: Backbone | None = None,
        device: Device = "auto",
        dtype: DType = "auto",
        revision: str | None = None,
        trust_remote_code: bool = False,
    ) -> Afterword:
        """Load a saved model, or a checkpoint of the paper's authors, from a folder or the hub.

        Its backbone is loaded too, unless one is given.

        Raises:
            MissingPartError: The folder lacks a part, which is named.
            CorruptError: A part is not what its config says.
            MismatchError: The backbone is not the one that the model was trained on.
        """
        return cls(*open_model(str(path), backbone, revision, device, dtype, trust_remote_code))

    def save_pretrained(self, path: str | Path) -> None:
        """Save tokens, heads, config and card to a folder; the backbone is named in it, not copied."""
        save_model(Path(path), self.config, self.parts)

    def push_to_hub(self, repo_id: str, **how: Any) -> str:
        """Save to a repository on the hub, made if it is not there; return its address. `how`: see `push_model`."""
        return push_model(self.save_pretrained, self.config, repo_id, **how)

    @property
    def name(self) -> str:
        """A name for reports."""
        return f"Afterword({self.config.backbone})"

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides its vectors."""
        config = self.config
        prompts = (sorted(config.prompts.items()), config.default_prompt_name)
        settings = f"{config.backbone_fingerprint}{sorted(vars(config.settings).items())}{prompts}"
        return hash_tensors([(settings, torch.empty(0)), *self.parts.named_parameters()])

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.backbone.device

    def compile(self) -> None:
        """Compile the LLM's layers for long encoding, as `Backbone.compile` says; other models on it have them too."""
        self.backbone.compile()

    def get_embedding_dimension(self) -> int:
        """Return the width of an embedding."""
        return self.config.embedding_dimension

    def encode(
        self,
        inputs: str | Sequence[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        output_value: Literal["sentence_embedding", "token_embeddings"] | None = "sentence_embedding",
        precision: Precision = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
    ) -> np.ndarray | Tensor | list[Tensor]:
        """Encode texts; names, order and defaults are those of sentence-transformers 6.

        Args:
            inputs: One text, or a list.
            prompt_name: Name of a saved prompt to put before each text.
            prompt: A prompt to put before each text; beats `prompt_name`.
            batch_size: Most texts in one pass; passes are also held to a budget of tokens.
            show_progress_bar: Show progress; by default for more than 1,000 texts on a terminal.
            output_value: `sentence_embedding`, or `token_embeddings` for the aligned vectors of the compression tokens.
            precision: Only `float32`; use sentence-transformers' `quantize_embeddings` on the result for others.
            convert_to_numpy: Return numpy arrays (default).
            convert_to_tensor: Return one tensor; beats `convert_to_numpy`.
            device: Only `None`; a model stays where it was loaded.
            normalize_embeddings: Scale each embedding to length 1.
            truncate_dim: Keep only the first dimensions. The space was not trained for it: expect a loss.

        Returns:
            A vector of shape `(d,)` for one text, a matrix `(N, d)` in float32 for a list. With `token_embeddings`, `n`
            vectors for each text.

        Raises:
            InputError: An item is no string or holds a lone surrogate; its index is named.
            SettingError: An argument has a value that is not supported.
        """
        if output_value not in ("sentence_embedding", "token_embeddings"):
            raise SettingError(f"output_value {output_value!r}: it is 'sentence_embedding' or 'token_embeddings'")
        if (precision, device) != ("float32", None):
            raise SettingError(f"encode takes precision='float32' and device=None here, got {precision!r}, {device!r}")
        single = isinstance(inputs, str)
        texts = as_texts(inputs)
        prompt = resolve_prompt(self.config.prompts, prompt, prompt_name, self.config.default_prompt_name)
        per_token = output_value == "token_embeddings"
        vectors = self._encode(texts, prompt, batch_size, _wants_bar(show_progress_bar, len(texts)), per_token)
        if truncate_dim is not None:
            vectors = vectors[..., :truncate_dim]
        if normalize_embeddings:
            vectors = torch.nn.functional.normalize(vectors, dim=-1)
        vectors = vectors[0] if single else vectors
        if convert_to_tensor:
            return vectors
        if convert_to_numpy:
            return vectors.cpu().numpy()
        return vectors if single else list(vectors)

    def encode_query(self, inputs: str | Sequence[str], prompt_name: str | None = None, *a: Any, **options: Any) -> Any:
        """Encode with the prompt named `query`; otherwise as `encode`, whose other arguments it takes in order."""
        return self.encode(inputs, prompt_name or self._first_prompt("query"), *a, **options)

    def encode_document(self, inputs: str | Sequence[str], prompt_name: str | None = None, *a: Any, **kw: Any) -> Any:
        """Encode with the prompt named `document`, `passage` or `corpus`; otherwise as `encode`."""
        return self.encode(inputs, prompt_name or self._first_prompt("document", "passage", "corpus"), *a, **kw)

    def similarity(self, embeddings1: np.ndarray | Tensor, embeddings2: np.ndarray | Tensor) -> Tensor:
        """Return the cosine of each row of the first with each row of the second, `(N, M)`."""
        first, second = (
            torch.nn.functional.normalize(torch.as_tensor(e, dtype=torch.float32).reshape(-1, e.shape[-1]), dim=-1)
            for e in (embeddings1, embeddings2)
        )
        return first @ second.T

    @torch.inference_mode()
    def latents(self, texts: str | Sequence[str], prompt: str | None = None, batch_size: int = 32) -> Latents:
        """Return states, soft prompt and embedding of texts, in order; without a prompt, behind the default one.

        Unlike `encode`, which keeps the embeddings only, this holds `2 · n · hidden` numbers for each text.
        """
        listed = as_texts(texts)
        prompt = resolve_prompt(self.config.prompts, prompt, default=self.config.default_prompt_name)
        states = torch.empty(len(listed), self.config.n_compression, self.config.hidden_size, device=self.device)
        for rows, batch in self.inputs.batches(listed, prompt, batch_size):
            states[rows] = self.states(batch)
        soft_prompt = self.parts.soft_prompt(states)
        return Latents(states, soft_prompt, self.parts.embedding(soft_prompt))

    def decode(
        self,
        texts_or_latents: str | Sequence[str] | Latents,
        max_new_tokens: int = 64,
        batch_size: int = 32,
        repetition_penalty: float = 1.0,
    ) -> list[str]:
        """Let the LLM say what an embedding holds, from its soft prompt (a pooled embedding cannot be undone).

        Args:
            texts_or_latents: Texts, or latents from `latents`.
            max_new_tokens: Most tokens of each answer.
            batch_size: Rows in one pass.
            repetition_penalty: Above 1, words already said become less likely; small models repeat themselves.

        Returns:
            One text for each item, greedy; an end comes after one token at the earliest.
        """
        if isinstance(texts_or_latents, Latents):
            latents = texts_or_latents
        else:
            latents = self.latents(texts_or_latents, batch_size=batch_size)
        stops = {*self.backbone.end_ids, *(self.backbone.line_ids if self.inputs.frame.one_line else ())}
        sampling = Sampling(max_new_tokens, min_new_tokens=1, repetition_penalty=repetition_penalty)
        begin = self.config.decode_behind_start
        return decode_soft_prompts(
            self.backbone, latents.soft_prompt, sampling, stops, begin=begin, batch_size=batch_size
        )

    def states(self, batch: TokenBatch) -> Tensor:
        """Return the compression states of a token batch in float32. *Shape:* `(batch, n, hidden)`."""
        return full_pass(self.backbone, batch, self.parts.tokens)[:, self.config.n_thought :].float()

    @torch.inference_mode()
    def _encode(self, texts: list[str], prompt: str, batch_size: int, bar: bool, per_token: bool) -> Tensor:
        n, dimension = self.config.n_compression, self.config.embedding_dimension
        vectors = torch.empty(len(texts), *([n] if per_token else []), dimension, device=self.device)
        with tqdm(total=len(texts), desc="encode", unit="text", disable=not bar) as progress:
            for rows, batch in self.inputs.batches(texts, prompt, batch_size):
                soft_prompt = self.parts.soft_prompt(self.states(batch))
                vectors[rows] = self.parts.align(soft_prompt) if per_token else self.parts.embedding(soft_prompt)
                progress.update(len(rows))
        return vectors

    def _first_prompt(self, *names: str) -> str | None:
        return next((name for name in names if name in self.config.prompts), None)


def _wants_bar(show: bool | None, count: int) -> bool:
    return show if show is not None else count > 1000 and sys.stderr.isatty()
