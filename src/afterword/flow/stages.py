"""The stages, one after the other; each is skipped where its artefact is there and matches."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from afterword.backbone.backbone import Backbone
from afterword.corpus.manifest import FILE_NAME as MANIFEST
from afterword.corpus.manifest import Manifest, check
from afterword.corpus.queries import load_queries, open_queries, save_queries
from afterword.corpus.records import Query
from afterword.corpus.responses import generate_responses, open_responses
from afterword.corpus.targets import embed_targets, open_targets
from afterword.extras import require_extra
from afterword.flow.inputs import load_watched, query_source
from afterword.flow.open_encoder import check_llm_settings, chosen_teacher
from afterword.flow.progress import Silent, Steps, Watcher
from afterword.flow.recipe import Recipe
from afterword.flow.teacher_recipe import TeacherRecipe, recipe_within, train_recipe
from afterword.training.train import TrainResult, train
from afterword.training.train_teacher import TeacherResult


@dataclass
class Stages:
    """A recipe being carried out in a folder.

    The folder holds `queries/`, `responses/`, `targets/` and `training/` (the model in its `model/`), and the recipe
    with every setting written out. Where the teacher is a recipe itself, it is trained first, in `teacher/`.

    Attributes:
        recipe: All settings.
        folder: Where the artefacts are.
        watcher: Told of progress.
        seconds: How long each stage took.
        own_teacher: The teacher's recipe, where it is one. What it says itself, such as other texts or another LLM,
            holds; otherwise it has the queries and responses of this one, and its LLM and seed.

    Raises:
        MissingPartError: There is no such recipe of a teacher, or something that it names is not there.
        SettingError: It cannot be used.
        MissingExtraError: peft, which trains it, is not installed.
    """

    recipe: Recipe
    folder: Path
    watcher: Watcher = field(default_factory=Silent)
    seconds: dict[str, float] = field(default_factory=dict)
    own_teacher: TeacherRecipe | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Read the teacher's recipe: what is wrong there should not come out hours later, when all is answered."""
        check_llm_settings(self.recipe.targets)
        name = self.recipe.targets.teacher
        if name.endswith(".toml"):
            texts = {"queries": self.folder / "queries" / "queries.jsonl", "responses": self.folder / "responses"}
            self.own_teacher = recipe_within(name, texts, self.recipe.backbone, self.recipe.training.seed)
            require_extra("teacher", "peft")

    def run(self) -> TrainResult:
        """Carry out all stages and return the trained model."""
        self.folder.mkdir(parents=True, exist_ok=True)
        queries = self.queries()
        self.respond(queries)
        self.target()
        result = self.train()
        self.recipe.keep(self.folder)
        return result

    @cached_property
    def backbone(self) -> Backbone:
        """The frozen LLM, loaded when a stage first needs it."""
        began = self._begin("backbone")
        backbone = load_watched(self.recipe.backbone, self.watcher)
        self._end(
            "backbone", began, f"{backbone.name} on {backbone.device}, {str(backbone.dtype).removeprefix('torch.')}"
        )
        return backbone

    def queries(self) -> list[Query]:
        """Read the queries, or reopen what was read before with the same settings."""
        began, folder = self._begin("queries"), self.folder / "queries"
        settings = self.recipe.queries
        if (folder / MANIFEST).is_file() and (folder / "queries.jsonl").is_file():
            found = Manifest.read(folder, "queries")
            check(found, replace(found, settings=asdict(settings)), folder)
            queries = open_queries(folder)
            self._end("queries", began, f"{len(queries)} queries, as read before")
            return queries
        queries, cleaning = load_queries(query_source(settings))
        save_queries(folder, queries, settings, cleaning)
        self._end("queries", began, str(cleaning))
        return queries

    def respond(self, queries: list[Query]) -> None:
        """Let the LLM answer."""
        backbone = self.backbone
        began = self._begin("responses", len(queries))
        counts = generate_responses(
            backbone, queries, self.folder / "responses", self.recipe.responses, self.watcher.advance
        )
        self._end(
            "responses",
            began,
            f"{counts.written} written, {counts.kept} kept" + _also(cut=counts.cut, empty=counts.empty),
        )

    def teacher(self, recipe: TeacherRecipe) -> TeacherResult:
        """Train a teacher on the queries and the responses."""
        began = time.perf_counter()
        self.__dict__.pop("backbone", None)  # a teacher changes its LLM, so it has its own: no need to hold two
        result = train_recipe(recipe, self.folder / "teacher", self.watcher)
        self.seconds["teacher"] = time.perf_counter() - began
        return result

    def target(self) -> None:
        """Embed the responses with the teacher."""
        settings, own = self.recipe.targets, self.teacher(self.own_teacher) if self.own_teacher else None
        if own:
            settings = replace(settings, teacher=str(own.folder))
        backbone = self.backbone if settings.teacher == "llm" else None
        responses = open_responses(self.folder / "responses")
        began = self._begin("targets", len({r.text for r in responses if r.text}))
        teacher = own.teacher if own else chosen_teacher(settings, backbone, self.recipe.backbone.device)
        added = embed_targets(teacher, responses, self.folder / "targets", settings, self.watcher.advance)
        self._end("targets", began, f"{added} embedded by {settings.teacher}")

    def train(self) -> TrainResult:
        """Train tokens and heads."""
        backbone = self.backbone
        began = self._begin("training")
        responses, targets = open_responses(self.folder / "responses"), open_targets(self.folder / "targets")
        recipe = self.recipe
        report = partial(Steps(self.watcher), "training")
        result = train(
            backbone, responses, targets, self.folder / "training", recipe.model, recipe.training, report=report
        )
        note = f"{result.steps} steps" + _also(left_out=result.skipped)
        self._end("training", began, note if (result.resumed_from or 0) < result.steps else f"{note}, done before")
        return result

    def _begin(self, name: str, total: int | None = None) -> float:
        self.watcher.stage(name, total)
        return time.perf_counter()

    def _end(self, name: str, began: float, note: str) -> None:
        self.seconds[name] = time.perf_counter() - began
        self.watcher.done(note)


def _also(**counts: int) -> str:
    return "".join(f", {count} {name.replace('_', ' ')}" for name, count in counts.items() if count)
