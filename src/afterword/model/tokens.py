"""The learned vectors that stand behind a query."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from afterword.backbone.backbone import Backbone
from afterword.errors import SettingError


def start_tokens(backbone: Backbone, count: int, init: str, seed: int = 0) -> Float[Tensor, "count hidden"]:
    """Return the vectors that training starts from, in the space of embedded tokens, in float32 on the CPU.

    Random vectors get the mean and the standard deviation of real embedded tokens, dimension by dimension: Gemma's are
    √hidden times larger than its weights, and vectors of another scale than the LLM has ever seen make poor starts.

    Args:
        backbone: The frozen LLM.
        count: How many, m + n.
        init: `random`, or a text whose tokens' embeddings are repeated until there are enough.
        seed: Seed of the draw.

    Raises:
        SettingError: The text has no token.
    """
    if init != "random":
        ids = backbone.text.plain([init])[0]
        if not ids:
            raise SettingError(f"token_init {init!r} has no token: give 'random' or a text")
        repeated = torch.tensor([[ids[i % len(ids)] for i in range(count)]], device=backbone.device)
        return backbone.embed(repeated)[0].float().cpu().clone()
    generator = torch.Generator().manual_seed(seed)
    real = _embedded_sample(backbone, generator)
    noise = torch.randn(count, backbone.hidden_size, generator=generator)
    return real.mean(dim=0) + noise * real.std(dim=0)


def embedding_scale(backbone: Backbone) -> float:
    """Return the root mean square of embedded tokens: the scale of what the LLM is used to read."""
    real = _embedded_sample(backbone, torch.Generator().manual_seed(0))
    return float(real.square().mean().sqrt())


@torch.no_grad()
def row_scale(backbone: Backbone) -> float:
    """Return what a row of the vocabulary is multiplied by on its way into the LLM: √hidden in Gemma, 1 in most.

    A learned vector lives behind that; as a row of a vocabulary it must be divided by it.

    Raises:
        SettingError: The LLM does something else with its rows.
    """
    count = min(len(backbone.embedding_matrix), 256)
    embedded = backbone.embed(torch.arange(count, device=backbone.device)[None])[0].double()
    rows = backbone.embedding_matrix[:count].double()
    scale = float((rows * embedded).sum() / rows.square().sum())
    if not torch.allclose(embedded, rows * scale, rtol=torch.finfo(backbone.dtype).eps * 4):
        raise SettingError(f"{backbone.name} does more than scale the rows of its vocabulary")
    return scale


def _embedded_sample(backbone: Backbone, generator: torch.Generator, size: int = 4096) -> Float[Tensor, "size hidden"]:
    vocabulary = min(len(backbone.text.tokenizer), backbone.embedding_matrix.shape[0])
    ids = torch.randint(vocabulary, (1, size), generator=generator).to(backbone.device)
    return backbone.embed(ids)[0].detach().float().cpu()
