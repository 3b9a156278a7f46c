"""What `import afterword` gives, and what it costs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import afterword
from afterword import errors

PUBLIC = [
    "Afterword",
    "AfterwordError",
    "Backbone",
    "BackboneSettings",
    "Document",
    "DocumentSettings",
    "Encoder",
    "EvaluateSettings",
    "Index",
    "IndexSettings",
    "Latents",
    "LoraSettings",
    "ModelSettings",
    "PoolingSettings",
    "QuerySettings",
    "ResponseSettings",
    "ServeSettings",
    "TargetSettings",
    "TeacherSettings",
    "TrainSettings",
    "build_index",
    "create_app",
    "embed_targets",
    "evaluate",
    "generate_responses",
    "load_backbone",
    "load_queries",
    "open_encoder",
    "open_index",
    "open_responses",
    "open_targets",
    "open_teacher",
    "read_documents",
    "train",
    "train_teacher",
]


def test_public_names_are_these() -> None:
    """Adding one is a decision, taking one away breaks programs."""
    assert sorted(afterword.__all__) == PUBLIC
    assert set(PUBLIC) <= set(dir(afterword))


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_exist(name: str) -> None:
    assert getattr(afterword, name).__name__ == name
    assert getattr(afterword, name).__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'afterword' has no attribute 'Afterwards'"):
        _ = afterword.Afterwards


def test_import_brings_nothing_heavy() -> None:
    program = "import sys, json, afterword; print(json.dumps(sorted(m.partition('.')[0] for m in sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert "afterword" in loaded
    assert not loaded & {"torch", "transformers", "numpy", "safetensors", "huggingface_hub", "datasets", "pyarrow"}


@pytest.mark.parametrize(
    ("error", "code", "bases"),
    [
        (errors.AfterwordError("x"), 1, (Exception,)),
        (errors.UsageError("x"), 2, (errors.AfterwordError, ValueError)),
        (errors.InputError("x"), 2, (errors.UsageError,)),
        (errors.SettingError("x"), 2, (errors.UsageError,)),
        (errors.MissingExtraError("x"), 2, (errors.UsageError, ImportError)),
        (errors.ArtefactError("x"), 3, (errors.AfterwordError,)),
        (errors.MissingPartError("x"), 3, (errors.ArtefactError, FileNotFoundError)),
        (errors.MismatchError("x"), 3, (errors.ArtefactError,)),
        (errors.CorruptError("x"), 3, (errors.ArtefactError,)),
        (errors.WorkError("x"), 1, (errors.AfterwordError, RuntimeError)),
    ],
)
def test_errors_have_exit_codes_and_bases(
    error: errors.AfterwordError, code: int, bases: tuple[type[Exception], ...]
) -> None:
    assert error.exit_code == code
    assert all(isinstance(error, base) for base in bases)
    assert str(error) == "x"


def test_an_input_error_names_its_item() -> None:
    assert str(errors.InputError("no text", 3)) == "item 3: no text"
    assert str(errors.InputError("no text", "q17")) == "item q17: no text"
    assert errors.InputError("no text", 0).item == 0
    assert str(errors.InputError("no text", 0)) == "item 0: no text"
