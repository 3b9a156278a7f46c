"""The model card: what a model is, what made it, how good it is, how to use it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from afterword.model.config import ModelConfig

HERE = "this/folder"
MEASURES = {
    "recon": "nats a token of the response, from the soft prompt",
    "align": "alignment loss",
    "cosine": "cosine with the teacher's embedding of the response",
    "retrieval": "own target first among all held out",
}
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def render_card(config: ModelConfig, name: str = HERE, evaluation: str | None = None) -> str:
    """Return the text of a model card.

    Args:
        config: The model's; recipe and measures stand in its `training`.
        name: By what the model is loaded: its name on the hub.
        evaluation: A report in Markdown.
    """
    parts = [
        _head(config),
        _about(config),
        _use(config, name),
        _recipe(config.training),
        _measures(config.training),
        _evaluation(evaluation),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def is_hub_name(name: str) -> bool:
    """Return whether others can load a model by this name: `owner/name`, and no folder of this machine."""
    return _HUB_NAME.fullmatch(name) is not None and not Path(name).is_dir()


def _head(config: ModelConfig) -> str:
    # The hub refuses a card whose base_model is not one of its own names.
    base = [f"base_model: {config.backbone}"] if is_hub_name(config.backbone) else []
    lines = ["---", "library_name: afterword", "pipeline_tag: sentence-similarity", *base]
    return "\n".join([*lines, "tags: [afterword, sentence-transformers, embeddings, llm2vec-gen]", "---"])


def _about(config: ModelConfig) -> str:
    teacher = config.teacher.get("name", "not recorded")
    return f"""# Answer-space embeddings on {config.backbone}

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
| prompt of queries | {_code(config.prompts.get("query", ""))} |
| prompt of documents | {_code(config.prompts.get("document", ""))} |"""


def _use(config: ModelConfig, name: str) -> str:
    note = ""
    if not is_hub_name(config.backbone) and "/" in config.backbone:
        note = (
            "\n\nIts backbone was loaded from a folder. Where that is not there, give your own copy: "
            '`Afterword.from_pretrained(..., backbone=load_backbone(BackboneSettings("your/folder")))`. It is compared '
            "with the fingerprint."
        )
    return f"""## Use

```python
from afterword import Afterword

model = Afterword.from_pretrained({json.dumps(name)})
queries = model.encode_query(["What is the capital of France?"])
documents = model.encode_document(["Paris is the capital of France.", "A cat sleeps."])
print(model.similarity(queries, documents))
print(model.decode(["What is the capital of France?"]))
```

Or in sentence-transformers, with Afterword installed:

```python
from afterword.integrations.sentence_transformers import load

model = load({json.dumps(name)})
print(model.similarity(model.encode_query(["What is the capital of France?"]), model.encode_document(["Paris."])))
```{note}"""


def _recipe(training: dict[str, Any]) -> str:
    recipe, data = training.get("recipe"), training.get("data", {})
    if not recipe:
        return ""
    lines = "\n".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in recipe.items())
    return f"""## Recipe

{data.get("examples", "?")} training examples, {data.get("held_out", "?")} responses held out.

```toml
{lines}
```"""


def _measures(training: dict[str, Any]) -> str:
    events = training.get("measures", [])
    if not events:
        return ""
    header = "".join(f" step {event['step']} |" for event in events)
    rows = [
        f"| {words} |" + "".join(f" {event[key]:.4g} |" for event in events)
        for key, words in MEASURES.items()
        if all(key in event for event in events)
    ]
    return "\n".join(["## Measures on held-out responses", "", f"| |{header}", "|---|" + "---|" * len(events), *rows])


def _evaluation(report: str | None) -> str:
    """Return a report with its headings one level lower."""
    if report is None:
        return ""
    lines, fenced = [], False
    for line in report.strip().splitlines():
        fenced ^= line.startswith("```")
        lines.append(f"#{line}" if line.startswith("#") and not fenced else line)
    return "\n".join(lines)


def _code(prompt: str) -> str:
    return f"`{' '.join(prompt.replace('`', chr(39)).replace('|', '/').split())}`" if prompt.strip() else "none"
