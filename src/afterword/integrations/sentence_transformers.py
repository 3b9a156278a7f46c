"""A saved model as a SentenceTransformer.

`load` opens one with nothing to confirm. `SentenceTransformer(folder, trust_remote_code=True)` opens the same folder:
sentence-transformers asks for that flag for every module that is not its own, although the folder holds no code and the
module is the one below, from the installed package.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

import torch
from torch import Tensor

from afterword.backbone.settings import Device, DType
from afterword.errors import SettingError
from afterword.extras import require_extra
from afterword.model.checkpoint import find_folder, save_parts
from afterword.model.model import Afterword
from afterword.model.safe_files import member
from afterword.model.st_folder import ST_CONFIG, sided_prompts

require_extra("sentence-transformers", "sentence_transformers")

from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.base.modules import InputModule  # noqa: E402

SHORTER = "this space was not trained for fewer dimensions (no Matryoshka loss): expect worse results with truncate_dim"


class AfterwordModule(InputModule):
    """The whole of a model, from texts to embeddings, as the one module of a SentenceTransformer.

    Args:
        model: The model; it is held, not copied.
    """

    save_in_root = True

    def __init__(self, model: Afterword) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model = model
        self.tokenizer = model.backbone.text.tokenizer
        self.llm = model.backbone.model
        self.parts = model.parts

    @property
    def max_seq_length(self) -> int:
        """Most tokens of a text together with the learned ones; a new value changes where texts are cut."""
        return self.model.config.max_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self.model = Afterword(self.model.backbone, self.parts, replace(self.model.config, max_length=value))

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_: Any) -> dict[str, Tensor]:
        """Tokenise texts behind a prompt.

        Returns:
            `input_ids` and `attention_mask`, padded on the right, without the learned tokens; in `shared_length` how
            many tokens all rows have in common. *Shapes:* `(batch, time)` twice, `(batch,)`.

        Raises:
            InputError: An item is no string or holds a lone surrogate; its index in this batch is named.
        """
        shared, ends = self.model.inputs.split(inputs, prompt or "")
        rows = [[*shared, *end] for end in ends]
        width = max(map(len, rows), default=0)
        ids = [row + [0] * (width - len(row)) for row in rows]
        mask = [[1] * len(row) + [0] * (width - len(row)) for row in rows]
        return {
            "input_ids": torch.tensor(ids, dtype=torch.long).view(len(rows), width),
            "attention_mask": torch.tensor(mask, dtype=torch.long).view(len(rows), width),
            "shared_length": torch.full((len(rows),), len(shared)),
        }

    def forward(self, features: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
        """Encode a batch of `preprocess`.

        Returns:
            `sentence_embedding`, and in `token_embeddings` the aligned vectors of the compression tokens, with a mask
            that fits them. *Shapes:* `(batch, dimension)`, `(batch, n, dimension)`, `(batch, n)`.
        """
        lengths = features["attention_mask"].sum(dim=1).tolist()
        rows = [row[:n] for row, n in zip(features["input_ids"].tolist(), lengths, strict=True)]
        common = int(features["shared_length"][0])
        shared, ends = tuple(rows[0][:common]), [row[common:] for row in rows]
        order: list[int] = []
        found: list[Tensor] = []
        for group, batch in self.model.inputs.grouped(shared, ends, len(ends)):
            order += group
            found.append(self.model.states(batch))
        states = torch.cat(found)[torch.tensor(order, device=self.model.device).argsort()]
        aligned = self.parts.align(self.parts.soft_prompt(states))
        return {
            "token_embeddings": aligned,
            "attention_mask": torch.ones(aligned.shape[:2], dtype=torch.long, device=aligned.device),
            "sentence_embedding": aligned.mean(dim=1),
        }

    def get_embedding_dimension(self) -> int:
        """Return the width of an embedding."""
        return self.model.get_embedding_dimension()

    def train(self, mode: bool = True) -> AfterwordModule:
        """Set the mode of the learned parts; the LLM stays frozen in eval mode."""
        super().train(mode)
        self.llm.eval()
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> AfterwordModule:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.parts.float()  # whatever type the LLM is brought to
        return self

    def on_model_ready(self, model: Any) -> None:
        """Warn where a model is opened with fewer dimensions."""
        if model.truncate_dim is not None:
            warnings.warn(SHORTER, stacklevel=2)

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write tokens, heads, config and card; prompts may have been changed in the library, which wrote them."""
        folder, config = Path(output_path), self.model.config
        if (folder / ST_CONFIG).is_file():
            written = json.loads((folder / ST_CONFIG).read_text(encoding="utf-8"))
            kept = {name: written[name] for name in ("prompts", "default_prompt_name") if name in written}
            config = replace(config, **kept)
        save_parts(folder, config, self.parts)

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        init_defaults: dict[str, Any] | None = None,
        trust_remote_code: bool = False,
        model_kwargs: dict[str, Any] | None = None,
        **_: Any,
    ) -> AfterwordModule:
        """Load a saved model with its LLM, for sentence-transformers.

        `trust_remote_code` was given for this class and does not reach the LLM, which the folder only names; say
        `model_kwargs={"trust_remote_code": True}` for that. `model_kwargs` may also hold `dtype`.

        Raises:
            ArtefactError: The folder is not what it should be.
            SettingError: The type is not one that a backbone is loaded in.
        """
        options = dict(model_kwargs or {})
        dtype = str(options.pop("dtype", options.pop("torch_dtype", "auto"))).removeprefix("torch.")
        if dtype not in get_args(DType):
            raise SettingError(f"dtype {dtype!r}: it is one of {', '.join(get_args(DType))}")
        trust = bool(options.pop("trust_remote_code", False))
        folder = find_folder(
            model_name_or_path, revision, token=token, cache_dir=cache_folder, local_files_only=local_files_only
        )
        model = Afterword.from_pretrained(
            member(folder, subfolder), dtype=cast("DType", dtype), trust_remote_code=trust
        )
        return cls(model)


class AfterwordTransformer(SentenceTransformer):
    """A SentenceTransformer that says so when its vectors are cut short."""

    def encode(self, *arguments: Any, truncate_dim: int | None = None, **options: Any) -> Any:
        """Encode as `SentenceTransformer.encode`; with `truncate_dim`, warn."""
        if truncate_dim is not None:
            warnings.warn(SHORTER, stacklevel=2)
        return super().encode(*arguments, truncate_dim=truncate_dim, **options)


def load(
    path: str | Path,
    *,
    device: Device = "auto",
    dtype: DType = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    truncate_dim: int | None = None,
) -> SentenceTransformer:
    """Open a saved model, from a folder or the hub, as a SentenceTransformer.

    Args:
        path: The model: ours, or a checkpoint of the paper's authors.
        device: Where it runs.
        dtype: Type of the LLM's weights.
        revision: Revision on the hub.
        trust_remote_code: Run code that comes with the LLM.
        truncate_dim: Keep only the first dimensions; warns, as the space was not trained for it.

    Raises:
        ArtefactError: The folder is not what it should be, as `Afterword.from_pretrained` says.
    """
    model = Afterword.from_pretrained(
        path, device=device, dtype=dtype, revision=revision, trust_remote_code=trust_remote_code
    )
    return as_sentence_transformer(model, truncate_dim)


def as_sentence_transformer(model: Afterword, truncate_dim: int | None = None) -> SentenceTransformer:
    """Return a model as a SentenceTransformer that shares its weights."""
    config = model.config
    return AfterwordTransformer(
        modules=[AfterwordModule(model)],
        device=str(model.device),
        prompts=sided_prompts(config),
        default_prompt_name=config.default_prompt_name,
        similarity_fn_name=cast("Any", config.similarity_fn_name),
        truncate_dim=truncate_dim,
    )
