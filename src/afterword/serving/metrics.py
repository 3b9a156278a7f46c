"""What Prometheus is told: requests, latency, queue, batches, tokens. A registry for each app."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from afterword.serving.batching import Batch
from afterword.serving.served import Work

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384, 65536)


class Metrics:
    """The counters of one app.

    Args:
        places: Returns how many texts have a place now.

    Attributes:
        accepted: Requests that came in.
        answered: Those that were answered to the last byte; when the process has ended in order, all of them.
    """

    def __init__(self, places: Callable[[], int]) -> None:
        self.accepted = self.answered = 0
        self.registry = into = CollectorRegistry()
        ProcessCollector(registry=into)
        self.requests = Counter("afterword_requests", "Answered requests.", ["route", "status"], registry=into)
        self.seconds = Histogram(
            "afterword_request_seconds", "Time to an answer.", ["route"], buckets=_SECONDS, registry=into
        )
        self.gone = Counter("afterword_requests_gone", "Requests whose client left before the answer.", registry=into)
        self.queue = Gauge("afterword_queue_texts", "Texts that are accepted and not yet answered.", registry=into)
        self.queue.set_function(places)
        self.texts = Counter("afterword_texts", "Texts that the model has read.", ["task"], registry=into)
        self.tokens = Counter(
            "afterword_tokens", "Tokens of prompts and texts that it has read.", ["task"], registry=into
        )
        self.batch_texts = Histogram("afterword_batch_texts", "Texts in a batch.", buckets=_ITEMS, registry=into)
        self.batch_tokens = Histogram("afterword_batch_tokens", "Tokens in a batch.", buckets=_TOKENS, registry=into)
        self.batch_seconds = Histogram("afterword_batch_seconds", "Time of a batch.", buckets=_SECONDS, registry=into)

    def batch(self, batch: Batch[Work]) -> None:
        """Count a batch."""
        task = batch.work.task if batch.work else ""
        self.texts.labels(task).inc(batch.items)
        self.tokens.labels(task).inc(batch.tokens)
        self.batch_texts.observe(batch.items)
        self.batch_tokens.observe(batch.tokens)
        self.batch_seconds.observe(batch.seconds)

    def answer(self, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Return all of it in the form of Prometheus."""
        return generate_latest(self.registry)
