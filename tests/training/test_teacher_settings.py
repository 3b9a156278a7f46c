"""Settings of a teacher's training that cannot be used are refused by name, with the value and what it must be."""

from __future__ import annotations

from typing import Any

import pytest

from afterword.errors import SettingError
from afterword.training.teacher_settings import TeacherSettings

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"mntp_batch": 0}, "mntp_batch is 0: it must be at least 1"),
    ({"train_tokens": 0}, "train_tokens is 0: it must be at least 1"),
    ({"simcse_lr": 0.0}, r"simcse_lr is 0\.0: it must be a number above 0"),
    ({"temperature": float("nan")}, "temperature is nan: it must be a number above 0"),
    ({"clip": float("inf")}, "clip is inf: it must be a number above 0"),
    ({"mntp_steps": -1}, "mntp_steps is -1: it must be at least 0, and finite"),
    ({"kept_tokens": -2}, "kept_tokens is -2: it must be at least 0, and finite"),
    ({"token_dropout": 1.0}, r"token_dropout is 1\.0: it is at least 0 and below 1"),
    ({"crop": 1.0}, r"crop is 1\.0: it is at least 0 and below 1"),
    ({"attention_dropout": -0.1}, r"attention_dropout is -0\.1"),
    ({"mask_share": 1.0}, r"mask_share is 1\.0: it is between 0 and 1"),
    ({"warmup_share": 1.0}, r"warmup_share is 1\.0"),
    ({"simcse_batch": 1}, "simcse_batch is 1: a text needs others"),
    ({"mntp_steps": 0, "simcse_steps": 0}, "both 0: there is nothing to train"),
]


@pytest.mark.parametrize(("changes", "said"), REFUSED, ids=[", ".join(changes) for changes, _ in REFUSED])
def test_what_cannot_be_used_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        TeacherSettings(**changes)


def test_views_of_simcse_are_none_of_mntps_business() -> None:
    """So a stage of MNTP that is done serves any kind of SimCSE behind it."""
    one, other = TeacherSettings(), TeacherSettings(token_dropout=0.1, kept_tokens=1, crop=0.5, temperature=0.1)
    assert one.of_stage("mntp") == other.of_stage("mntp")
    assert one.of_stage("simcse") != other.of_stage("simcse")
