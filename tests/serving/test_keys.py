"""API keys: where they come from and what is compared."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from afterword.errors import MissingPartError, SettingError
from afterword.serving.keys import VARIABLE, Keys, read_keys


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def test_without_any_the_server_is_open() -> None:
    assert read_keys() is None


def test_keys_of_the_variable_and_of_a_file_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "one, two\nthree")
    file = tmp_path / "keys"
    hashed = hashlib.sha256(b"five").hexdigest()
    file.write_text(f"# ours\n\n  four \nsha256:{hashed}\n", encoding="utf-8")
    keys = read_keys(file)
    assert keys is not None and len(keys) == 5
    for key in ("one", "two", "three", "four", "five"):
        assert keys.admit(f"Bearer {key}".encode())
        assert keys.admit(f"bearer  {key} ".encode())
    for header in (b"", b"Bearer", b"Bearer ", b"one", b"Basic one", b"Bearer on", b"Bearer one two", b"Bearer # ours"):
        assert not keys.admit(header)
    assert not keys.admit(f"Bearer sha256:{hashed}".encode())
    assert not keys.admit(f"Bearer {hashed}".encode())


def test_keys_are_kept_as_hashes_only() -> None:
    keys = Keys(["secret-word"])
    assert "secret" not in repr(vars(keys))


@pytest.mark.parametrize("value", ["", "  ", ",\n"])
def test_a_variable_without_a_key_does_not_open_the_server(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(SettingError, match=f"the variable {VARIABLE} holds no API key"):
        read_keys()


def test_nor_does_a_file_without_one(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# none\n")
    with pytest.raises(SettingError, match="holds no API key"):
        read_keys(tmp_path / "keys")
    with pytest.raises(MissingPartError, match="there is no file"):
        read_keys(tmp_path / "nowhere")


def test_half_a_hash_is_refused() -> None:
    with pytest.raises(SettingError, match="64 hexadecimal digits") as refused:
        Keys(["sha256:abc123"])
    assert "abc123" not in str(refused.value)
