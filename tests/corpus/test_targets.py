"""Responses in, the teacher's embeddings out: against vectors that are counted by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from afterword.corpus.manifest import Manifest
from afterword.corpus.records import Response
from afterword.corpus.targets import TargetSettings, embed_targets, open_targets
from afterword.encoder import Encoder
from afterword.errors import InputError, MismatchError, MissingPartError, SettingError
from tests.teachers import VowelTeacher, save_sentence_transformer, vowels

TEXTS = ("banana", "yes", "a bee", "you", "oui", "hmm", "café ☃ 👩‍👩‍👧", "an indeed longer answer")


def responses(*texts: str) -> list[Response]:
    return [Response(f"q{i}", f"query {i}", text, len(text), cut=False) for i, text in enumerate(texts)]


def named(**changes: Any) -> TargetSettings:
    return TargetSettings(**{"teacher": "vowels", "target_batch": 3, **changes})


def shard(folder: Path) -> bytes:
    return (folder / "part-00000.vec").read_bytes()


def test_a_target_is_what_the_teacher_says(tmp_path: Path) -> None:
    assert embed_targets(VowelTeacher(), responses(*TEXTS), tmp_path, named()) == 8
    targets = open_targets(tmp_path)
    asked = ["a bee", "banana", "banana", "hmm"]
    expected = [[1, 2, 0, 0, 0], [3, 0, 0, 0, 0], [3, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
    found = targets.lookup(asked)
    assert found.dtype == np.float32
    assert found.tolist() == expected
    assert targets.dimension == 5


def test_each_distinct_text_is_embedded_once_and_empty_ones_never(tmp_path: Path) -> None:
    teacher = VowelTeacher()
    assert embed_targets(teacher, responses("yes", "", "no", "yes", "", "yes"), tmp_path, named()) == 2
    assert sorted(text for batch in teacher.asked for text in batch) == ["no", "yes"]


def test_batches_hold_texts_of_similar_length(tmp_path: Path) -> None:
    teacher = VowelTeacher()
    embed_targets(teacher, responses("cccc", "a", "bbb", "dd", "eeeee"), tmp_path, named(target_batch=2))
    assert teacher.asked == [["a", "dd"], ["bbb", "cccc"], ["eeeee"]]


def test_the_teachers_prompt_stands_before_each_response(tmp_path: Path) -> None:
    teacher = VowelTeacher()
    embed_targets(teacher, responses("no"), tmp_path, named(teacher_prompt="passage: "))
    assert teacher.asked == [["passage: no"]]
    assert open_targets(tmp_path).lookup(["no"]).tolist() == [[2, 1, 0, 1, 0]]
    assert open_targets(tmp_path).teacher == {"name": "vowels", "fingerprint": "vowels-1", "prompt": "passage: "}


class Stop(Exception):
    pass


@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize("standardise", ["no", "yes"])
def test_stopped_after_any_batch_and_run_again_the_shards_are_the_same(
    calls: int, standardise: Any, tmp_path: Path
) -> None:
    settings = named(standardise=standardise)
    embed_targets(VowelTeacher(), responses(*TEXTS), tmp_path / "whole", settings)
    seen: list[int] = []

    def progress(count: int) -> None:
        seen.append(count)
        if len(seen) == calls:
            raise Stop

    with pytest.raises(Stop):
        embed_targets(VowelTeacher(), responses(*TEXTS), tmp_path / "cut", settings, progress)
    teacher = VowelTeacher()
    assert embed_targets(teacher, responses(*TEXTS), tmp_path / "cut", settings) == 8 - min(8, 3 * calls)
    assert len(teacher.asked) == 3 - calls
    assert shard(tmp_path / "cut") == shard(tmp_path / "whole")
    found, wanted = (open_targets(tmp_path / name).lookup(TEXTS) for name in ("cut", "whole"))
    assert np.array_equal(found, wanted)


class GroupTeacher(VowelTeacher):
    """A teacher whose vectors depend a little on the neighbours in a batch, as real ones do through padding."""

    def encode(self, inputs: Sequence[str], **options: Any) -> NDArray[np.float32]:
        return super().encode(inputs, **options) + np.float32(len("".join(inputs)))


def test_a_torn_record_is_redone_in_its_batch(tmp_path: Path) -> None:
    embed_targets(GroupTeacher(), responses(*TEXTS), tmp_path, named())
    whole, record = shard(tmp_path), 16 + 5 * 4 + 4
    assert len(whole) == 8 * record
    for size in (0, 1, record, 2 * record - 1, 7 * record + 30, 8 * record - 1):
        (tmp_path / "part-00000.vec").write_bytes(whole[:size])
        assert embed_targets(GroupTeacher(), responses(*TEXTS), tmp_path, named()) == 8 - size // record
        assert shard(tmp_path) == whole


def test_a_finished_artefact_asks_the_teacher_nothing(tmp_path: Path) -> None:
    embed_targets(VowelTeacher(), responses(*TEXTS), tmp_path, named())
    teacher, done = VowelTeacher(), list[int]()
    assert embed_targets(teacher, responses(*TEXTS), tmp_path, named(), done.append) == 0
    assert teacher.asked == []
    assert done == [3, 3, 2]


def test_more_responses_are_added(tmp_path: Path) -> None:
    embed_targets(VowelTeacher(), responses(*TEXTS[:5]), tmp_path, named())
    before = shard(tmp_path)
    assert embed_targets(VowelTeacher(), responses(*TEXTS), tmp_path, named()) == 3
    assert shard(tmp_path).startswith(before)
    assert np.array_equal(open_targets(tmp_path).lookup(TEXTS), vowels(TEXTS))


@pytest.mark.parametrize(
    ("settings", "fingerprint", "words"),
    [
        (named(), "vowels-2", 'sources.teacher: it has "vowels-1", you asked for "vowels-2"'),
        (named(teacher_prompt="p "), "vowels-1", 'teacher_prompt: it has "", you asked for "p "'),
        (named(standardise="yes"), "vowels-1", 'standardise: it has null, you asked for "standardise"'),
        (named(target_batch=2), "vowels-1", "target_batch: it has 3, you asked for 2"),
    ],
)
def test_another_teacher_or_way_is_refused_by_name(
    settings: TargetSettings, fingerprint: str, words: str, tmp_path: Path
) -> None:
    embed_targets(VowelTeacher(), responses(*TEXTS), tmp_path, named())
    with pytest.raises(MismatchError) as caught:
        embed_targets(VowelTeacher(fingerprint), responses(*TEXTS), tmp_path, settings)
    assert words in str(caught.value)


def test_standardised_targets_have_mean_zero_and_deviation_one(tmp_path: Path) -> None:
    """Four texts; a counts 1, 3, 0, 0 and e counts 2, 0, 1, 1, so the means are 1 and 1; i, o and u never occur."""
    texts = ["a bee", "banana", "yes", "be"]
    embed_targets(VowelTeacher(), responses(*texts, "yes"), tmp_path, named(standardise="yes"))
    targets = open_targets(tmp_path)
    deviation_a, deviation_e = (6 / 4) ** 0.5, (2 / 4) ** 0.5
    expected = [[0, 1 / deviation_e], [2 / deviation_a, -1 / deviation_e], [-1 / deviation_a, 0], [-1 / deviation_a, 0]]
    np.testing.assert_allclose(targets.lookup(texts)[:, :2], expected, rtol=1e-6)
    assert targets.lookup(texts)[:, 2:].tolist() == [[0, 0, 0]] * 4  # a dimension that never moves stays finite


@pytest.mark.parametrize(
    ("teacher", "standardise", "done"),
    [("llm", "auto", True), ("llm", "no", False), ("other", "auto", False), ("other", "yes", True)],
)
def test_auto_standardises_for_the_llm_only(teacher: str, standardise: Any, done: bool, tmp_path: Path) -> None:
    embed_targets(VowelTeacher(), responses(*TEXTS), tmp_path, named(teacher=teacher, standardise=standardise))
    assert np.array_equal(open_targets(tmp_path).lookup(TEXTS), vowels(TEXTS)) is not done


def test_unfinished_standardised_targets_are_not_opened(tmp_path: Path) -> None:
    embed_targets(VowelTeacher(), responses(*TEXTS), tmp_path, named(standardise="yes"))
    (tmp_path / "statistics.safetensors").unlink()
    with pytest.raises(MissingPartError, match=r"statistics\.safetensors is missing: run `afterword target` again"):
        open_targets(tmp_path)


def test_a_response_without_a_target_is_named_with_the_way_out(tmp_path: Path) -> None:
    embed_targets(VowelTeacher(), responses(*TEXTS), tmp_path, named())
    with pytest.raises(MissingPartError, match=r"1 of 2 keys, first 'other'.*Run `afterword target`"):
        open_targets(tmp_path).lookup(["yes", "other"])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_vector_that_is_not_finite_is_refused_with_the_text_it_belongs_to(bad: float, tmp_path: Path) -> None:
    class Broken(VowelTeacher):
        def encode(self, inputs: Sequence[str], **options: Any) -> NDArray[np.float32]:
            vectors = super().encode(inputs, **options)
            vectors[[text == "banana" for text in inputs]] = bad
            return vectors

    with pytest.raises(SettingError, match="banana"):
        embed_targets(Broken(), responses(*TEXTS), tmp_path, named())
    with pytest.raises(MissingPartError):
        open_targets(tmp_path).lookup(["banana"])
    embed_targets(VowelTeacher(), responses(*TEXTS), tmp_path, named())
    assert np.array_equal(open_targets(tmp_path).lookup(TEXTS), vowels(TEXTS))


def test_vectors_of_another_width_than_promised_are_refused(tmp_path: Path) -> None:
    class Wide(VowelTeacher):
        def encode(self, inputs: Sequence[str], **options: Any) -> NDArray[np.float32]:
            return np.zeros((len(inputs), 6), np.float32)

    with pytest.raises(SettingError, match=r"shape \(3, 6\), expected \(3, 5\)"):
        embed_targets(Wide(), responses(*TEXTS), tmp_path, named())


@pytest.mark.parametrize("count", [0, 3])
def test_no_text_at_all_is_an_error_and_leaves_nothing(count: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"none of the {count} responses has any text"):
        embed_targets(VowelTeacher(), responses(*[""] * count), tmp_path / "out", named())
    assert not (tmp_path / "out").exists()


def test_a_teacher_that_does_not_know_its_width_is_refused(tmp_path: Path) -> None:
    class Vague(VowelTeacher):
        def get_embedding_dimension(self) -> None:  # type: ignore[override]
            return None

    with pytest.raises(SettingError, match="does not say its embedding dimension"):
        embed_targets(Vague(), responses(*TEXTS), tmp_path, named())


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(SettingError, match="target_batch is 0"):
        TargetSettings(target_batch=0)


def test_without_settings_the_teacher_is_named_by_itself(tmp_path: Path) -> None:
    class Named(VowelTeacher):
        name = "vowel counter"

    embed_targets(Named(), responses(*TEXTS), tmp_path)
    assert open_targets(tmp_path).teacher["name"] == "vowel counter"


def test_a_sentence_transformer_is_a_teacher_as_it_is(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    teacher = SentenceTransformer(str(save_sentence_transformer(tmp_path)), device="cpu")
    assert isinstance(teacher, Encoder)
    embed_targets(teacher, responses(*TEXTS), tmp_path / "out", named())
    found = open_targets(tmp_path / "out").lookup(TEXTS)
    alone = np.stack([teacher.encode(text) for text in TEXTS])
    np.testing.assert_allclose(found, alone, atol=1e-5)
    manifest = Manifest.read(tmp_path / "out")
    assert (manifest.settings["dimension"], manifest.settings["max_length"]) == (24, 64)

    with torch.no_grad():
        next(teacher.parameters()).add_(1)
    with pytest.raises(MismatchError, match=r"sources\.teacher"):
        embed_targets(teacher, responses(*TEXTS), tmp_path / "out", named())
