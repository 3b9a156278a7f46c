"""From soft prompts back to words."""

from __future__ import annotations

from collections.abc import Collection

from jaxtyping import Float
from torch import Tensor

from afterword.backbone.backbone import Backbone
from afterword.backbone.generate import Sampling, generate


def decode_soft_prompts(
    backbone: Backbone,
    soft_prompts: Float[Tensor, "N n hidden"],
    sampling: Sampling,
    stops: Collection[int],
    *,
    begin: bool,
    batch_size: int,
) -> list[str]:
    """Let the frozen LLM go on from soft prompts.

    Args:
        backbone: The LLM.
        soft_prompts: What it decodes from.
        sampling: How it writes.
        stops: Ids that end an answer.
        begin: Put the token that begins every text of this LLM before a soft prompt.
        batch_size: Rows in one pass.

    Returns:
        One text for each row.
    """
    decoded: list[str] = []
    for rows in soft_prompts.split(batch_size) if len(soft_prompts) else ():  # type: ignore[no-untyped-call]
        answers = generate(backbone, rows, sampling, stops, begin=begin)
        decoded += [backbone.text.decode(answer.ids).strip() for answer in answers]
    return decoded
