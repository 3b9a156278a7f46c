"""The recipe of a student: every setting of every stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from afterword.backbone.settings import BackboneSettings
from afterword.corpus.queries import QuerySettings
from afterword.corpus.responses import ResponseSettings
from afterword.corpus.targets import TargetSettings
from afterword.flow.flat_recipe import FlatRecipe
from afterword.flow.presets import preset_values
from afterword.model.settings import ModelSettings
from afterword.training.settings import TrainSettings


@dataclass(frozen=True)
class Recipe(FlatRecipe):
    """The settings of all stages, from queries to a trained model."""

    beside: ClassVar[tuple[str, ...]] = ("preset",)
    backbone: BackboneSettings
    queries: QuerySettings
    responses: ResponseSettings
    targets: TargetSettings
    model: ModelSettings
    training: TrainSettings

    @classmethod
    def from_values(cls, values: Mapping[str, Any], source: str = "recipe", **absent: Any) -> Recipe:
        """Build a recipe from flat values; `preset` names a set of values that the others win over."""
        given = dict(values)
        return super().from_values({**preset_values(given.pop("preset", None)), **given}, source, **absent)
