"""A whole teacher's training: stages, resume, what is saved, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from transformers import AutoModel

from afterword.backbone.backbone import Backbone
from afterword.backbone.load import load_backbone
from afterword.backbone.settings import BackboneSettings
from afterword.errors import ArtefactError, CorruptError, InputError, MismatchError, MissingPartError, SettingError
from afterword.teacher.adapters import LoraSettings
from afterword.teacher.checkpoint import load_teacher, read_config
from afterword.teacher.merged import merge_teacher
from afterword.teacher.open import open_teacher
from afterword.training.teacher_settings import TeacherSettings
from afterword.training.train_teacher import TeacherResult, train_teacher
from tests.world import BOS, byte_ids, weights_of

TEXTS = [f"question number {i}, {'very ' * (i % 4)}short" for i in range(24)]
LORA = LoraSettings(lora_rank=2)
QUICK = TeacherSettings(
    mntp_steps=4,
    mntp_batch=5,
    mntp_lr=5e-3,
    simcse_steps=4,
    simcse_batch=6,
    simcse_lr=5e-3,
    validation=4,
    eval_every=2,
    save_every=1,
    tokens_per_pass=200,
)


def llm(folders: dict[str, Path]) -> Backbone:
    return load_backbone(BackboneSettings(str(folders["llama"]), device="cpu", dtype="float32"))


def trained(folders: dict[str, Path], out: Path, **options: Any) -> TeacherResult:
    return train_teacher(llm(folders), TEXTS, out, **{"lora": LORA, "settings": QUICK, **options})


@pytest.fixture(scope="module")
def whole(saved_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> TeacherResult:
    return trained(saved_folders, tmp_path_factory.mktemp("whole"))


def test_stages_one_after_the_other(whole: TeacherResult) -> None:
    out = whole.folder.parent.parent
    assert whole.folder == out / "simcse" / "teacher"
    assert read_config(whole.folder).adapters == ["mntp", "simcse"]
    assert read_config(out / "mntp" / "teacher").adapters == ["mntp"]
    assert [event["step"] for event in whole.validation["mntp"]] == [0, 2, 4]
    assert set(whole.validation["mntp"][0]) == {"event", "step", "mntp", "accuracy"}
    assert set(whole.validation["simcse"][0]) == {"event", "step", "alignment", "uniformity"}
    assert whole.validation["mntp"][-1]["mntp"] < whole.validation["mntp"][0]["mntp"]


def test_what_is_saved_is_what_was_trained(whole: TeacherResult, saved_folders: dict[str, Path]) -> None:
    out = whole.folder.parent.parent
    for name in (whole.folder, out):
        loaded = open_teacher(str(name), device="cpu", dtype="float32")
        np.testing.assert_allclose(loaded.encode(TEXTS), whole.teacher.encode(TEXTS), atol=1e-6)
        assert loaded.fingerprint == whole.teacher.fingerprint
    stages = [load_teacher(out / stage / "teacher", "cpu", "float32") for stage in ("mntp", "simcse")]
    assert stages[0].fingerprint != stages[1].fingerprint
    plain = open_teacher(f"llm2vec:{saved_folders['llama']}", device="cpu", dtype="float32").encode(TEXTS)
    for one, two in ((stages[0].encode(TEXTS), plain), (stages[1].encode(TEXTS), stages[0].encode(TEXTS))):
        assert np.abs(one - two).max() > 1e-3


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@torch.no_grad()
def test_other_tools_read_the_adapters(whole: TeacherResult, saved_folders: dict[str, Path]) -> None:
    model = AutoModel.from_pretrained(saved_folders["llama"])
    for name in ("mntp", "simcse"):
        model = peft.PeftModel.from_pretrained(model, whole.folder / "adapters" / name).merge_and_unload()
    wanted = model(torch.tensor([[BOS, *byte_ids(TEXTS[0])]]), is_causal=False).last_hidden_state[0, 1:].mean(dim=0)
    np.testing.assert_allclose(whole.teacher.encode(TEXTS[:1])[0], wanted, atol=1e-5)
    files = sorted(path.name for path in (whole.folder / "adapters" / "simcse").iterdir())
    assert files == ["README.md", "adapter_config.json", "adapter_model.safetensors"]
    assert "unsupervised SimCSE" in (whole.folder / "adapters" / "simcse" / "README.md").read_text()


@torch.no_grad()
def test_merged_it_is_a_plain_folder(whole: TeacherResult, tmp_path: Path) -> None:
    merge_teacher(whole.teacher, tmp_path / "merged")
    model = AutoModel.from_pretrained(tmp_path / "merged")
    wanted = model(torch.tensor([[BOS, *byte_ids(TEXTS[0])]])).last_hidden_state[0, 1:].mean(dim=0)
    np.testing.assert_allclose(whole.teacher.encode(TEXTS[:1])[0], wanted, atol=1e-5)
    assert not hasattr(whole.teacher.backbone.config, "is_causal")
    with pytest.raises(SettingError, match="is not empty: choose another --out"):
        merge_teacher(whole.teacher, tmp_path / "merged")


def stop_at(stage: str, step: int) -> Any:
    def report(at: str, done: int, steps: int, losses: object) -> None:
        if (at, done) == (stage, step):
            raise KeyboardInterrupt

    return report


@pytest.mark.parametrize(("stage", "step"), [("mntp", 2), ("simcse", 1), ("simcse", 4)])
def test_a_run_that_was_cut_ends_as_if_it_had_not(
    whole: TeacherResult, saved_folders: dict[str, Path], tmp_path: Path, stage: str, step: int
) -> None:
    """Bit for bit (C47), also in the second stage, which stands on the merged first."""
    with pytest.raises(KeyboardInterrupt):
        trained(saved_folders, tmp_path, report=stop_at(stage, step))
    steps: list[tuple[str, int]] = []
    resumed = trained(saved_folders, tmp_path, report=lambda at, done, *_: steps.append((at, done)))
    assert ("mntp", 1) not in steps
    for name, tensor in weights_of(whole.teacher.backbone.model).items():
        assert torch.equal(resumed.teacher.backbone.model.state_dict()[name], tensor), name
    assert resumed.validation == whole.validation
    again: list[object] = []
    trained(saved_folders, tmp_path, report=lambda *args: again.append(args))
    assert again == []


def test_stages_can_be_left_out(saved_folders: dict[str, Path], tmp_path: Path) -> None:
    result = trained(saved_folders, tmp_path, settings=replace(QUICK, mntp_steps=0))
    assert read_config(result.folder).adapters == ["simcse"]
    with pytest.raises(SettingError, match="both 0: there is nothing to train"):
        replace(QUICK, mntp_steps=0, simcse_steps=0)


def test_another_setting_or_other_texts_are_refused(saved_folders: dict[str, Path], whole: TeacherResult) -> None:
    out = whole.folder.parent.parent
    with pytest.raises(MismatchError, match=r"settings.mask_share: it has 0\.2, you asked for 0\.5"):
        trained(saved_folders, out, settings=replace(QUICK, mask_share=0.5))
    with pytest.raises(MismatchError, match=r"sources\.texts"):
        train_teacher(llm(saved_folders), TEXTS[1:], out, lora=LORA, settings=QUICK)
    with pytest.raises(ArtefactError, match="holds a finished stage: resume it"):
        trained(saved_folders, out, resume=False)
    with pytest.raises(InputError, match="validation is 4, but there are only 3 distinct texts"):
        train_teacher(llm(saved_folders), ["a", "b", "b", " ", "c"], out, settings=QUICK)


def test_later_settings_of_one_stage_do_not_undo_the_other(saved_folders: dict[str, Path], tmp_path: Path) -> None:
    """The first stage is kept when only the second is asked for in another way."""
    trained(saved_folders, tmp_path, settings=replace(QUICK, simcse_steps=0))
    seen: list[str] = []
    changed = replace(QUICK, temperature=0.2, token_dropout=0.1)
    trained(saved_folders, tmp_path, settings=changed, report=lambda stage, *_: seen.append(stage))
    assert set(seen) == {"simcse"}


def test_what_is_damaged_is_named(saved_folders: dict[str, Path], tmp_path: Path) -> None:
    result = trained(saved_folders, tmp_path / "run", settings=replace(QUICK, mntp_steps=0, simcse_steps=1))
    config = result.folder / "teacher.json"
    text = config.read_text()
    for broken, error in (
        ("{", "is not JSON"),
        (text.replace('"format": 1', '"format": 9'), "has format 9; this version reads format 1"),
        (text.replace('"adapters"', '"adaptors"'), r"teacher\.json: "),
        (text.replace('"simcse"', '"../simcse"'), "must be a folder below adapters/"),
        (text.replace('"mean"', '"mean", "colour": "red"'), "colour"),
    ):
        config.write_text(broken)
        with pytest.raises(CorruptError, match=error):
            load_teacher(result.folder, "cpu", "float32")
    config.write_text(text)
    moved = result.folder / "adapters" / "simcse" / "adapter_config.json"
    moved.rename(moved.with_suffix(".gone"))
    with pytest.raises(MissingPartError, match=r"no adapter_config\.json"):
        load_teacher(result.folder, "cpu", "float32")


def test_another_llm_under_the_same_name_is_refused(saved_folders: dict[str, Path], tmp_path: Path) -> None:
    result = trained(saved_folders, tmp_path, settings=replace(QUICK, mntp_steps=0, simcse_steps=1))
    config = result.folder / "teacher.json"
    config.write_text(config.read_text().replace(str(saved_folders["llama"]), str(saved_folders["qwen3"])))
    with pytest.raises(MismatchError, match="its adapters mean nothing there"):
        load_teacher(result.folder, "cpu", "float32")


def test_matrices_that_are_not_there(saved_folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="lora_targets is 'nothing_such'"):
        train_teacher(
            llm(saved_folders), TEXTS, tmp_path, lora=LoraSettings(lora_targets="nothing_such"), settings=QUICK
        )
