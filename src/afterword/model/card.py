"""The model card."""

from __future__ import annotations

from afterword.model.config import ModelConfig


def render_card(config: ModelConfig) -> str:
    """Return the text of a model card: what it is, what it stands on, how to use it."""
    teacher = config.teacher.get("name", "not recorded")
    return f"""---
library_name: afterword
pipeline_tag: sentence-similarity
base_model: {config.backbone}
tags: [afterword, embeddings, llm2vec-gen]
---

# Answer-space embeddings on {config.backbone}

This model encodes what the frozen language model `{config.backbone}` would answer to a text. It consists of
{config.n_thought} thought and {config.n_compression} compression tokens with two linear heads, trained as described in
LLM2Vec-Gen (arXiv 2603.10913). The language model itself is not changed and not part of this folder.

| | |
|---|---|
| backbone | `{config.backbone}` (fingerprint `{config.backbone_fingerprint}`) |
| teacher | {teacher} |
| embedding dimension | {config.embedding_dimension} |
| tokens stand | {"where the answer would start" if config.placement == "answer" else "after the query"} |
| longest text | {config.max_length - config.n_tokens} tokens, less what the frame takes |

```python
from afterword import Afterword

model = Afterword.from_pretrained("this/folder")
vectors = model.encode(["What is the capital of France?"])
print(model.decode(["What is the capital of France?"]))
```
"""
