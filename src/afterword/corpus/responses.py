"""From queries to the LLM's own responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

from afterword.backbone.backbone import Backbone
from afterword.backbone.batch import by_length, token_batch
from afterword.backbone.frames import Frame, make_frame
from afterword.backbone.generate import Generated, Sampling, generate
from afterword.backbone.settings import Style
from afterword.corpus.manifest import Manifest, open_or_create
from afterword.corpus.records import Query, Response
from afterword.corpus.shards import JsonlShards
from afterword.corpus.thinking import without_thinking
from afterword.errors import MismatchError, SettingError

KIND = "responses"
Progress = Callable[[int], None]


@dataclass(frozen=True)
class ResponseSettings:
    """How the LLM answers."""

    style: Style = "auto"
    """What stands around a query: chat template, answered examples (base models), or raw; auto decides."""
    system: str | None = None
    """System prompt."""
    max_query_tokens: int = 512
    """Longer queries are cut."""
    max_new_tokens: int = 512
    """Longer responses are cut, and marked as cut."""
    temperature: float = 0.0
    """0 takes the likeliest token; above, tokens are drawn with a seed for each query."""
    top_p: float = 1.0
    """Share of probability whose tokens may be drawn."""
    respond_batch: int = 64
    """Queries answered at once."""
    respond_seed: int = 0
    """Seed for drawn responses."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be used."""
        for name in ("max_query_tokens", "max_new_tokens", "respond_batch"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if not 0 < self.top_p <= 1 or self.temperature < 0:
            raise SettingError(f"top_p {self.top_p} must be in (0, 1], temperature {self.temperature} not negative")


@dataclass(frozen=True)
class ResponseCounts:
    """What a run of `generate_responses` did.

    Attributes:
        kept: Responses that were there already.
        written: Responses written now.
        cut: Of those, ended by the length limit.
        empty: Of those, without text; training skips them.
        unfinished_thinking: Of the empty ones, a think block that the limit cut.
    """

    kept: int = 0
    written: int = 0
    cut: int = 0
    empty: int = 0
    unfinished_thinking: int = 0


def generate_responses(
    backbone: Backbone,
    queries: Sequence[Query],
    out: str | Path,
    settings: ResponseSettings | None = None,
    progress: Progress | None = None,
) -> ResponseCounts:
    """Let the frozen LLM answer every query and keep the answers in shards.

    Killed at any moment and called again, it goes on by id, and the shards end up as if nothing had happened: batches
    are planned from all queries, and a batch that was cut short is answered again as a whole.

    Args:
        backbone: The LLM that answers.
        queries: What is asked.
        out: Folder of the artefact.
        settings: How it answers.
        progress: Called with the number of queries done, a batch at a time.

    Raises:
        MismatchError: The folder was made with other settings or another backbone, or holds another text for an id.
    """
    settings = settings or ResponseSettings()
    manifest = Manifest(
        KIND,
        {**_deciding(settings), "dtype": str(backbone.dtype).removeprefix("torch.")},
        {"backbone": backbone.fingerprint},
    )
    manifest.made_with["backbone"] = backbone.name
    open_or_create(out, manifest)
    with JsonlShards(out) as shards:
        shards.recover()
        known = _known(shards, queries)
        counts = ResponseCounts(kept=len(known))
        if progress:
            progress(len(known))
        for group in _answered(backbone, queries, known, settings):
            new = [(response, unfinished) for response, unfinished in group if response.id not in known]
            shards.append([response.to_json() for response, _ in new])
            counts = _counted(counts, new)
            if progress:
                progress(len(new))
    return counts


def open_responses(folder: str | Path, backbone: Backbone | None = None) -> list[Response]:
    """Read a responses artefact, in the order of its shards.

    Args:
        folder: The artefact.
        backbone: Accept only what this LLM wrote.

    Raises:
        MissingPartError: There is no such artefact.
        MismatchError: Another backbone wrote it.
        CorruptError: A record is damaged.
    """
    manifest = Manifest.read(folder, KIND)
    writer, name = manifest.sources["backbone"], manifest.made_with.get("backbone", "another backbone")
    if backbone is not None and writer != backbone.fingerprint:
        raise MismatchError(
            f"{folder} was written by {name} ({writer}), but the backbone given is {backbone.name} "
            f"({backbone.fingerprint}): a model learns from the responses of its own backbone"
        )
    return [Response.from_json(line) for line in JsonlShards(folder).lines()]


def _deciding(settings: ResponseSettings) -> dict[str, object]:
    values = asdict(settings)
    if settings.temperature == 0:
        del values["respond_seed"], values["top_p"]
    return values


def _known(shards: JsonlShards, queries: Sequence[Query]) -> set[str]:
    asked = {query.id: query.text for query in queries}
    known = set()
    for line in shards.lines():
        response = Response.from_json(line)
        if response.id in asked:
            if asked[response.id] != response.query:
                raise MismatchError(
                    f"{shards.folder}: query {response.id} was answered as {response.query[:60]!r}, now it reads "
                    f"{asked[response.id][:60]!r}: choose another --out"
                )
            known.add(response.id)
    return known


def _answered(
    backbone: Backbone, queries: Sequence[Query], known: set[str], settings: ResponseSettings
) -> Iterator[list[tuple[Response, bool]]]:
    frame = make_frame(backbone.text, settings.style, settings.system)
    bodies = backbone.text.plain([frame.glue + query.text for query in queries])
    rows = [body[: settings.max_query_tokens] + list(frame.after) for body in bodies]
    sampling = Sampling(settings.max_new_tokens, settings.temperature, settings.top_p)
    stops = {*backbone.end_ids, *(backbone.line_ids if frame.one_line else ())}
    for group in by_length([len(row) for row in rows], settings.respond_batch):
        if all(queries[i].id in known for i in group):
            continue
        batch = token_batch([rows[i] for i in group], backbone.device, frame.before)
        seeds = [_seed(settings.respond_seed, queries[i].id) for i in group] if settings.temperature else None
        answers = generate(backbone, batch, sampling, stops, seeds)
        yield [_response(backbone, frame, queries[i], answer) for i, answer in zip(group, answers, strict=True)]


def _response(backbone: Backbone, frame: Frame, query: Query, answer: Generated) -> tuple[Response, bool]:
    opening = backbone.text.decode(frame.after, keep_control=True).rpartition("</think>")[2]
    opening = "<think>" if "<think>" in opening else ""  # some templates open the block themselves
    text, unfinished = without_thinking(opening + backbone.text.decode(answer.ids, keep_control=not frame.one_line))
    text = backbone.text.without_control(text).strip()
    return Response(query.id, query.text, text, len(answer.ids), cut=not answer.ended), unfinished


def _seed(seed: int, identity: str) -> int:
    return int.from_bytes(blake2b(f"{seed}:{identity}".encode(), digest_size=7).digest(), "little")


def _counted(counts: ResponseCounts, new: Sequence[tuple[Response, bool]]) -> ResponseCounts:
    return ResponseCounts(
        kept=counts.kept,
        written=counts.written + len(new),
        cut=counts.cut + sum(response.cut for response, _ in new),
        empty=counts.empty + sum(not response.text for response, _ in new),
        unfinished_thinking=counts.unfinished_thinking + sum(unfinished for _, unfinished in new),
    )
