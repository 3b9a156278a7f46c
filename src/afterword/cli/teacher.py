"""`afterword teacher`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from afterword.backbone.settings import Device, DType
from afterword.cli.bars import Bars
from afterword.cli.flags import flag_value, parse_flags, quiet_libraries
from afterword.errors import SettingError
from afterword.flow.teacher_recipe import TeacherRecipe, train_recipe


@dataclass(frozen=True)
class TeacherTrain:
    """Train an LLM2Vec teacher: masked next-token prediction, then SimCSE. Only adapters are trained and kept.

    A run that was stopped goes on from its last checkpoint. The teacher is in OUT/simcse/teacher, the one after the
    first stage in OUT/mntp/teacher; OUT itself names the last one. The defaults are the paper's, and
    want a large machine; recipes/llm2vec-small.toml is for a small LLM on two cores.

    A recipe is a TOML file whose keys are the flags below (kept_tokens = 1); flags win over it, and OUT/recipe.toml
    keeps all of them.

    Example: afterword teacher train --queries queries.jsonl --recipe recipes/llm2vec-small.toml --out runs/teacher
    """

    out: Path
    """Folder of the training."""
    settings: TeacherRecipe
    recipe: Path | None = None
    """Start from the settings in this file."""
    resume: bool = True
    """Go on with the run in this folder, if there is one; --no-resume refuses instead."""
    json: bool = False
    """Print the measures as JSON."""

    def run(self) -> None:
        """Train and report."""
        quiet_libraries()
        result = train_recipe(self.settings, self.out, Bars(), resume=self.resume)
        folder = str(result.folder)
        print(json.dumps({"teacher": folder, "validation": result.validation}) if self.json else folder)


@dataclass(frozen=True)
class TeacherEncode:
    """Embed texts with any teacher. The input is read as a stream, so it may be of any length.

    Example: afterword teacher encode runs/teacher docs.jsonl --column text --out docs.npy
    """

    teacher: Annotated[str, tyro.conf.Positional]
    """A teacher trained here, an LLM2Vec as published (llm2vec:BASE+ADAPTER+… names all parts), a SentenceTransformer,
    or demo."""
    input: Annotated[str, tyro.conf.Positional]
    """File of texts (JSONL, CSV, TSV, Parquet or plain text, also .gz), or - for lines from stdin."""
    out: Path
    """A .npy file (vectors in input order) or a .parquet file (id and embedding)."""
    column: str | None = None
    """Column with the text."""
    id_column: str | None = None
    """Column with an id."""
    batch_size: int = 32
    """Texts in one pass."""
    device: Device = "auto"
    """Where it runs."""
    dtype: DType = "auto"
    """Type of an LLM's weights."""
    json: bool = False
    """Print what was done as JSON."""

    def run(self) -> None:
        """Encode and report."""
        quiet_libraries()
        from functools import partial

        from afterword.corpus.readers import read_rows
        from afterword.encoder import encode_array, fingerprint_of
        from afterword.flow.encode_file import encode_file
        from afterword.teacher.open import open_teacher

        bars = Bars()
        teacher = open_teacher(self.teacher, device=self.device, dtype=self.dtype)
        dimension = teacher.get_embedding_dimension()
        if not dimension:
            raise SettingError(f"{self.teacher} does not say its embedding dimension")
        bars.stage("encode")
        rows = read_rows(self.input, self.column, self.id_column)
        count = encode_file(
            partial(encode_array, teacher, batch_size=self.batch_size), rows, self.out, dimension, bars.advance
        )
        bars.done(f"{count} texts")
        about = {"texts": count, "dimension": dimension, "fingerprint": fingerprint_of(teacher), "out": str(self.out)}
        print(json.dumps(about) if self.json else self.out)


@dataclass(frozen=True)
class TeacherMerge:
    """Write a teacher's LLM with its adapters merged, as a plain Hugging Face folder.

    Example: afterword teacher merge runs/teacher --out merged
    """

    teacher: Annotated[str, tyro.conf.Positional]
    """A teacher trained here, or an LLM2Vec as published."""
    out: Path
    """Folder to write; it must be empty or not be there."""
    device: Device = "auto"
    """Where it runs."""
    dtype: DType = "auto"
    """Type of the weights."""

    def run(self) -> None:
        """Merge and say where to."""
        quiet_libraries()
        from afterword.teacher.llm import LLMTeacher
        from afterword.teacher.merged import merge_teacher
        from afterword.teacher.open import open_teacher

        teacher = open_teacher(self.teacher, device=self.device, dtype=self.dtype)
        if not isinstance(teacher, LLMTeacher):
            raise SettingError(f"{self.teacher} has no adapters: it is a SentenceTransformer already")
        merge_teacher(teacher, self.out)
        print(self.out)


HELP = """usage: afterword teacher train | encode | merge      (afterword teacher VERB --help explains one)

  train     make an LLM2Vec teacher of an LLM, from texts alone
  encode    embed texts with any teacher
  merge     write a teacher as a plain Hugging Face folder

Example: afterword teacher train --queries queries.jsonl --out runs/teacher"""
VERBS = {"train": TeacherTrain, "encode": TeacherEncode, "merge": TeacherMerge}


def parse(arguments: Sequence[str]) -> TeacherTrain | TeacherEncode | TeacherMerge:
    """Read the flags; the first word says what is done."""
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if verb in ("-h", "--help"):
        print(HELP)
        raise SystemExit(0 if arguments else 2)
    if verb not in VERBS:
        raise SettingError(f"there is no `afterword teacher {verb}`; there are {', '.join(VERBS)}")
    recipe = flag_value(rest, "--recipe") if verb == "train" else None
    start = TeacherTrain(tyro.MISSING, TeacherRecipe.read(recipe, queries=tyro.MISSING)) if recipe else None
    return parse_flags(VERBS[verb], f"teacher {verb}", rest, start)
