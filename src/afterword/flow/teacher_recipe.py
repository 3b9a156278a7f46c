"""The recipe of a teacher, and how it is carried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from afterword.backbone.settings import BackboneSettings
from afterword.corpus.pairs import read_pairs
from afterword.corpus.queries import QuerySettings, TextSource, load_queries
from afterword.corpus.responses import open_responses
from afterword.flow.flat_recipe import KEPT, FlatRecipe
from afterword.flow.inputs import load_watched, query_source
from afterword.flow.progress import Steps, Watcher
from afterword.teacher.adapters import LoraSettings
from afterword.teacher.settings import PoolingSettings
from afterword.training.teacher_settings import TeacherSettings
from afterword.training.train_teacher import TeacherResult, llm2vec_pooling, train_teacher


@dataclass(frozen=True)
class TextSettings(TextSource):
    """Which texts a teacher learns from."""

    responses: str | None = None
    """Folder that `afterword respond` wrote: its texts are learned from, too."""
    sts: str | None = None
    """File of pairs (sentence1, sentence2, score) to measure on while SimCSE is trained."""

    def source(self, seed: int) -> QuerySettings:
        """Return these settings as those of queries."""
        return QuerySettings(**{field.name: getattr(self, field.name) for field in fields(TextSource)}, seed=seed)


@dataclass(frozen=True)
class TeacherRecipe(FlatRecipe):
    """All that decides what `afterword teacher train` makes."""

    texts: TextSettings
    pooling: PoolingSettings = field(default_factory=llm2vec_pooling)
    lora: LoraSettings = field(default_factory=LoraSettings)
    training: TeacherSettings = field(default_factory=TeacherSettings)
    backbone: BackboneSettings = field(default_factory=BackboneSettings)


def recipe_within(path: str, texts: Mapping[str, Path], backbone: BackboneSettings, seed: int) -> TeacherRecipe:
    """Read a teacher's recipe that the recipe of a student names.

    Args:
        path: Where it is.
        texts: The student's `queries` and `responses`, for a recipe that names none. They need not be there yet.
        backbone: The student's LLM, for a recipe that names none; another LLM has its device and type only.
        seed: The student's.

    Raises:
        MissingPartError: There is no such recipe, or something that it names is not there.
        SettingError: It cannot be used.
    """
    given = {**{name: str(place) for name, place in texts.items()}, "seed": seed}
    recipe = TeacherRecipe.read(path, **given, **asdict(backbone))
    if recipe.backbone.backbone != backbone.backbone:  # neither its revision nor the trust in its code are of use there
        recipe = TeacherRecipe.read(path, **given, device=backbone.device, dtype=backbone.dtype)
    if recipe.texts.queries == given["queries"]:
        plain = replace(recipe.texts, column=None, split="train", data_revision=None)
        recipe = replace(recipe, texts=plain)
    elif recipe.texts.queries != "-":
        load_queries(query_source(recipe.texts.source(seed)))
    if recipe.texts.responses not in (None, given["responses"]):
        open_responses(recipe.texts.responses)
    if recipe.texts.sts:
        read_pairs(recipe.texts.sts)
    return recipe


def train_recipe(recipe: TeacherRecipe, folder: Path, watcher: Watcher, *, resume: bool = True) -> TeacherResult:
    """Train the teacher of a recipe, and leave the recipe beside it with every setting written out.

    Args:
        recipe: All settings.
        folder: As in `train_teacher`.
        watcher: Told of progress.
        resume: As in `train_teacher`, whose errors are raised here, too.
    """
    watcher.stage("texts")
    queries, cleaning = load_queries(query_source(recipe.texts.source(recipe.training.seed)))
    texts = [query.text for query in queries]
    if recipe.texts.responses:
        texts += [response.text for response in open_responses(recipe.texts.responses) if response.text]
    sts = read_pairs(recipe.texts.sts) if recipe.texts.sts else None
    watcher.done(f"{len(texts)} texts; {cleaning}")
    if not (folder / KEPT).exists():  # so that what was stopped half way can be gone on with, whatever the flags were
        folder.mkdir(parents=True, exist_ok=True)
        recipe.keep(folder)
    count = Steps(watcher)

    def report(stage: str, step: int, steps: int, losses: Mapping[str, float]) -> None:
        count(stage, step, steps, losses)
        if step == steps:
            watcher.done(f"{steps} steps")

    result = train_teacher(
        load_watched(recipe.backbone, watcher),
        texts,
        folder,
        recipe.pooling,
        recipe.lora,
        recipe.training,
        sts=sts,
        resume=resume,
        report=report,
    )
    recipe.keep(folder)
    return result
