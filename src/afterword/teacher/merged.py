"""A teacher as a plain Hugging Face folder, its adapters merged, for tools that know nothing of us."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from transformers import PreTrainedModel

from afterword.errors import SettingError
from afterword.teacher.llm import LLMTeacher


def merge_teacher(teacher: LLMTeacher, out: str | Path) -> None:
    """Write the LLM without its vocabulary head, adapters merged, with its tokenizer and a card.

    A bidirectional one says so in its config (`is_causal: false`), which transformers obeys from 5.17 on.

    Args:
        teacher: The teacher.
        out: A folder that is not there yet, or is empty.

    Raises:
        SettingError: The folder holds something.
    """
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingError(f"{folder} is not empty: choose another --out")
    backbone, settings = teacher.backbone, teacher.settings
    body = cast("PreTrainedModel", backbone.body)
    config = body.config
    before = getattr(config, "is_causal", None)
    try:
        if settings.both_ways:
            config.is_causal = False
        body.save_pretrained(folder)
    finally:
        if before is None and hasattr(config, "is_causal"):
            del config.is_causal
        elif before is not None:
            config.is_causal = before
    backbone.text.tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(_card(teacher), encoding="utf-8")


def _card(teacher: LLMTeacher) -> str:
    settings = teacher.settings
    count = "all states count" if settings.pool_prompt else "states of BOS and prompt do not count"
    return f"""---
pipeline_tag: sentence-similarity
base_model: {teacher.backbone.name}
tags: [afterword, embeddings, llm2vec]
---

# {teacher.backbone.name} as a text encoder

Attention is {settings.attention}. An embedding is the {settings.pooling.replace("_", " ")} of the last states over a
text ({count}){f", behind the prompt `{settings.prompt}`" if settings.prompt else ""}; texts have at most
{settings.max_seq_length} tokens. Written by `afterword teacher merge`.

```python
from transformers import AutoModel, AutoTokenizer

model, tokenizer = AutoModel.from_pretrained("this/folder"), AutoTokenizer.from_pretrained("this/folder")
states = model(**tokenizer("a text", return_tensors="pt")).last_hidden_state
```
"""
