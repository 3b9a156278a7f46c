"""The hub is asked once whether it is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

from afterword.backbone.offline import from_cache_only, hub_is_silent


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    hub_is_silent.cache_clear()
    yield
    hub_is_silent.cache_clear()


@pytest.mark.parametrize("answers", [True, False])
def test_one_question_is_enough(answers: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def head(address: str, timeout: float) -> None:
        asked.append((address, timeout))
        if not answers:
            raise ConnectionError

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: SimpleNamespace(head=head))
    assert not from_cache_only(str(tmp_path)), "a folder needs no hub"
    assert asked == []
    for _ in range(3):
        assert from_cache_only("me/model") is not answers
    assert asked == [(huggingface_hub.constants.ENDPOINT, 5.0)]


def test_switched_off_it_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub, "get_session", None)
    assert from_cache_only("me/model")
