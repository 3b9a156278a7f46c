"""What mteb's results do not hold: prompts, time, sizes, scores item by item; one file a task beside them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from mteb.models.model_meta import ModelMeta

from afterword.corpus.manifest import write_whole
from afterword.errors import CorruptError
from afterword.evaluation.results import Items, TaskScore


class Notes:
    """The notes of one encoder in a folder of results.

    A note is written after mteb's result, so a task with a note is done; one without is done again.

    Args:
        folder: The evaluation's folder.
        meta: Names the encoder and its revision.
    """

    def __init__(self, folder: Path, meta: ModelMeta) -> None:
        self.folder = folder / "notes" / str(meta.name).replace("/", "__") / str(meta.revision)

    def read(self, task: str, data: str) -> TaskScore | None:
        """Return the note of a task if there is one for this revision of its data.

        Raises:
            CorruptError: The file is damaged.
        """
        path = self._path(task)
        if not path.is_file():
            return None
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            items = values.pop("items")
            score = TaskScore(**values, items=Items(**items) if items else None)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CorruptError(f"{path} is damaged ({error}): delete it, and the task is done again") from error
        return score if score.versions.get("data") == data else None

    def write(self, score: TaskScore) -> None:
        """Keep a note, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._path(score.task), json.dumps(asdict(score), ensure_ascii=False, indent=1) + "\n")

    def _path(self, task: str) -> Path:
        return self.folder / f"{task.replace('/', '__')}.json"
