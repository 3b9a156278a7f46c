"""Finding a teacher by name."""

from __future__ import annotations

from pathlib import Path

from afterword.backbone.backbone import Backbone
from afterword.backbone.offline import from_cache_only
from afterword.backbone.packaged import packaged_teacher
from afterword.backbone.settings import Device, DType
from afterword.encoder import Encoder
from afterword.errors import MissingPartError, SettingError
from afterword.extras import require_extra
from afterword.teacher.checkpoint import is_teacher, load_teacher
from afterword.teacher.llm import LLMTeacher
from afterword.teacher.published import PREFIX, is_adapter, open_published


def open_teacher(
    name: str, backbone: Backbone | None = None, device: Device = "auto", dtype: DType = "auto"
) -> Encoder:
    """Open a teacher.

    Args:
        name: `llm` for the backbone itself, `demo` for the packaged all-MiniLM-L6-v2, the folder of a teacher that was
            trained here (or of its training), an LLM2Vec as its authors publish it (`teacher.published`), or any
            SentenceTransformer by hub name or folder.
        backbone: The LLM, needed for `llm` only.
        device: Where it runs, other than the backbone.
        dtype: Type of the weights of an LLM that is loaded for it.

    Raises:
        MissingExtraError: sentence-transformers, peft, or the packaged teacher is not installed.
        MissingPartError: The folder is not there.
        SettingError: There is no such model, or `llm` was asked for without a backbone.
    """
    if name == "llm":
        if backbone is None:
            raise SettingError("the teacher 'llm' is the backbone itself: give the backbone")
        return LLMTeacher(backbone)
    if (folder := trained_here(name)) is not None:
        return load_teacher(folder, device, dtype)
    if name.startswith(PREFIX) or is_adapter(name):
        return open_published(name, device, dtype)
    if name.endswith(".toml"):
        raise SettingError(f"{name} is a recipe: `afterword teacher train --recipe {name}` makes a folder")
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


def trained_here(name: str) -> Path | None:
    """Return the folder of a teacher that was trained here, also by the folder of its training; none if it is none."""
    folder = Path(name).expanduser()
    places = (folder, folder / "simcse" / "teacher", folder / "mntp" / "teacher")
    return next((place for place in places if is_teacher(place)), None)
