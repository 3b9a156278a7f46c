"""What makes a saved model a SentenceTransformer folder too: two small files, and no code.

The module that they name is in the installed package, `afterword.integrations.sentence_transformers`.
"""

from __future__ import annotations

import json

from afterword.model.config import ModelConfig

MODULES = "modules.json"
ST_CONFIG = "config_sentence_transformers.json"
MODULE = "afterword.integrations.sentence_transformers.AfterwordModule"


def sentence_transformer_files(config: ModelConfig) -> dict[str, str]:
    """Return the text of the two files by their names."""
    modules = [{"idx": 0, "name": "0", "path": "", "type": MODULE}]
    settings = {
        "model_type": "SentenceTransformer",
        "prompts": sided_prompts(config),
        "default_prompt_name": config.default_prompt_name,
        "similarity_fn_name": config.similarity_fn_name,
    }
    texts = {MODULES: modules, ST_CONFIG: settings}
    return {name: json.dumps(value, indent=2, ensure_ascii=False) + "\n" for name, value in texts.items()}


def sided_prompts(config: ModelConfig) -> dict[str, str]:
    """Return the prompts such that sentence-transformers puts the same one before a query and a document as we do.

    It takes the prompt of a side and else none; we take the default one where a side has none.
    """
    prompts = config.prompts
    fallback = prompts[config.default_prompt_name] if config.default_prompt_name is not None else ""
    document = next((prompts[name] for name in ("document", "passage", "corpus") if name in prompts), fallback)
    return {**prompts, "query": prompts.get("query", fallback), "document": document}
