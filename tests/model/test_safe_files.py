"""Folders that someone else wrote: what must be refused, and that nothing runs, is read elsewhere, or swells."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from afterword.errors import CorruptError
from afterword.model.model import Afterword
from afterword.model.safe_files import member, read_settings, read_tensors
from tests.model.embedders import make_embedder
from tests.world import make_backbone


class Bomb:
    """Unpickled, it writes a file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"echo ran > {self.trace}",)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weights.bin"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "it-ran"


def repacked(path: Path, change: Callable[[str, bytes], tuple[str, bytes]], compression: int = 0) -> None:
    """Write a zip again with other names or bytes."""
    with zipfile.ZipFile(path) as archive:
        entries = [change(name, archive.read(name)) for name in archive.namelist()]
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in entries:
            archive.writestr(name, data)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("suffix", ["bin", "safetensors", ""])
def test_named_tensors_are_read(dtype: torch.dtype, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"weights.{suffix}".rstrip(".")
    wanted = OrderedDict(a=torch.arange(6.0, dtype=dtype).view(2, 3), b=torch.nn.Parameter(torch.ones(2, dtype=dtype)))
    save = save_file if suffix == "safetensors" else torch.save
    save({name: tensor.detach() for name, tensor in wanted.items()} if suffix == "safetensors" else wanted, path)
    found = read_tensors(path)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) and found[name].dtype == dtype for name in wanted)


def test_the_bomb_goes_off_where_nobody_looks(path: Path, trace: Path) -> None:
    """So that the tests below can fail."""
    path.write_bytes(pickle.dumps(Bomb(trace)))
    pickle.loads(path.read_bytes())
    assert trace.exists()


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("inside", ["alone", "beside tensors"])
def test_a_pickle_that_runs_something_is_refused(protocol: int, inside: str, path: Path, trace: Path) -> None:
    bomb = Bomb(trace)
    torch.save(bomb if inside == "alone" else {"a": torch.ones(2), "b": bomb}, path, pickle_protocol=protocol)
    with pytest.raises(CorruptError, match=r"asks for '?(posix system|STACK_GLOBAL)"):
        read_tensors(path)
    assert not trace.exists()


def test_an_old_or_bare_pickle_is_not_even_looked_into(path: Path, trace: Path) -> None:
    for write in (
        lambda: path.write_bytes(pickle.dumps(Bomb(trace))),
        lambda: torch.save({"b": Bomb(trace)}, path, _use_new_zipfile_serialization=False),
    ):
        write()
        with pytest.raises(CorruptError, match=r"no file of weights that torch\.save writes"):
            read_tensors(path)
    assert not trace.exists()


def test_a_pickle_hidden_behind_another_is_refused(path: Path, trace: Path) -> None:
    torch.save({"a": torch.ones(2)}, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("weights/other.pkl", pickle.dumps(Bomb(trace)))
    with pytest.raises(CorruptError, match="expected one small pickle"):
        read_tensors(path)
    assert not trace.exists()


def test_a_zip_bomb_is_refused_unopened(path: Path) -> None:
    torch.save({"a": torch.zeros(4_000_000)}, path)
    repacked(path, lambda name, data: (name, data), zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 100_000
    with pytest.raises(CorruptError, match=r"is compressed, \d+ to \d+ bytes"):
        read_tensors(path)


def test_entries_that_share_their_bytes_are_refused(path: Path) -> None:
    """A zip may list the same stored bytes many times over, and so be far larger inside than outside."""
    torch.save({"a": torch.zeros(1000)}, path)
    data = bytearray(path.read_bytes())
    start = data.rindex(b"PK\x01\x02", 0, data.rindex(b"PK\x01\x02"))
    with zipfile.ZipFile(path) as archive:
        directory, large = archive.start_dir, max(archive.infolist(), key=lambda entry: entry.file_size)
    assert large.file_size == 4000
    entry_start = directory
    while True:  # find the entry of the tensor in the directory
        name, extra, comment = struct.unpack("<HHH", data[entry_start + 28 : entry_start + 34])
        entry = data[entry_start : entry_start + 46 + name + extra + comment]
        if entry[46 : 46 + name].decode() == large.filename:
            break
        entry_start += len(entry)
    assert start
    end = data.rindex(b"PK\x05\x06")
    more = 20
    tail = bytearray(data[end:])
    count = struct.unpack("<H", tail[10:12])[0] + more
    size = struct.unpack("<I", tail[12:16])[0] + more * len(entry)
    tail[8:10] = tail[10:12] = struct.pack("<H", count)
    tail[12:16] = struct.pack("<I", size)
    central = data[directory : directory + struct.unpack("<I", data[end + 12 : end + 16])[0]]
    tail[16:20] = struct.pack("<I", directory)
    path.write_bytes(bytes(data[:directory] + central + entry * more + tail))
    with pytest.raises(CorruptError, match=r"\d+ bytes within \d+|is damaged"):
        read_tensors(path)


def test_names_that_lead_out_of_a_zip_are_refused(path: Path) -> None:
    for outside in ("../../etc/data/0", "/etc/data/0"):
        torch.save({"a": torch.zeros(3)}, path)
        repacked(path, lambda name, data, to=outside: (to if name.endswith("/data/0") else name, data))
        with pytest.raises(CorruptError, match="leads outside of the file"):
            read_tensors(path)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ([torch.ones(1)], "holds list, expected named tensors"),
        ({"a": 5}, "'a' is int, expected a tensor"),
        ({"a": torch.ones(2, dtype=torch.long)}, "asks for 'torch LongStorage'"),
        ({3: torch.ones(2)}, "3 is a tensor of torch.float32"),
        ({"a": torch.ones(2).to_sparse()}, "asks for"),
    ],
)
def test_anything_but_named_floating_tensors_is_refused(held: object, message: str, path: Path) -> None:
    torch.save(held, path)
    with pytest.raises(CorruptError, match=message):
        read_tensors(path)


@pytest.mark.parametrize("keep", [0, 3, 200, -10])
def test_a_file_that_was_cut_is_refused(keep: int, path: Path) -> None:
    torch.save({"a": torch.ones(300)}, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CorruptError):
        read_tensors(path)


def safetensors_with(header: dict[str, Any] | bytes, length: int | None = None, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


@pytest.mark.parametrize(
    "data",
    [
        safetensors_with({}, length=2**62),
        safetensors_with({}, length=2**33),
        safetensors_with({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}),
        safetensors_with({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 4]}}, body=b"0000"),
        safetensors_with({"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}, body=b"0000"),
        safetensors_with(b"[" * 100_000),
    ],
)
def test_a_safetensors_header_that_promises_more_than_there_is_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(CorruptError, match="is damaged"):
        read_tensors(path)


def test_a_file_of_settings_has_a_size(tmp_path: Path) -> None:
    path = tmp_path / "afterword.json"
    path.write_bytes(b" " * (4 * 1024 * 1024 + 1))
    with pytest.raises(CorruptError, match="4194305 bytes"):
        read_settings(path)


def test_a_member_stays_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "outside").write_text("secret")
    (folder / "inside").write_text("fine")
    (folder / "link-in").symlink_to("inside")
    (folder / "link-out").symlink_to("../outside")
    (folder / "circle").symlink_to("circle")
    assert member(folder, "inside").read_text() == "fine"
    assert member(folder, "link-in").read_text() == "fine"
    assert member(folder, "not-there") == folder / "not-there"
    for name in ("../outside", str(tmp_path / "outside"), "link-out", "sub/../../outside"):
        with pytest.raises(CorruptError, match="leads outside of its folder"):
            member(folder, name)
    try:
        member(folder, "circle")  # newer Pythons leave a circle unresolved, and nothing can be read from it
    except CorruptError as error:
        assert "cannot be followed" in str(error)


def test_links_within_the_cache_of_the_hub_are_followed(tmp_path: Path) -> None:
    """The hub's cache keeps files once, under `blobs`, and links to them from every revision."""
    snapshot, blobs = tmp_path / "models--me--model" / "snapshots" / "abc", tmp_path / "models--me--model" / "blobs"
    snapshot.mkdir(parents=True)
    make_embedder().save_pretrained(blobs)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    loaded = Afterword.from_pretrained(snapshot, backbone=make_backbone("llama"))
    assert loaded.fingerprint == make_embedder().fingerprint
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to("../../../elsewhere")
    with pytest.raises(CorruptError, match="leads outside"):
        Afterword.from_pretrained(snapshot, backbone=make_backbone("llama"))


@pytest.mark.parametrize("name", ["afterword.json", "model.safetensors"])
def test_a_model_does_not_reach_out_of_its_folder(name: str, tmp_path: Path) -> None:
    make_embedder().save_pretrained(tmp_path / "model")
    (tmp_path / "model" / name).rename(tmp_path / name)
    (tmp_path / "model" / name).symlink_to(tmp_path / name)
    with pytest.raises(CorruptError, match=f"{name} leads outside of its folder"):
        Afterword.from_pretrained(tmp_path / "model", backbone=make_backbone("llama"))


def test_a_config_of_a_giant_makes_nothing_giant(tmp_path: Path) -> None:
    """2 TB of zeros, if the config were believed."""
    make_embedder().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "afterword.json").read_text())
    for changes in ({"n_thought": 2**34, "max_length": 2**35}, {"hidden_size": 2**20}, {"embedding_dimension": 2**36}):
        (tmp_path / "afterword.json").write_text(json.dumps(config | changes))
        with pytest.raises(CorruptError, match="has shape"):
            Afterword.from_pretrained(tmp_path, backbone=make_backbone("llama"))


def test_a_config_nested_without_end_is_refused(tmp_path: Path) -> None:
    make_embedder().save_pretrained(tmp_path)
    (tmp_path / "afterword.json").write_text("[" * 200_000)
    with pytest.raises(CorruptError, match="is not JSON"):
        Afterword.from_pretrained(tmp_path, backbone=make_backbone("llama"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"backbone": ["x"]}, "backbone is"), ({"prompts": {"query": 5}}, "prompt 'query' is 5")],
)
def test_words_must_be_words(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    from tests.world import as_users_run_it

    make_embedder().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "afterword.json").read_text())
    (tmp_path / "afterword.json").write_text(json.dumps(config | changes))
    with as_users_run_it(), pytest.raises(CorruptError, match=message):
        Afterword.from_pretrained(tmp_path, backbone=make_backbone("llama"))
