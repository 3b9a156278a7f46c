"""The card of a stock export: what it is, and where it differs from the model that it was made of."""

from __future__ import annotations

from afterword.model.config import ModelConfig


def render_stock_card(config: ModelConfig, glue: str) -> str:
    """Return the text of the card."""
    explicit = (
        f"- A prompt given as text must begin with {glue!r}, as the named ones do: every text begins with it.\n"
        if glue
        else ""
    )
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
base_model: {config.backbone}
tags: [sentence-transformers, afterword, embeddings, llm2vec-gen]
---

# Answer-space embeddings on {config.backbone}, for plain sentence-transformers

This folder encodes what the frozen language model `{config.backbone}` would answer to a text (LLM2Vec-Gen, arXiv
2603.10913). It was exported from an Afterword model with {config.n_thought} thought and {config.n_compression}
compression tokens, and holds the language model without its vocabulary head: its licence is that of
`{config.backbone}`.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("this/folder")
queries = model.encode_query(["What is the capital of France?"])
documents = model.encode_document(["Paris has been the capital of France since 987."])
print(model.similarity(queries, documents))
```

The vectors are those of the Afterword model to 1e-5 in float32. What differs:

- In bfloat16 or float16 the heads are rounded too, which Afterword does not do.
- A prompt and a text are tokenised together. The prompts in this folder were checked; another one should end with white
  space.
{explicit}- Nothing can be decoded: the soft prompt and the vocabulary head are not in this folder.
- The space was not trained for `truncate_dim`: expect a loss.
"""
