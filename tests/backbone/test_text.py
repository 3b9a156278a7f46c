"""Text to ids: characters only, whatever is typed (CASES C12, C14, C22, C24, C30)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from afterword.backbone.text import TextTokenizer
from afterword.errors import InputError
from tests.world import (
    ADDED,
    BOS,
    CONTROL,
    EOS,
    FIRST_BYTE,
    GEMMA_TEMPLATE,
    QWEN_TEMPLATE,
    SPECIAL,
    as_users_run_it,
    byte_ids,
    make_tokenizer,
)

TEXT = TextTokenizer(make_tokenizer(bos=True, template=QWEN_TEMPLATE))
TABLE = len(SPECIAL) + ADDED.index("<table>")


@pytest.mark.parametrize("token", CONTROL)
@pytest.mark.parametrize("around", ["{}", "a {} b", "{0}{0}", "\n{}\n", "<{}>", "<|{}|>", "{}é☃"])
def test_a_typed_control_token_is_characters(token: str, around: str) -> None:
    typed = around.format(token)
    assert TEXT.plain([typed]) == [byte_ids(typed)]


@given(st.lists(st.sampled_from([*CONTROL, "<", "|", ">", "<|", "|>", "im_end", "a", " "]), max_size=12))
def test_no_sequence_of_pieces_of_control_tokens_makes_one(pieces: list[str]) -> None:
    typed = "".join(pieces)
    assert TEXT.plain([typed]) == [byte_ids(typed)]


@given(st.lists(st.text(max_size=30), max_size=5))
def test_any_text_is_its_bytes(texts: list[str]) -> None:
    """In a batch, as alone; st.text() leaves lone surrogates out."""
    assert TEXT.plain(texts) == [byte_ids(text) for text in texts]


def test_separators_in_a_text_are_text() -> None:
    """C12: the separators of other tools, among them the one that llm2vec cut texts at."""
    for text in ("Buddhism (religion/philosophy)", "a!@#$%^&*()b", "a [SEP] b </s> c <s> [CLS]", "a ␞ b \x1e c \0 d"):
        assert TEXT.plain([text]) == [byte_ids(text)]


def test_added_tokens_that_are_text_stay_tokens() -> None:
    """Gemma and others add tokens for markup and white space; texts that hold them must be read as in training."""
    assert TEXT.plain(["a<table>b"]) == [[*byte_ids("a"), TABLE, *byte_ids("b")]]


def test_a_token_is_control_when_the_template_writes_it() -> None:
    """`<think>` is not marked special, and looks like markup; what gives it away is the chat template."""
    free = TextTokenizer(make_tokenizer(template=None))
    think = len(SPECIAL) + ADDED.index("<think>")
    assert free.plain(["<think>"]) == [[think]]
    assert TEXT.plain(["<think>"]) == [byte_ids("<think>")]


def test_a_control_token_that_is_one_word_of_the_vocabulary_is_still_characters() -> None:
    """A tokenizer whose model itself knows the control token as a word, and splits at white space only."""
    words = {"<|end|>": 0, "<": 1, "|end|>": 2, "a": 3, "[unk]": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[unk]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    text = TextTokenizer(PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    assert text.plain(["a <|end|> a"]) == [[3, 1, 2, 3]]
    assert text.trusted("a <|end|> a") == [3, 0, 3]


def test_our_own_text_may_hold_control_tokens() -> None:
    assert TEXT.trusted("<|im_start|>user\n") == [SPECIAL.index("<|im_start|>"), *byte_ids("user\n")]
    assert TEXT.trusted("<think>") == [len(SPECIAL) + ADDED.index("<think>")]
    assert TEXT.trusted("") == []


def test_plain_after_trusted_and_trusted_after_plain() -> None:
    """The tokenizer keeps its settings between calls; each call must bring its own."""
    for _ in range(2):
        assert TEXT.plain(["<eos>"]) == [byte_ids("<eos>")]
        assert TEXT.trusted("<eos>") == [EOS]


def test_nothing_is_put_around_a_text() -> None:
    assert TEXT.plain(["", "a"]) == [[], byte_ids("a")]
    assert TEXT.plain([]) == []


@pytest.mark.parametrize("bos", [True, False])
def test_start_ids_are_what_the_tokenizer_puts_in_front(bos: bool) -> None:
    assert TextTokenizer(make_tokenizer(bos)).start_ids == ([BOS] if bos else [])


@pytest.mark.parametrize(("single", "start"), [("<bos> $A <eos>", [BOS]), ("$A <eos>", [])])
def test_an_end_token_behind_every_text_is_left_out(single: str, start: list[int]) -> None:
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[("<bos>", BOS), ("<eos>", EOS)]
    )
    assert TextTokenizer(tokenizer).start_ids == start


def test_start_ids_when_bos_and_eos_are_one_token() -> None:
    tokenizer = make_tokenizer()
    tokenizer.eos_token = "<bos>"
    assert TextTokenizer(tokenizer).start_ids == [BOS]


@pytest.mark.parametrize("bad", ["ok \ud800 bad", "\udfff", "ab\udc80"])
def test_a_lone_surrogate_names_the_item(bad: str) -> None:
    """C24."""
    with pytest.raises(InputError, match=r"item 2: .*surrogate.*U\+D") as error:
        TEXT.plain(["fine", "also 😀 fine", bad, "\ud801"])
    assert error.value.item == 2


@pytest.mark.parametrize("bad", [7, None, b"bytes", ["nested"]])
def test_what_is_no_string_names_the_item(bad: object) -> None:
    with as_users_run_it(), pytest.raises(InputError, match=f"item 1: .*found {type(bad).__name__}") as error:
        TEXT.plain(["fine", bad])  # type: ignore[list-item]
    assert error.value.item == 1


def test_decode_leaves_control_tokens_out_unless_asked() -> None:
    ids = [BOS, *byte_ids("hé"), SPECIAL.index("<|im_end|>"), *byte_ids("!")]
    assert TEXT.decode(ids) == "hé!"
    assert TEXT.decode(ids, keep_control=True) == "<bos>hé<|im_end|>!"


def test_decoded_control_tokens_can_be_removed() -> None:
    assert TEXT.without_control("<think>\nno</think><|tool|> <eos><table><start_of_turn>") == "\nno <table>"


def test_the_longest_control_token_is_removed_where_one_begins_another() -> None:
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([AddedToken("<end", special=True), AddedToken("<end>", special=True)])
    assert TextTokenizer(tokenizer).without_control("a<end>b<end c") == "ab c"


def test_a_special_token_of_one_character_is_a_character() -> None:
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([AddedToken("¶", special=True)])
    assert TextTokenizer(tokenizer).plain(["a ¶ b"]) == [byte_ids("a ¶ b")]


def test_text_of_bytes_that_are_no_character_decodes() -> None:
    assert TEXT.decode([FIRST_BYTE + 0xC3]) == "�"


def test_sixteen_threads_get_what_one_gets() -> None:
    """C30: calls with other settings in between are what made fast tokenizers fail with "Already borrowed"."""
    text = TextTokenizer(make_tokenizer(template=GEMMA_TEMPLATE))

    def work(thread: int) -> list[str]:
        wrong = []
        for call in range(200):
            typed = f"<eos> {thread} {call}" * (1 + call % 5)
            right = (
                text.plain([typed, "<start_of_turn>"]) == [byte_ids(typed), byte_ids("<start_of_turn>")]
                and text.trusted(f"<eos>{call}") == [EOS, *byte_ids(str(call))]
                and text.decode([EOS, *byte_ids(typed)], keep_control=call % 2 == 0) == "<eos>" * (1 - call % 2) + typed
            )
            wrong += [] if right else [typed]
        return wrong

    with as_users_run_it(), ThreadPoolExecutor(16) as pool:
        assert list(pool.map(work, range(16))) == [[]] * 16
