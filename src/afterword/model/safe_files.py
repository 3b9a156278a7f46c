"""Reading a folder that someone else wrote: no code runs, nothing outside of it is read, nothing swells in memory."""

from __future__ import annotations

import pickletools
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from afterword.errors import CorruptError

MOST_SETTINGS = 4 * 1024 * 1024
"""Bytes of a settings file, and of the pickle that describes tensors; real ones have a few thousand."""

ALLOWED_GLOBALS = {
    "collections OrderedDict",
    "torch BFloat16Storage",
    "torch FloatStorage",
    "torch HalfStorage",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_tensor_v2",
}
"""What a pickle of nothing but named tensors asks for."""

REFUSED_OPCODES = {"STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"}
"""Other ways to name or make an object; torch does not write them for tensors."""


def member(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder.

    Raises:
        CorruptError: It leads outside, by its name or as a link; links within the hub's cache are what they should be.
    """
    inside = folder.resolve()
    root = inside.parents[1] if inside.parent.name == "snapshots" else inside
    try:
        found = (inside / name).resolve()
    except (OSError, RuntimeError) as error:  # links in a circle
        raise CorruptError(f"{folder / name} cannot be followed: {error}") from None
    if not found.is_relative_to(root):
        raise CorruptError(
            f"{folder / name} leads outside of its folder, to {found}: copy the file if it belongs there"
        )
    return inside / name


def read_settings(path: Path, most: int = MOST_SETTINGS) -> bytes:
    """Read a small file.

    Raises:
        CorruptError: It is far larger than settings are.
    """
    size = path.stat().st_size
    if size > most:
        raise CorruptError(f"{path} has {size} bytes: settings have {most} at most")
    return path.read_bytes()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors from a safetensors file, or from one that `torch.save` wrote.

    Raises:
        CorruptError: It is damaged, or holds anything but named tensors of floating point numbers.
    """
    if path.suffix != ".safetensors":
        return named_tensors(load_saved(path), path)
    try:
        return named_tensors(load_file(path), path)
    except SafetensorError as error:
        raise CorruptError(f"{path} is damaged: {error}") from None


def load_saved(path: Path) -> object:
    """Read what `torch.save` wrote, if it is made of tensors, texts and numbers.

    Such a file is a zip with a pickle in it. It is looked through before anything is unpickled, and then read by
    torch's unpickler for weights, which runs no code either.

    Raises:
        CorruptError: It is damaged, compressed, larger inside than outside, or asks for anything else.
    """
    _check_zip(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds on a damaged file
        raise CorruptError(f"{path} is damaged: {error}") from None


def _check_zip(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            _check_entries(entries, path)
            pickles = [entry for entry in entries if entry.filename.endswith(".pkl")]
            if len(pickles) != 1 or pickles[0].file_size > MOST_SETTINGS:
                raise CorruptError(f"{path}: expected one small pickle, found {[p.file_size for p in pickles]} bytes")
            _check_pickle(archive.read(pickles[0]), path)
    except zipfile.BadZipFile as error:
        raise CorruptError(
            f"{path} is no file of weights that torch.save writes ({error}): nothing was unpickled"
        ) from None


def _check_entries(entries: list[zipfile.ZipInfo], path: Path) -> None:
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            raise CorruptError(
                f"{path}: {entry.filename} is compressed, {entry.compress_size} to {entry.file_size} bytes; "
                "torch.save compresses nothing"
            )
        parts = PurePosixPath(entry.filename).parts
        if entry.filename.startswith("/") or ".." in parts:
            raise CorruptError(f"{path}: {entry.filename} leads outside of the file")
    within = sum(entry.file_size for entry in entries)
    if within > path.stat().st_size:
        raise CorruptError(f"{path}: {within} bytes within {path.stat().st_size}")


def _check_pickle(data: bytes, path: Path) -> None:
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name in REFUSED_OPCODES or (opcode.name == "GLOBAL" and argument not in ALLOWED_GLOBALS):
                raise CorruptError(
                    f"{path} holds a pickle that asks for {argument or opcode.name!r}: only tensors are read from a "
                    "pickle, and nothing was run"
                )
    except ValueError as error:
        raise CorruptError(f"{path} is damaged: {error}") from None


def named_tensors(found: object, path: Path) -> dict[str, Tensor]:
    """Return what was read as tensors by name.

    Raises:
        CorruptError: It is something else; the path is named.
    """
    if not isinstance(found, Mapping):
        raise CorruptError(f"{path} holds {type(found).__name__}, expected named tensors")
    for name, tensor in found.items():
        plain = isinstance(name, str) and isinstance(tensor, Tensor) and tensor.layout == torch.strided
        if not plain or not tensor.is_floating_point():
            raise CorruptError(f"{path}: {name!r} is {_kind(tensor)}, expected a tensor of floating point numbers")
    return dict(found)


def _kind(value: object) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
