"""What the first stages take: an LLM and queries, by name."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from afterword.backbone.backbone import Backbone
from afterword.backbone.load import load_backbone
from afterword.backbone.packaged import needs_preparing
from afterword.backbone.settings import BackboneSettings
from afterword.corpus.queries import QuerySettings
from afterword.flow.progress import Watcher


def load_watched(settings: BackboneSettings, watcher: Watcher) -> Backbone:
    """Load an LLM, and say so where that takes long."""
    if needs_preparing(settings.backbone):
        watcher.say("unpacking the LLM's weights into the cache, once: up to a minute")
    return load_backbone(settings)


def query_source(settings: QuerySettings) -> QuerySettings:
    """Return the settings with `demo` replaced by the file of demo queries in this package."""
    return replace(settings, queries=str(demo_file("queries.jsonl"))) if settings.queries == "demo" else settings


def demo_file(name: str) -> Path:
    """Return a file of the demo's content."""
    return Path(str(files("afterword.flow") / "data" / name))
