"""A long stream of texts through encoding: does the last tenth take as long as the first, and does memory stay flat?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from afterword.backbone.backbone import Backbone
from afterword.bench.cases import scratch
from afterword.bench.clock import resident_memory
from afterword.corpus.readers import read_rows
from afterword.errors import SettingError
from afterword.flow import encode_file as streamed
from afterword.flow.inputs import demo_file
from afterword.flow.progress import Watcher
from afterword.model.model import Afterword
from afterword.model.settings import ModelSettings

PARTS = 10


@dataclass(frozen=True)
class Moment:
    """Where the stream stood when a chunk was written.

    Attributes:
        texts: Texts done.
        at: Time on a clock, in seconds.
        busy: Processor time of this process until then, in seconds: other processes do not add to it.
        resident: Memory of the process, in bytes.
    """

    texts: int
    at: float
    busy: float
    resident: int


def bench_stream(
    backbone: Backbone,
    count: int,
    batch: int,
    shape: ModelSettings,
    watcher: Watcher,
    source: str | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Encode a stream into a file, by the way of `afterword encode`, and look at it after each tenth.

    Args:
        backbone: The frozen LLM.
        count: Texts in the stream.
        batch: Most texts in one pass.
        shape: Shape of the model; it is not trained.
        watcher: Told of each chunk.
        source: File of texts to draw from; the demo's queries otherwise.
        seed: Which texts are drawn.

    Returns:
        A row for each tenth: texts a second in it; its time for each text as a multiple of the first tenth's, by the
        clock and by the processor time of this process; resident memory at its end, and how much that has grown since
        the end of the first tenth.

    Raises:
        SettingError: The stream has fewer chunks than tenths.
    """
    if count < PARTS * streamed.CHUNK:
        raise SettingError(f"a stream of {count} texts: at least {PARTS * streamed.CHUNK} are needed to compare tenths")
    model = Afterword.from_backbone(backbone, settings=shape)
    encode = partial(model.encode, batch_size=batch, show_progress_bar=False)
    texts = drawn_texts(source, count + streamed.CHUNK, seed)
    moments: list[Moment] = []

    def look(new: int) -> None:
        counted = new if moments else 0  # the first chunk warms up
        done = moments[-1].texts + counted if moments else 0
        moments.append(Moment(done, time.perf_counter(), time.process_time(), resident_memory()))
        watcher.advance(counted)

    with scratch() as folder:
        rows = ((None, text) for text in texts)
        streamed.encode_file(encode, rows, Path(folder) / "vectors.npy", model.get_embedding_dimension(), look)
    return tenths(moments)


def drawn_texts(source: str | None, count: int, seed: int) -> Iterator[str]:
    """Draw texts from a file, each time any of them, so that their lengths are mixed as real ones are."""
    known = [text for _, text in read_rows(source or str(demo_file("queries.jsonl")))]
    draw = Random(seed)
    return (draw.choice(known) for _ in range(count))


def tenths(moments: list[Moment]) -> list[dict[str, Any]]:
    """Return the rows of `bench_stream`; a tenth ends with the chunk that completes it."""
    total = moments[-1].texts
    ends = [next(m for m in moments if m.texts * PARTS >= total * part) for part in range(PARTS + 1)]
    pairs = list(pairwise(ends))
    each = [(end.at - start.at) / (end.texts - start.texts) for start, end in pairs]
    busy = [(end.busy - start.busy) / (end.texts - start.texts) for start, end in pairs]
    return [
        {
            "stream": f"{100 * (part + 1) // PARTS} %",
            "texts": end.texts,
            "items/s": round(1 / each[part], 1),
            "time of first": round(each[part] / each[0], 3),
            "CPU time of first": round(busy[part] / busy[0], 3),
            "resident GB": round(end.resident / 1e9, 3),
            "growth MB": round((end.resident - ends[1].resident) / 1e6, 1),
        }
        for part, (_, end) in enumerate(pairs)
    ]
