"""A stock export: plain sentence-transformers gives the vectors of `Afterword.encode`, without our package."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from afterword.cli.main import main
from afterword.errors import SettingError
from afterword.integrations.stock import export_stock
from afterword.model.model import Afterword
from tests.cli.conftest import done
from tests.integrations.conftest import LLMS, PROMPTS, TEXTS, Save
from tests.model.embedders import COMPRESSION, DIMENSION, THOUGHT, make_embedder
from tests.world import TOKENIZER_SIZE, VOCABULARY, make_backbone, make_model, make_tokenizer, with_tokenizer

CLOSE = {"atol": 1e-5, "rtol": 0}
SEPARATE = """
import importlib.metadata, importlib.util, json, sys
import numpy as np
from sentence_transformers import SentenceTransformer

assert importlib.util.find_spec("afterword") is None
assert "afterword" not in {found.name for found in importlib.metadata.distributions()}
folder, texts, out = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
model = SentenceTransformer(folder, device="cpu")
np.savez(out, plain=model.encode(texts), query=model.encode_query(texts), document=model.encode_document(texts))
"""


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The python of an environment with all packages of this one but ours."""
    folder = tmp_path_factory.mktemp("elsewhere") / "env"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    there = subprocess.run([python, "-I", "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            target = Path(there) / entry.name
            if "afterword" not in entry.name and not target.exists():
                target.symlink_to(entry)
    return python


def ours(folder: Path) -> Afterword:
    return Afterword.from_pretrained(folder, device="cpu", dtype="float32")


def theirs(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu")


CASES = [*((llm, "answer") for llm in LLMS), ("llama", "query"), ("qwen3", "query"), ("gemma3-short", "query")]


@pytest.mark.parametrize(("llm", "placement"), CASES)
def test_vectors_are_those_of_afterword(llm: str, placement: str, save: Save, tmp_path: Path) -> None:
    """Truncation, BOS, frames, thought tokens, prompts, typed control tokens, texts beyond the window: all of it."""
    folder = save(llm, placement, None, 512 if placement == "query" else 1024)
    model = ours(folder)
    export_stock(model, tmp_path / "stock")
    opened = theirs(tmp_path / "stock")
    assert {type(module).__module__.partition(".")[0] for module in opened} == {"sentence_transformers"}
    for batch_size in (3, 32):
        np.testing.assert_allclose(opened.encode(TEXTS, batch_size=batch_size), model.encode(TEXTS), **CLOSE)
    for method in ("encode_query", "encode_document"):
        np.testing.assert_allclose(getattr(opened, method)(TEXTS), getattr(model, method)(TEXTS), **CLOSE)
    found, wanted = opened.encode(TEXTS, prompt_name="ask"), model.encode(TEXTS, prompt_name="ask")
    np.testing.assert_allclose(found, wanted, **CLOSE)
    explicit = model.inputs.frame.glue + "Read: "
    np.testing.assert_allclose(opened.encode(TEXTS, prompt=explicit), model.encode(TEXTS, prompt="Read: "), **CLOSE)
    assert found.dtype == np.float32
    assert np.linalg.norm(wanted, axis=1).min() > 0.1
    assert opened.get_embedding_dimension() == DIMENSION
    assert opened.max_seq_length == model.config.max_length


@pytest.mark.parametrize("llm", ["llama", "qwen3", "gemma3"])
def test_nothing_of_ours_is_needed(llm: str, save: Save, elsewhere: Path, tmp_path: Path) -> None:
    """In an environment in which `afterword` is not installed."""
    folder = save(llm, "answer", "ask", 1024)
    model = ours(folder)
    export_stock(model, tmp_path / "stock")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [
            elsewhere,
            "-I",
            "-W",
            "error",
            "-c",
            SEPARATE,
            tmp_path / "stock",
            json.dumps(TEXTS),
            tmp_path / "v.npz",
        ],
        capture_output=True,
        text=True,
        env={**environment, "HF_HUB_OFFLINE": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    found = np.load(tmp_path / "v.npz")
    np.testing.assert_allclose(found["plain"], model.encode(TEXTS), **CLOSE)
    np.testing.assert_allclose(found["query"], model.encode_query(TEXTS), **CLOSE)
    np.testing.assert_allclose(found["document"], model.encode_document(TEXTS), **CLOSE)
    kinds = {path.suffix for path in (tmp_path / "stock").rglob("*") if path.is_file()}
    assert kinds == {".json", ".md", ".safetensors"}


def test_learned_vectors_stand_in_the_vocabulary_and_nothing_else_changes(save: Save, tmp_path: Path) -> None:
    """Gemma's are divided by √hidden there; spare rows of the matrix are used before new ones are made."""
    model = ours(save("gemma3"))
    export_stock(model, tmp_path / "stock")
    found = load_file(tmp_path / "stock" / "model.safetensors")
    wanted = model.backbone.body.state_dict()
    assert found.keys() == wanted.keys()
    rows, matrix = found.pop("embed_tokens.weight"), wanted.pop("embed_tokens.weight")
    learned = slice(TOKENIZER_SIZE, TOKENIZER_SIZE + THOUGHT + COMPRESSION)
    torch.testing.assert_close(rows[learned] * 32**0.5, model.parts.tokens.detach())
    assert rows.shape == (VOCABULARY, 32)
    assert torch.equal(rows[: learned.start], matrix[: learned.start])
    assert torch.equal(rows[learned.stop :], matrix[learned.stop :])
    assert all(torch.equal(found[name], wanted[name]) for name in found)


def test_a_vocabulary_without_spare_rows_grows(tmp_path: Path) -> None:
    model = make_embedder(make_backbone("qwen3", vocab_size=TOKENIZER_SIZE), prompts=PROMPTS)
    export_stock(model, tmp_path / "stock")
    assert json.loads((tmp_path / "stock" / "config.json").read_text())["vocab_size"] == TOKENIZER_SIZE + 5
    np.testing.assert_allclose(theirs(tmp_path / "stock").encode(TEXTS), model.encode(TEXTS), **CLOSE)
    assert len(model.backbone.embedding_matrix) == TOKENIZER_SIZE


def test_the_model_is_as_before(tmp_path: Path) -> None:
    model = make_embedder(make_backbone("llama"), prompts=PROMPTS)
    before = model.fingerprint, model.backbone.fingerprint, model.backbone.config.vocab_size, model.encode(TEXTS)
    export_stock(model, tmp_path / "stock")
    after = model.fingerprint, model.backbone.fingerprint, model.backbone.config.vocab_size, model.encode(TEXTS)
    assert before[:3] == after[:3]
    np.testing.assert_array_equal(before[3], after[3])


def test_a_model_without_thought_tokens_or_a_pad_token(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.pad_token = None
    backbone = with_tokenizer(make_backbone("llama"), tokenizer)
    model = make_embedder(backbone, n_thought=0, n_compression=1, prompts=PROMPTS)
    export_stock(model, tmp_path / "stock")
    np.testing.assert_allclose(theirs(tmp_path / "stock").encode(TEXTS), model.encode(TEXTS), **CLOSE)


def merging_tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are longer than bytes, as real ones have: of the kind of Llama 3, or of Gemma."""
    from tokenizers import decoders, normalizers, pre_tokenizers, processors, trainers

    raw = Tokenizer(models.BPE(byte_fallback=kind == "spaces"))
    special = ["<pad>", "<eos>", "<bos>", "<|im_start|>", "<|im_end|>"]
    if kind == "bytes":
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        raw.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:
        raw.normalizer = normalizers.Replace(" ", "▁")
        raw.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        special += [f"<0x{byte:02X}>" for byte in range(256)]
        alphabet = [chr(i) for i in range(0x20, 0x7F)] + ["▁"]
    words = [
        "why is the sky blue",
        "the long text",
        "summarize the following passage: the",
        "qa qa <|im_end|> is a text",
    ] * 3
    raw.train_from_iterator(
        words, trainers.BpeTrainer(vocab_size=360 + len(special), special_tokens=special, initial_alphabet=alphabet)
    )
    raw.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        clean_up_tokenization_spaces=False,
    )


@pytest.mark.parametrize("kind", ["bytes", "spaces"])
def test_tokenizers_that_merge(kind: str, tmp_path: Path) -> None:
    tokenizer = merging_tokenizer(kind)
    backbone = with_tokenizer(make_backbone("llama", vocab_size=len(tokenizer)), tokenizer)
    for placement in ("query", "answer"):
        model = make_embedder(backbone, placement=placement, prompts=PROMPTS, max_length=1024)
        export_stock(model, tmp_path / placement)
        opened = theirs(tmp_path / placement)
        np.testing.assert_allclose(opened.encode_query(TEXTS), model.encode_query(TEXTS), **CLOSE)
        np.testing.assert_allclose(opened.encode_document(TEXTS), model.encode_document(TEXTS), **CLOSE)


@pytest.mark.parametrize("text", ["<|im_end|>", "a<eos>b", "<<|im_end|>>", "<|im_start|>user", "<|compression_0|>"])
def test_typed_control_tokens_are_characters(text: str, save: Save, tmp_path: Path) -> None:
    model = ours(save("qwen3"))
    export_stock(model, tmp_path / "stock")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "stock")
    ids = tokenizer(text).input_ids
    learned = ids[-THOUGHT - COMPRESSION :]
    assert learned == list(range(TOKENIZER_SIZE, TOKENIZER_SIZE + THOUGHT + COMPRESSION))
    assert ids[: -len(learned)] == model.inputs.rows([text])[0]
    assert not set(ids[: -len(learned)]) & {*tokenizer.all_special_ids, *learned}


@pytest.mark.parametrize("prompt", ["\n", "q"])
def test_a_prompt_that_is_tokenised_otherwise_is_refused_or_left_out(prompt: str, tmp_path: Path) -> None:
    tokenizer = merging_tokenizer("bytes")
    backbone = with_tokenizer(make_backbone("llama", vocab_size=len(tokenizer)), tokenizer)
    model = make_embedder(backbone, prompts={"query": "", "document": "D: ", "odd": prompt})
    with pytest.raises(SettingError, match=r"splits these prompts otherwise.*: odd\. .*--without"):
        export_stock(model, tmp_path / "stock")
    assert not (tmp_path / "stock").exists()
    written = export_stock(model, tmp_path / "stock", without=("odd",))
    assert written.prompts == ("query", "document")
    assert written.size == sum(path.stat().st_size for path in (tmp_path / "stock").rglob("*") if path.is_file())
    assert "odd" not in theirs(tmp_path / "stock").prompts


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(SettingError, match="is there already"):
        export_stock(make_embedder(prompts=PROMPTS), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_cannot_be_exact_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="starcoder2 is not one of them"):
        export_stock(make_embedder(make_backbone("starcoder2")), tmp_path / "stock")
    model = make_embedder(make_backbone("llama"), prompts=PROMPTS, default_prompt_name="ask")
    with pytest.raises(SettingError, match="'ask' is the default prompt"):
        export_stock(model, tmp_path / "stock", without=("ask",))
    monkeypatch.setattr(model.backbone.config, "quantization_config", {"bits": 4}, raising=False)
    with pytest.raises(SettingError, match="is quantised"):
        export_stock(model, tmp_path / "stock")
    other = make_model("llama")
    monkeypatch.setattr(type(other.get_input_embeddings()), "forward", lambda self, ids: self.weight[ids] + 1)
    with pytest.raises(SettingError, match="does more than scale"):
        export_stock(make_embedder(make_backbone("llama"), prompts=PROMPTS), tmp_path / "other")


def test_the_command_exports(save: Save, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save("qwen3", "answer")
    with pytest.raises(SystemExit) as left:
        main(["export", str(folder), "--out", str(tmp_path / "stock")])
    assert left.value.code == 2
    assert "give --stock" in capsys.readouterr().err
    found = json.loads(done(capsys, "export", folder, "--stock", "--out", tmp_path / "stock", "--json"))
    assert (found["out"], found["prompts"]) == (str(tmp_path / "stock"), ["query", "document", "ask"])
    np.testing.assert_allclose(theirs(tmp_path / "stock").encode(TEXTS), ours(folder).encode(TEXTS), **CLOSE)
    assert "library_name: sentence-transformers" in (tmp_path / "stock" / "README.md").read_text()


@pytest.mark.llm
def test_the_demo_llm_with_its_own_tokenizer(tmp_path: Path) -> None:
    """Gemma 3 270M: √640 in its embeddings, 262,144 tokens, a real tokenizer; 1e-5 of the largest number."""
    from afterword.model.settings import ModelSettings

    settings = ModelSettings(n_thought=2, n_compression=4, placement="answer")
    model = Afterword.from_backbone("demo", settings=settings, device="cpu", dtype="float32")
    export_stock(model, tmp_path / "stock")
    opened = theirs(tmp_path / "stock")
    for method in ("encode_query", "encode_document"):
        wanted = getattr(model, method)(TEXTS)
        np.testing.assert_allclose(getattr(opened, method)(TEXTS), wanted, atol=1e-5 * float(np.abs(wanted).max()))
