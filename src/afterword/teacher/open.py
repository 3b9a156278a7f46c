"""Finding a teacher by name."""

from __future__ import annotations

from pathlib import Path

from afterword.backbone.backbone import Backbone
from afterword.backbone.offline import from_cache_only
from afterword.backbone.packaged import packaged_teacher
from afterword.encoder import Encoder
from afterword.errors import MissingPartError, SettingError
from afterword.extras import require_extra
from afterword.teacher.llm import LLMTeacher


def open_teacher(name: str, backbone: Backbone | None = None, device: str = "auto") -> Encoder:
    """Open a teacher.

    Args:
        name: `llm` for the backbone itself, `demo` for the packaged all-MiniLM-L6-v2, or any SentenceTransformer by hub
            name or folder.
        backbone: The LLM, needed for `llm` only.
        device: Where a SentenceTransformer runs.

    Raises:
        MissingExtraError: sentence-transformers, or the packaged teacher, is not installed.
        MissingPartError: The folder is not there.
        SettingError: There is no such model, or `llm` was asked for without a backbone.
    """
    if name == "llm":
        if backbone is None:
            raise SettingError("the teacher 'llm' is the backbone itself: give the backbone")
        return LLMTeacher(backbone)
    require_extra("demo" if name == "demo" else "sentence-transformers", "sentence_transformers")
    if name.startswith((".", "/", "~")) and not Path(name).is_dir():
        raise MissingPartError(f"no folder {name}: a teacher is a SentenceTransformer folder or hub name")
    from sentence_transformers import SentenceTransformer

    source = str(packaged_teacher()) if name == "demo" else name
    try:
        where = None if device == "auto" else device
        return SentenceTransformer(source, device=where, local_files_only=from_cache_only(source))
    except (OSError, ValueError) as error:
        raise SettingError(f"cannot load the teacher {name!r}: {str(error).strip()}") from error
