"""A manifest lets matching work go on, and names what does not match."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path

import pytest

from afterword.corpus import manifest as module
from afterword.corpus.manifest import Manifest, check, open_or_create, write_whole
from afterword.errors import CorruptError, MismatchError, MissingPartError, SettingError


def make(**changes: object) -> Manifest:
    values: dict[str, object] = {
        "kind": "responses",
        "settings": {"max_tokens": 128, "prompt": {"frame": "chat", "shots": ["a", "b"]}, "greedy": True},
        "sources": {"queries": "1111", "backbone": "2222"},
    }
    return Manifest(**{**values, **changes})  # type: ignore[arg-type]


def test_written_file_is_plain_json_and_comes_back(tmp_path: Path) -> None:
    make(settings={"name": "café ☃"}).write(tmp_path)
    text = (tmp_path / "manifest.json").read_bytes().decode("utf-8")
    values = json.loads(text)
    assert "café ☃" in text
    assert values["format"] == 1
    assert values["kind"] == "responses"
    assert values["made_with"]["torch"] == version("torch")
    assert values["made_with"]["python"].startswith("3.")
    assert Manifest.read(tmp_path) == make(settings={"name": "café ☃"})
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_new_folder_is_created_and_the_second_time_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "er"
    assert open_or_create(folder, make()) is False
    first = (folder / "manifest.json").read_bytes()
    assert open_or_create(folder, make(made_with={"torch": "0.1"})) is True
    assert (folder / "manifest.json").read_bytes() == first


def test_empty_folder_is_taken(tmp_path: Path) -> None:
    assert open_or_create(tmp_path, make()) is False


def test_tuple_equals_the_list_it_is_read_back_as(tmp_path: Path) -> None:
    settings = {"layers": (1, 2), "nested": {"pair": ("a",)}}
    open_or_create(tmp_path, make(settings=settings))
    assert open_or_create(tmp_path, make(settings=settings)) is True


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"settings": {"max_tokens": 64}}, "settings.max_tokens: it has 128, you asked for 64"),
        ({"settings": {"max_tokens": "128"}}, 'settings.max_tokens: it has 128, you asked for "128"'),
        ({"settings": {"greedy": 1}}, "settings.greedy: it has true, you asked for 1"),
        ({"settings": {"prompt": {"frame": "raw"}}}, 'settings.prompt.frame: it has "chat", you asked for "raw"'),
        ({"settings": {"new": None}}, "settings.new: it has nothing, you asked for null"),
        ({"settings": {"new": {}}}, "settings.new: it has nothing, you asked for {}"),
        ({"sources": {"backbone": "3333"}}, 'sources.backbone: it has "2222", you asked for "3333"'),
        ({"sources": {"teacher": "4444"}}, 'sources.teacher: it has nothing, you asked for "4444"'),
    ],
)
def test_each_difference_is_named_with_both_sides(
    tmp_path: Path, changes: dict[str, dict[str, object]], named: str
) -> None:
    base = make()
    merged = {
        "settings": {**base.settings, **changes.get("settings", {})},
        "sources": {**base.sources, **changes.get("sources", {})},
    }
    if "prompt" in changes.get("settings", {}):
        merged["settings"]["prompt"] = {**base.settings["prompt"], "frame": "raw"}
    base.write(tmp_path)
    with pytest.raises(MismatchError) as caught:
        open_or_create(tmp_path, make(**merged))
    message = str(caught.value)
    assert named in message
    assert str(tmp_path) in message
    assert "choose another --out" in message
    assert message.count("you asked for") == 1


def test_all_differences_are_named_at_once() -> None:
    with pytest.raises(MismatchError) as caught:
        check(make(), make(settings={"max_tokens": 5}, sources={}), "here")
    names = ("max_tokens", "prompt.frame", "prompt.shots", "greedy", "queries", "backbone")
    assert [name for name in names if f"{name}: it has " not in str(caught.value)] == []
    assert str(caught.value).count("you asked for") == len(names)


def test_other_kind_is_refused(tmp_path: Path) -> None:
    make().write(tmp_path)
    with pytest.raises(MismatchError, match="holds responses, not targets"):
        open_or_create(tmp_path, make(kind="targets"))
    with pytest.raises(MismatchError, match="holds responses, this step reads queries"):
        Manifest.read(tmp_path, "queries")
    assert Manifest.read(tmp_path, "responses") == make()


def test_missing_manifest_names_its_path(tmp_path: Path) -> None:
    with pytest.raises(MissingPartError, match=r"manifest\.json is missing"):
        Manifest.read(tmp_path / "none")


@pytest.mark.parametrize("name", ["part-00000.jsonl", "part-00003.vec"])
def test_shards_of_unknown_origin_are_never_added_to(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(MissingPartError, match=f"manifest.json is missing, but {name} is there"):
        open_or_create(tmp_path, make())
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(SettingError, match="is a file"):
        open_or_create(tmp_path / "file", make())
    with pytest.raises(SettingError, match="cannot be written to"):
        open_or_create(tmp_path / "file" / "below", make())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "kind": "a", "more": 2}'])
def test_damaged_manifest_is_corrupt(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(CorruptError, match=r"manifest\.json"):
        Manifest.read(tmp_path)


def test_bytes_that_are_not_utf8_are_corrupt(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(b'{"format": "\xff"}')
    with pytest.raises(CorruptError, match=r"manifest\.json cannot be read"):
        Manifest.read(tmp_path)


def test_later_format_is_named(tmp_path: Path) -> None:
    make(format=2).write(tmp_path)
    with pytest.raises(MismatchError, match="has format 2, this version of Afterword reads format 1"):
        Manifest.read(tmp_path)


def test_settings_that_are_not_json_are_refused() -> None:
    with pytest.raises(SettingError, match="JSON values"):
        make(settings={"path": Path("a")})


def test_path_that_is_not_utf8_comes_back(tmp_path: Path) -> None:
    settings = {"file": os.fsdecode(b"caf\xe9.jsonl")}
    open_or_create(tmp_path, make(settings=settings))
    assert open_or_create(tmp_path, make(settings=settings)) is True


def test_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_whole(path, "old")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["a.json"]
