"""An evaluation as JSON, and back: all scores, their items and prompts; never a text of the data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite, nan
from typing import Any

from afterword.errors import CorruptError, MismatchError
from afterword.evaluation.results import EncoderScores, Evaluation, Items, TaskScore
from afterword.evaluation.summary import Summary

FORMAT = 1


def to_json(summary: Summary) -> str:
    """Return everything as JSON: `evaluation` as it is, then `means`, `tasks` and `notes` that follow from it.

    JSON knows no NaN: a score that is not finite is null.
    """
    known = asdict(summary)
    return json.dumps(_finite({"format": FORMAT, **known}), ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str) -> Evaluation:
    """Read an evaluation from the JSON of a report, so that it can be shown or compared again.

    Args:
        text: What `to_json` returned.

    Raises:
        CorruptError: It is not JSON, or parts of it are missing.
        MismatchError: It is of another format than this version reads.
    """
    try:
        values = json.loads(text)
        found = values["format"]
        if found != FORMAT:
            raise MismatchError(f"the report has format {found}, this version reads format {FORMAT}")
        return _evaluation(values["evaluation"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(f"this is not the JSON of an evaluation: {error!r}") from error


def _evaluation(values: Mapping[str, Any]) -> Evaluation:
    encoders = tuple(
        EncoderScores(**{**encoder, "tasks": {name: _task(task) for name, task in encoder["tasks"].items()}})
        for encoder in values["encoders"]
    )
    return Evaluation(**{**values, "suites": tuple(values["suites"]), "encoders": encoders})


def _task(values: Mapping[str, Any]) -> TaskScore:
    items = values["items"]
    score = nan if values["score"] is None else values["score"]
    return TaskScore(**{**values, "score": score, "items": _items(items) if items else None})


def _items(values: Mapping[str, Any]) -> Items:
    return Items(values["kind"], *([nan if v is None else v for v in values[key]] for key in ("values", "gold")))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple | frozenset):
        return [_finite(part) for part in value]
    return value
