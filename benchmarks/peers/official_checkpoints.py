"""Let the package ``llm2vec-gen`` write tiny checkpoints, and say what it makes of some texts: ``OUT_FOLDER`` is given.

Afterword's tests read them (``tests/integrations/data/official``) and must come to the same vectors and words:

    peers/bin/python official_checkpoints.py ../../tests/integrations/data/official

For each LLM, ``OUT_FOLDER/NAME`` gets ``backbone/`` (a random causal LM with a byte-level tokenizer), ``checkpoint/``
(saved by the package, loaded again by its ``from_pretrained``) and ``expected.json``. It runs in the peers' environment
and imports nothing of Afterword.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from llm2vec_gen import LLM2VecGenModel
from llm2vec_gen.config import CustomTrainingArguments, ModelArguments
from llm2vec_gen.models import EncoderDecoderModel, ProjectionModel
from llm2vec_gen.utils import save_args_to_yaml
from official_parts import Work, learned_tokens, load_encoder, load_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen3Config

SPECIAL = ["<pad>", "<eos>", "<bos>", "<|im_start|>", "<|im_end|>"]
CORPUS = ["the sky is blue because the air scatters the light of the sun", "what is the capital of the country"]
WIDTH, DIMENSION, SPREAD = 16, 12, 0.4
SIZES = {
    "vocab_size": 300,
    "hidden_size": WIDTH,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 1024,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
TEXTS = [
    "Why is the sky blue?",
    "a",
    "  two  spaces \n",
    "café ☃ 👩‍👩‍👧",
    "Name a river in France, and say in one or two sentences where it springs and where it flows into the sea.",
    "long text " * 200,
]


@dataclass(frozen=True)
class Kind:
    """One LLM, and how many of its learned tokens there are and are kept."""

    name: str
    config: Callable[..., Any]
    tied: bool
    bos: bool
    n_tokens: int
    n_compression: int


KINDS = (
    Kind("llama", LlamaConfig, tied=False, bos=True, n_tokens=3, n_compression=3),
    Kind("qwen3", Qwen3Config, tied=True, bos=False, n_tokens=5, n_compression=3),
)


class OnTheCPU(TorchFunctionMode):
    """The package's ``generate`` moves its inputs to CUDA whatever the model's device; here they stay."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch with the CPU for every CUDA device."""
        if func is torch.Tensor.cuda:
            return args[0]
        return func(*map(on_cpu, args), **{name: on_cpu(value) for name, value in (kwargs or {}).items()})


def on_cpu(value: Any) -> Any:
    """Return the CPU for a CUDA device, anything else as it is."""
    return "cpu" if isinstance(value, (str, torch.device)) and str(value).startswith("cuda") else value


def save_backbone(kind: Kind, folder: Path) -> None:
    """Save a tiny random causal LM with a byte-level tokenizer, in float32."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=280, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(CORPUS, trainer)
    if kind.bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    begins = {"bos_token": "<bos>"} if kind.bos else {}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **begins, eos_token="<eos>", pad_token="<pad>", clean_up_tokenization_spaces=False
    ).save_pretrained(folder)
    config = kind.config(**SIZES, tie_word_embeddings=kind.tied, bos_token_id=2 if kind.bos else None)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)


def save_checkpoint(kind: Kind, backbone: str, folder: str) -> None:
    """Let the package save a model with random tokens and heads, as its training script lays it out."""
    work = Work(task="encode", backbone=backbone, queries=TEXTS, n_tokens=kind.n_tokens)
    tokenizer = load_tokenizer(work, [])
    model = EncoderDecoderModel(
        load_encoder(work, tokenizer),
        AutoModelForCausalLM.from_pretrained(backbone, dtype=torch.float32),
        encoding_mode=f"last_{kind.n_compression}_tokens",
        reconstruction_mlp=ProjectionModel(WIDTH, WIDTH),
        alignment_mlp=ProjectionModel(WIDTH, DIMENSION),
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "trainable_tokens_delta" in name or "_mlp.projection" in name:
                parameter.normal_(0, SPREAD)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (Path(folder) / "encoder" / "README.md").unlink()
    arguments = ModelArguments(
        model_name_or_path=backbone,
        torch_dtype="float32",
        special_tokens=learned_tokens(work),
        encoding_mode=f"last_{kind.n_compression}_tokens",
        add_reconstruction_mlp=True,
        add_alignment_mlp=True,
    )
    save_args_to_yaml(arguments, folder)
    save_args_to_yaml(CustomTrainingArguments(output_dir="out", use_cpu=True), folder)


def expected(kind: Kind, folder: str) -> dict[str, Any]:
    """Load the checkpoint by the package, and return the vectors and the words of some texts."""
    model = LLM2VecGenModel.from_pretrained(folder)
    # transformers 5 has no tokenizer.additional_special_tokens, which encode reads, and saves no padding side.
    model.tokenizer.additional_special_tokens = [f"<learned{i}>" for i in range(kind.n_tokens)]
    model.tokenizer.padding_side = "left"
    with torch.no_grad():
        vectors, prompts = zip(*(model.encode([text], get_recon_hidden_states=True) for text in TEXTS), strict=True)
        if not torch.allclose(torch.cat(vectors), model.encode(TEXTS), atol=1e-5):
            raise RuntimeError("the package's own vectors depend on the batch")
        with OnTheCPU():
            words = [model.generate(recon_hidden_states=prompt, max_new_tokens=12) for prompt in prompts]
    return {"texts": TEXTS, "vectors": torch.cat(vectors).tolist(), "words": words}


def main() -> None:
    """Write everything anew."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python official_checkpoints.py OUT_FOLDER")
    out = Path(sys.argv[1]).resolve()
    for seed, kind in enumerate(KINDS):
        torch.manual_seed(seed)
        shutil.rmtree(out / kind.name, ignore_errors=True)
        (out / kind.name).mkdir(parents=True)
        os.chdir(out / kind.name)  # so that the LLM's name in the checkpoint is the same everywhere
        save_backbone(kind, Path("backbone"))
        save_checkpoint(kind, "backbone", "checkpoint")
        text = json.dumps(expected(kind, "checkpoint"), indent=1, ensure_ascii=True)
        Path("expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
