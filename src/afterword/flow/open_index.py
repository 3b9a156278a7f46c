"""An index with its encoder, found by the name that stands in it."""

from __future__ import annotations

from pathlib import Path

from afterword.backbone.settings import Device, DType
from afterword.flow.open_encoder import open_encoder
from afterword.search.index import Index, encoder_name
from afterword.search.state import read_state


def open_index(
    folder: str | Path,
    encoder: str | None = None,
    device: Device = "auto",
    dtype: DType = "auto",
    batch_size: int = 32,
) -> Index:
    """Open an index and the encoder that it was made with.

    Args:
        folder: What `build_index` or `afterword index` made.
        encoder: Name of the encoder, as `open_encoder` takes it, where it is no longer found under its old one.
        device: Where the encoder runs.
        dtype: Type of an LLM's weights.
        batch_size: Queries in one pass.

    Raises:
        MissingPartError: There is no index, it was never finished, or its encoder is not there.
        MismatchError: The encoder is another one than the index was made with; both are named.
        SettingError: Nothing can be loaded under the encoder's name.
    """
    name = encoder or encoder_name(folder)
    read_state(Path(folder))  # before a model is loaded
    return Index.open(folder, open_encoder(name, device, dtype), batch_size=batch_size, name=name)
