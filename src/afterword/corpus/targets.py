"""From responses to targets: the teacher's embedding of each response, computed once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from afterword.corpus.manifest import Manifest, open_or_create
from afterword.corpus.records import Response
from afterword.corpus.responses import Progress
from afterword.corpus.vectors import VectorShards
from afterword.encoder import Encoder, encode_array, fingerprint_of, name_of
from afterword.errors import InputError, MissingPartError, SettingError
from afterword.prompts import SUMMARISE
from afterword.space import Spread, TargetSpace, spread_space

KIND = "targets"
STATISTICS = "statistics.safetensors"


@dataclass(frozen=True)
class TargetSettings:
    """How the teacher sees a response."""

    teacher: str = "demo"
    """Teacher: one trained by `afterword teacher` (its folder), a published LLM2Vec, a SentenceTransformer (folder or
    hub name), demo (all-MiniLM-L6-v2), or llm (the backbone itself). For `afterword run` also a teacher's recipe
    (.toml): it is trained first."""
    teacher_prompt: str = ""
    """Text put before each response for the teacher."""
    standardise: Literal["auto", "yes", "no", "whiten"] = "auto"
    """Bring each dimension of the targets to mean 0 and deviation 1 over the corpus (auto does so for teacher llm), or
    whiten: also take the correlations between them away. The model keeps the statistics."""
    llm_prompt: str = SUMMARISE
    """Teacher llm: text put before each response; its own states do not count."""
    llm_layer: int | None = None
    """Teacher llm: take the states behind so many layers; by default the last ones."""
    llm_pooling: Literal["mean", "weighted_mean", "last", "eos"] = "mean"
    """Teacher llm: how states become one vector."""
    target_batch: int = 64
    """Responses embedded at once."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be used."""
        if self.target_batch < 1:
            raise SettingError(f"target_batch is {self.target_batch}: it must be at least 1")


@dataclass(frozen=True)
class Targets:
    """Targets by response text.

    Attributes:
        vectors: The shards.
        space: What each vector is brought into; the teacher's own space where there is none.
        teacher: Name, fingerprint and prompt of the teacher.
    """

    vectors: VectorShards
    space: TargetSpace | None
    teacher: dict[str, str]

    @property
    def dimension(self) -> int:
        """Width of the teacher's space."""
        return self.vectors.dimension

    def lookup(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the targets of responses. *Shape:* `(N, d)`.

        Raises:
            MissingPartError: A response has none: the targets belong to other responses, or are not finished.
        """
        try:
            found = self.vectors.lookup(texts)
        except MissingPartError as error:
            raise MissingPartError(f"{error}. Run `afterword target` on these responses first") from None
        return found if self.space is None else self.space(torch.from_numpy(found)).numpy()


def embed_targets(
    teacher: Encoder,
    responses: Sequence[Response],
    out: str | Path,
    settings: TargetSettings | None = None,
    progress: Progress | None = None,
) -> int:
    """Embed every distinct response with the teacher and keep the vectors in shards.

    Killed at any moment and called again, it goes on where it was, and the shards end up as if nothing had happened.

    Args:
        teacher: Any encoder.
        responses: What it embeds; empty ones are left out.
        out: Folder of the artefact.
        settings: How it embeds.
        progress: Called with the number of responses done, a batch at a time.

    Returns:
        How many vectors were added.

    Raises:
        InputError: No response has any text.
        MismatchError: The folder was made with another teacher, prompt or length.
    """
    settings = settings or TargetSettings(teacher=name_of(teacher))
    dimension = teacher.get_embedding_dimension()
    if not dimension:
        raise SettingError(f"{name_of(teacher)} does not say its embedding dimension: it cannot be a teacher")
    texts = sorted({r.text for r in responses if r.text}, key=lambda text: (len(text), text))
    if not texts:
        raise InputError(f"none of the {len(responses)} responses has any text: there is nothing to embed")
    open_or_create(out, _manifest(teacher, settings, dimension))
    added = 0
    with VectorShards(out, dimension) as shards:
        shards.recover()
        known = shards.keys()
        for group in _groups(texts, settings.target_batch):
            new = [i for i, text in enumerate(group) if shards.key(text) not in known]
            if new:
                # Embedded as a whole, so that a vector does not depend on where an earlier run was cut.
                prompted = [settings.teacher_prompt + text for text in group]
                vectors = encode_array(teacher, prompted, batch_size=len(group))
                shards.append([group[i] for i in new], vectors[new])
                added += len(new)
            if progress:
                progress(len(group))
    if spread := _spread(settings):
        _write_statistics(Path(out), texts, dimension, spread)
    return added


def open_targets(folder: str | Path) -> Targets:
    """Open a targets artefact.

    Raises:
        MissingPartError: There is no such artefact, or its statistics are missing because it is not finished.
    """
    manifest = Manifest.read(folder, KIND)
    dimension = int(manifest.settings["dimension"])
    space = None
    if manifest.settings["standardise"]:
        path = Path(folder) / STATISTICS
        if not path.is_file():
            raise MissingPartError(f"{path} is missing: run `afterword target` again to finish the targets")
        space = TargetSpace(**load_file(path))
    teacher = {
        "name": manifest.made_with.get("teacher", "unknown"),
        "fingerprint": manifest.sources["teacher"],
        "prompt": str(manifest.settings["teacher_prompt"]),
        **({"llm": manifest.made_with["llm"]} if "llm" in manifest.made_with else {}),
    }
    return Targets(VectorShards(folder, dimension), space, teacher)


def _manifest(teacher: Encoder, settings: TargetSettings, dimension: int) -> Manifest:
    decides = {
        "teacher_prompt": settings.teacher_prompt,
        "dimension": dimension,
        "max_length": getattr(teacher, "max_seq_length", None),
        "standardise": _spread(settings),
        "target_batch": settings.target_batch,
    }
    manifest = Manifest(KIND, decides, {"teacher": fingerprint_of(teacher)})
    manifest.made_with["teacher"] = settings.teacher or name_of(teacher)
    if settings.teacher == "llm":  # the fingerprint holds these too; here they can be read
        own = {key: value for key, value in asdict(settings).items() if key.startswith("llm_")}
        manifest.made_with["llm"] = json.dumps(own)
    return manifest


def _spread(settings: TargetSettings) -> Spread | None:
    if settings.standardise == "whiten":
        return "whiten"
    asked = settings.standardise == "yes" or (settings.standardise == "auto" and settings.teacher == "llm")
    return "standardise" if asked else None


def _groups(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), size):
        yield texts[start : start + size]


def _write_statistics(folder: Path, texts: Sequence[str], dimension: int, spread: Spread) -> None:
    space = spread_space(VectorShards(folder, dimension).lookup(texts), spread)
    scratch = folder / f".{STATISTICS}.part"
    save_file(space.state_dict(), scratch)
    scratch.replace(folder / STATISTICS)
