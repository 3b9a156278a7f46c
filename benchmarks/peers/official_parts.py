"""What the package ``llm2vec-gen`` is measured with: the work, and its tokenizer, models, teacher and collator.

Each loader that had to go around something appends a sentence to ``notes``, which ``official.py`` writes out.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from llm2vec_gen.dataset import CustomCollator, DataSample
from llm2vec_gen.models import EncoderDecoderModel, ProjectionModel
from peft import LoraConfig, PeftModel, TrainableTokensConfig, get_peft_model
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

END_TEXT = "<|end_of_text|>"  # the package's collator ends every answer with this text, whatever the model

Collate = Callable[[list[DataSample]], dict[str, torch.Tensor]]


@dataclass
class Work:
    """What to measure; the keys of WORK.json."""

    task: str
    backbone: str
    queries: list[str]
    responses: list[str] = field(default_factory=list)
    dtype: str = "float32"
    threads: int = 2
    batch_size: int = 16
    n_tokens: int = 10
    checkpointing: bool = True
    teacher: str | None = None
    teacher_dimension: int = 384
    max_length: int = 512
    padding: str = "longest"
    end: str = "one"
    warmup: int = 1
    repeats: int = 5

    def __post_init__(self) -> None:
        """Refuse what would otherwise fail late or measure something else than was asked for."""
        choices = {"task": ("train", "encode"), "padding": ("longest", "max_length"), "end": ("one", "package")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it can be one of {allowed}")
        if not self.queries:
            raise ValueError("there are no queries to measure with")
        if self.task == "train" and len(self.queries) != len(self.responses):
            raise ValueError(f"{len(self.queries)} queries but {len(self.responses)} responses")

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype the models are loaded in."""
        return getattr(torch, self.dtype)


def learned_tokens(work: Work) -> list[str]:
    """Name the tokens that the package adds to the vocabulary."""
    return [f"<learned{i}>" for i in range(work.n_tokens)]


def load_tokenizer(work: Work, notes: list[str]) -> PreTrainedTokenizerBase:
    """Load the backbone's tokenizer with the learned tokens in it, padding on the left as the package expects."""
    tokenizer = AutoTokenizer.from_pretrained(work.backbone)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "left"
    tokenizer.add_tokens(learned_tokens(work), special_tokens=True)
    tokenizer.additional_special_tokens = learned_tokens(work)
    notes.append("transformers 5 has no tokenizer.additional_special_tokens, which encode reads: set by hand")
    return tokenizer


def load_encoder(work: Work, tokenizer: PreTrainedTokenizerBase) -> PeftModel:
    """Load the frozen encoder, of which only the rows of the learned tokens are trained (peft's trainable tokens)."""
    encoder = AutoModel.from_pretrained(work.backbone, dtype=work.torch_dtype)
    # Without mean_resizing the float32 copies that it takes for the new rows would stand in the peak memory.
    encoder.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    indices = tokenizer.convert_tokens_to_ids(learned_tokens(work))
    encoder = get_peft_model(encoder, TrainableTokensConfig(token_indices=indices))
    encoder.config.num_special_tokens = work.n_tokens  # the package's encode compares its encoding_mode with this
    return encoder


def load_model(work: Work, tokenizer: PreTrainedTokenizerBase) -> EncoderDecoderModel:
    """Build the package's model as it is trained: two copies of the frozen backbone and two linear heads."""
    encoder = load_encoder(work, tokenizer)
    decoder = AutoModelForCausalLM.from_pretrained(work.backbone, dtype=work.torch_dtype).requires_grad_(False)
    width = decoder.config.hidden_size
    return EncoderDecoderModel(
        encoder,
        decoder,
        encoding_mode=f"last_{work.n_tokens}_tokens",
        reconstruction_mlp=ProjectionModel(width, width, dtype=work.torch_dtype),
        alignment_mlp=ProjectionModel(width, work.teacher_dimension, dtype=work.torch_dtype),
    )


def load_teacher(work: Work, notes: list[str]) -> PeftModel:
    """Load the teacher in the one form that the package accepts from everyone: a PeftModel, which it mean-pools."""
    teacher = AutoModel.from_pretrained(work.teacher, dtype=work.torch_dtype)
    if teacher.config.hidden_size != work.teacher_dimension:
        raise ValueError(
            f"teacher_dimension is {work.teacher_dimension}; {work.teacher} has {teacher.config.hidden_size}"
        )
    # A fresh adapter changes nothing (one factor is zero); merged, it costs nothing either.
    teacher = get_peft_model(teacher, LoraConfig(r=1, target_modules="all-linear")).requires_grad_(False).eval()
    teacher.merge_adapter()
    notes.append(
        "get_teacher_embeddings asserts a PeftModel (or xlm-roberta): the teacher is wrapped with an adapter that "
        "changes nothing, merged; the package mean-pools it and doesn't normalise"
    )
    return teacher


def one_end_token(collate: Collate, tokenizer: PreTrainedTokenizerBase, notes: list[str]) -> Collate:
    """Let the collator's end text cost one token, as it does for Llama 3, instead of the nine or so of others."""
    if len(tokenizer(END_TEXT, add_special_tokens=False)["input_ids"]) == 1:
        return collate
    tokenizer.add_tokens([END_TEXT], special_tokens=True)
    stand_in = tokenizer.convert_tokens_to_ids(END_TEXT)
    notes.append(f"the collator ends answers with the text {END_TEXT!r}: given to the decoder as its one end token")

    def collate_with_end(samples: list[DataSample]) -> dict[str, torch.Tensor]:
        batch = collate(samples)
        for name in ("answer_input_ids", "labels"):  # the decoder has no row for the stand-in
            batch[name] = batch[name].masked_fill(batch[name] == stand_in, tokenizer.eos_token_id)
        return batch

    return collate_with_end


def load_collator(work: Work, tokenizer: PreTrainedTokenizerBase, notes: list[str]) -> Collate:
    """Build the package's collator; it tokenises queries, answers, the teacher's answers and a repeat prompt."""
    collate = CustomCollator(
        tokenizer=tokenizer,
        special_tokens=learned_tokens(work),
        teacher_tokenizer=AutoTokenizer.from_pretrained(work.teacher) if work.teacher else None,
        teacher_special_tokens=[],
        padding=work.padding,
        max_length=work.max_length,
    )
    return one_end_token(collate, tokenizer, notes) if work.end == "one" else collate


def checkpoint(model: EncoderDecoderModel, notes: list[str]) -> None:
    """Switch gradient checkpointing on in both copies of the backbone, as the package's settings do by default."""
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    notes.append(
        "the trainer of transformers 5.24 hands the package's gradient_checkpointing_enable an argument that it "
        "doesn't know (every_n_layers): called directly"
    )
