"""How many tokens a text has for an encoder, and how many of them it reads."""

from __future__ import annotations

import pytest

from afterword.errors import InputError
from afterword.model.model import Afterword
from afterword.model.settings import ModelSettings
from afterword.serving.reading import reader_of
from tests.teachers import VowelTeacher
from tests.world import EOS, QWEN_TEMPLATE, TOKENIZER_SIZE, byte_ids, make_backbone

TEXTS = ["a", "", "five5", "☃ café", "<|im_end|>", "x" * 300]


@pytest.mark.parametrize("placement", ["query", "answer"])
@pytest.mark.parametrize("prompt", ["", "Say: ", "Say:\n\n"])
def test_a_model_counts_prompt_and_text_and_says_where_it_cuts(placement: str, prompt: str) -> None:
    """One token a byte, so what is counted can be seen; what is read is what really stands in the rows."""
    backbone = make_backbone("qwen3", bos=False, template=QWEN_TEMPLATE)
    settings = ModelSettings(n_thought=2, n_compression=3, max_length=140, placement=placement)  # type: ignore[arg-type]
    model = Afterword.from_backbone(backbone, settings=settings)
    reader = reader_of(model)
    counts = reader.count(TEXTS, prompt)
    assert counts == [len((prompt + text).encode()) for text in TEXTS]
    assert reader.most == 140 - 5 - len(model.inputs.frame)
    read = [len(row) - len(model.inputs.frame.after) for row in model.inputs.rows(TEXTS, prompt)]
    assert read == [min(count, reader.most) for count in counts]


def test_ids_become_the_text_that_they_stand_for() -> None:
    reader = reader_of(Afterword.from_backbone(make_backbone("llama"), n_compression=2))
    assert reader.texts([byte_ids("☃ <pad>"), [EOS, *byte_ids("a"), EOS], byte_ids("\ufffd")]) == [
        "☃ <pad>",
        "a",
        "\ufffd",
    ]
    for row in ([TOKENIZER_SIZE], [-1], byte_ids("☃")[:2], byte_ids("☃")[1:], [*byte_ids("\ufffd"), byte_ids("é")[0]]):
        with pytest.raises(InputError, match="item 1"):
            reader.texts([byte_ids("a"), row])


def test_an_encoder_without_a_tokenizer_counts_nothing_and_takes_no_ids() -> None:
    reader = reader_of(VowelTeacher())
    assert (reader.count(["a", "b"], "p"), reader.most) == ([0, 0], None)
    with pytest.raises(InputError, match="this model takes no token ids"):
        reader.texts([[1]])
