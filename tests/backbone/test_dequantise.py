"""Reading a GGUF file once, and fast, gives what the library's own reader gives."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from afterword.backbone.dequantise import reading_once


def written(path: Path) -> Path:
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_token_list(["a", "ü", "<s>"])
    writer.add_token_scores([0.5, -1.0, 2.0])
    writer.add_context_length(77)
    writer.add_tensor("weights", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_shared_reader_reads_what_the_library_reads(tmp_path: Path) -> None:
    path = written(tmp_path / "tiny.gguf")
    plain = gguf.GGUFReader(path)
    with reading_once():
        shared = gguf.GGUFReader(path)
        assert gguf.GGUFReader(path) is shared
    assert type(shared.data) is np.ndarray
    assert {name: field.contents() for name, field in shared.fields.items()} == {
        name: field.contents() for name, field in plain.fields.items()
    }
    assert shared.fields["tokenizer.ggml.tokens"].contents() == ["a", "ü", "<s>"]
    assert [tensor.name for tensor in shared.tensors] == ["weights"]
    np.testing.assert_array_equal(shared.tensors[0].data, np.arange(12, dtype=np.float32).reshape(3, 4))


def test_afterwards_the_library_is_as_it_was(tmp_path: Path) -> None:
    original = gguf.GGUFReader
    with reading_once():
        assert gguf.GGUFReader is not original
    assert gguf.GGUFReader is original
