"""Afterword: embeddings of what a language model would answer (LLM2Vec-Gen, arXiv 2603.10913)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from afterword.backbone.backbone import Backbone
    from afterword.backbone.load import load_backbone
    from afterword.backbone.settings import BackboneSettings
    from afterword.corpus.queries import QuerySettings, load_queries
    from afterword.corpus.responses import ResponseSettings, generate_responses, open_responses
    from afterword.corpus.targets import TargetSettings, embed_targets, open_targets
    from afterword.encoder import Encoder
    from afterword.errors import AfterwordError
    from afterword.evaluation.run import evaluate
    from afterword.evaluation.settings import EvaluateSettings
    from afterword.flow.open_encoder import open_encoder
    from afterword.flow.open_index import open_index
    from afterword.model.latents import Latents
    from afterword.model.model import Afterword
    from afterword.model.settings import ModelSettings
    from afterword.search.build import build_index
    from afterword.search.documents import Document, read_documents
    from afterword.search.index import Index
    from afterword.search.settings import DocumentSettings, IndexSettings
    from afterword.serving.app import create_app
    from afterword.serving.settings import ServeSettings
    from afterword.teacher.adapters import LoraSettings
    from afterword.teacher.open import open_teacher
    from afterword.teacher.settings import PoolingSettings
    from afterword.training.settings import TrainSettings
    from afterword.training.teacher_settings import TeacherSettings
    from afterword.training.train import train
    from afterword.training.train_teacher import train_teacher

__version__ = "0.1.0"

_HOME = {
    "Afterword": "model.model",
    "AfterwordError": "errors",
    "Backbone": "backbone.backbone",
    "BackboneSettings": "backbone.settings",
    "Document": "search.documents",
    "DocumentSettings": "search.settings",
    "Encoder": "encoder",
    "EvaluateSettings": "evaluation.settings",
    "Index": "search.index",
    "IndexSettings": "search.settings",
    "Latents": "model.latents",
    "LoraSettings": "teacher.adapters",
    "ModelSettings": "model.settings",
    "PoolingSettings": "teacher.settings",
    "QuerySettings": "corpus.queries",
    "ResponseSettings": "corpus.responses",
    "ServeSettings": "serving.settings",
    "TargetSettings": "corpus.targets",
    "TeacherSettings": "training.teacher_settings",
    "TrainSettings": "training.settings",
    "build_index": "search.build",
    "create_app": "serving.app",
    "embed_targets": "corpus.targets",
    "evaluate": "evaluation.run",
    "generate_responses": "corpus.responses",
    "load_backbone": "backbone.load",
    "load_queries": "corpus.queries",
    "open_encoder": "flow.open_encoder",
    "open_index": "flow.open_index",
    "open_responses": "corpus.responses",
    "open_targets": "corpus.targets",
    "open_teacher": "teacher.open",
    "read_documents": "search.documents",
    "train": "training.train",
    "train_teacher": "training.train_teacher",
}

# Names that need an optional package: the extra, and the module it brings.
_EXTRA = {"create_app": ("serve", "fastapi"), "evaluate": ("evaluate", "mteb")}

__all__ = [
    "Afterword",
    "AfterwordError",
    "Backbone",
    "BackboneSettings",
    "Document",
    "DocumentSettings",
    "Encoder",
    "EvaluateSettings",
    "Index",
    "IndexSettings",
    "Latents",
    "LoraSettings",
    "ModelSettings",
    "PoolingSettings",
    "QuerySettings",
    "ResponseSettings",
    "ServeSettings",
    "TargetSettings",
    "TeacherSettings",
    "TrainSettings",
    "build_index",
    "create_app",
    "embed_targets",
    "evaluate",
    "generate_responses",
    "load_backbone",
    "load_queries",
    "open_encoder",
    "open_index",
    "open_responses",
    "open_targets",
    "open_teacher",
    "read_documents",
    "train",
    "train_teacher",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import afterword` costs nothing."""
    if name not in _HOME:
        raise AttributeError(f"module 'afterword' has no attribute {name!r}")
    if name in _EXTRA:
        from afterword.extras import require_extra

        require_extra(*_EXTRA[name])
    return getattr(import_module(f"afterword.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
