"""Real encoders in an evaluation: our own model, a causal LM, a SentenceTransformer; and mteb alone beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from afterword import Afterword, ModelSettings
from afterword.backbone.packaged import packaged_teacher
from afterword.errors import MissingPartError, SettingError
from afterword.evaluation.local import find_sets
from afterword.evaluation.local_data import Sampling
from afterword.evaluation.local_tasks import local_task
from afterword.evaluation.run import evaluate
from afterword.evaluation.settings import EvaluateSettings
from afterword.flow.open_encoder import open_encoder
from afterword.prompts import default_prompts
from tests.evaluation.world_of_sets import all_sets, write_jsonl
from tests.teachers import save_sentence_transformer
from tests.world import make_backbone

# mteb's own wrapper warns about arguments that mteb itself gives.
BY_ITSELF = pytest.mark.filterwarnings(
    "ignore:The fill_missing parameter:DeprecationWarning",
    "ignore:The `get_sentence_embedding_dimension` method:FutureWarning",
)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return all_sets(tmp_path_factory.mktemp("sets"))


@pytest.fixture(scope="module")
def model() -> Afterword:
    backbone = make_backbone("qwen3")
    return Afterword.from_backbone(backbone, settings=ModelSettings(max_length=96), embedding_dimension=16)


def scores(encoder: Any, sets: Path, out: Path, **settings: Any) -> dict[str, float]:
    found = evaluate({"e": encoder}, data=sets, out=out, settings=EvaluateSettings(**settings)).encoders[0]
    return {name: score.score for name, score in found.tasks.items()}


def test_scores_of_our_model_do_not_change_with_the_batch(model: Afterword, sets: Path, tmp_path: Path) -> None:
    one = scores(model, sets, tmp_path / "a", batch_size=1)
    many = scores(model, sets, tmp_path / "b", batch_size=64)
    assert len(one) == 8
    assert many == pytest.approx(one, abs=1e-5)


def test_our_model_gets_generative_instructions_and_its_tokens_are_counted(
    model: Afterword, sets: Path, tmp_path: Path
) -> None:
    settings = EvaluateSettings(only=("library", "sts"))
    found = evaluate({"e": model}, data=sets, out=tmp_path, settings=settings).encoders[0]
    assert found.facts == {
        "dimension": 16,
        "batch size": 32,
        "dtype": "float32",
        "device": "cpu",
        "instructions": "generative",
        "length": 96,
    }
    library = found.tasks["retrieval.library"]
    assert library.prompts == {
        "query": "Generate text that answers this query: ",
        "document": "Summarize the following passage: ",
    }
    tokens = library.tokens
    assert tokens is not None and 46 * 3 < tokens < 46 * 96  # bytes are the tokens of the tiny tokenizer
    assert library.seconds > 0


def test_bfloat16_is_another_encoder_with_a_drift(sets: Path, tmp_path: Path) -> None:
    import torch

    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16}
    models = {
        name: Afterword.from_backbone(
            make_backbone("qwen3", dtype=dtype), settings=ModelSettings(max_length=96), embedding_dimension=16
        )
        for name, dtype in dtypes.items()
    }
    found = evaluate(models, data=sets, out=tmp_path, settings=EvaluateSettings(only=("sts",)))
    one, other = found.encoders
    assert (one.facts["dtype"], other.facts["dtype"]) == ("float32", "bfloat16")
    assert one.revision != other.revision
    drift = abs(one.tasks["sts.news"].score - other.tasks["sts.news"].score)
    assert 0 < drift < 0.2


def test_a_saved_model_says_its_task_prompts_to_sentence_transformers_names(model: Afterword, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    again = Afterword.from_pretrained(tmp_path, backbone=model.backbone)
    assert again.config.prompts == default_prompts()
    text = "what is a river?"
    named = again.encode(text, prompt_name="Banking77Classification")
    plain = again.encode(text, prompt="Say what the customer of the bank who writes this wants: ")
    assert np.array_equal(named, plain)


@BY_ITSELF
def test_mteb_alone_gives_the_same_scores(sets: Path, tmp_path: Path) -> None:
    """A SentenceTransformer, by mteb's own wrapper and by ours."""
    encoder = SentenceTransformer(str(save_sentence_transformer(tmp_path)), device="cpu")
    ours = scores(encoder, sets, tmp_path / "ours")
    tasks = [local_task(found, Sampling()) for found in find_sets(sets)[0]]
    results = mteb.evaluate(encoder, tasks, cache=None, show_progress_bar=False, co2_tracker=False)
    theirs = {result.task_name: result.get_score() for result in results.task_results}
    assert ours == pytest.approx(theirs, abs=1e-6)


@pytest.mark.llm
@BY_ITSELF
def test_mteb_alone_gives_the_same_scores_for_a_real_encoder(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 on pairs with known meaning, so that the score is high as well as equal."""
    pairs = [
        ("A man is playing a guitar.", "Someone plays the guitar.", 4.8),
        ("A dog runs through the snow.", "A dog is running in snow.", 4.9),
        ("The stock market fell today.", "Shares lost value on Monday.", 3.9),
        ("A chef cooks pasta.", "The cook prepares spaghetti.", 4.0),
        ("The train leaves at noon.", "A cat sleeps on the sofa.", 0.1),
        ("Children play football in the park.", "The senate passed a bill.", 0.2),
        ("A woman is reading a book.", "A woman is writing a letter.", 2.2),
        ("Rain is expected tomorrow.", "The weather will be wet.", 3.6),
    ]
    write_jsonl(tmp_path / "sts.jsonl", [{"sentence1": a, "sentence2": b, "score": s} for a, b, s in pairs])
    encoder = SentenceTransformer(str(packaged_teacher()), device="cpu")
    ours = scores(encoder, tmp_path, tmp_path / "ours")
    tasks = [local_task(found, Sampling()) for found in find_sets(tmp_path)[0]]
    results = mteb.evaluate(encoder, tasks, cache=None, show_progress_bar=False, co2_tracker=False)
    assert ours == pytest.approx({"sts": results.task_results[0].get_score()}, abs=1e-6)
    assert ours["sts"] > 0.9


def test_encoders_by_name(model: Afterword, saved_folders: dict[str, Path], tmp_path: Path) -> None:
    text = ["what is a river?"]
    backbone = open_encoder(f"hf:{saved_folders['qwen3']}", "cpu", "float32")
    own = Afterword.from_backbone(str(saved_folders["qwen3"]), device="cpu", dtype="float32", embedding_dimension=8)
    own.save_pretrained(tmp_path / "run" / "model")
    for name in (str(tmp_path / "run" / "model"), str(tmp_path / "run")):
        assert np.array_equal(open_encoder(name, "cpu", "float32").encode(text), own.encode(text))
    teacher = str(save_sentence_transformer(tmp_path))
    expected = SentenceTransformer(teacher, device="cpu").encode(text)
    assert np.array_equal(open_encoder(teacher, "cpu").encode(text), expected)
    assert np.array_equal(open_encoder(f"teacher:{teacher}", "cpu").encode(text), expected)
    assert backbone.encode(text).shape == (1, own.backbone.hidden_size)


def test_a_type_behind_the_name(saved_folders: dict[str, Path]) -> None:
    for kind in ("float32", "bfloat16"):
        encoder: Any = open_encoder(f"hf:{saved_folders['qwen3']}@{kind}", "cpu")
        assert str(encoder.backbone.dtype) == f"torch.{kind}"


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("hf:", SettingError, "'hf:' names no model: write hf:NAME"),
        ("./nowhere", MissingPartError, "no folder ./nowhere"),
    ],
)
def test_encoders_that_cannot_be_opened(name: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        open_encoder(name, "cpu")
