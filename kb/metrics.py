"""Metrics for Prometheus: made by constructing `Metrics`, never at import."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kb.errors import BackendError
from kb.ports import Catalog
from kb.types import Answer, DocumentState, GenerationEvent, JobState

_FAST_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SLOW_S: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300)
_CATALOG_AGE_S: Final = 15.0


class Metrics:
    """Counters and histograms of one process, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self._requests = Counter(
            "kb_http_requests", "Requests answered.", ("method", "route", "status"), registry=registry
        )
        self._request_seconds = Histogram(
            "kb_http_request_seconds",
            "Time from the request line to the last byte of the answer.",
            ("method", "route"),
            buckets=_SLOW_S,
            registry=registry,
        )
        self._in_progress = Gauge(
            "kb_http_requests_in_progress", "Requests being answered.", registry=registry
        )
        self._answers = Counter(
            "kb_answers", "Answers by mode and reason of refusal.", ("mode", "reason"), registry=registry
        )
        self._answers_left = Counter(
            "kb_answers_left", "Answers whose client left before the end.", registry=registry
        )
        self._answer_seconds = Histogram(
            "kb_answer_seconds", "Time for a whole answer.", ("mode",), buckets=_SLOW_S, registry=registry
        )
        self._first_text_seconds = Histogram(
            "kb_answer_first_text_seconds",
            "Time until the first piece of an answer: retrieval and reading of the prompt.",
            buckets=_SLOW_S,
            registry=registry,
        )
        self._retrieval_seconds = Histogram(
            "kb_retrieval_seconds", "Time to find passages.", buckets=_FAST_S, registry=registry
        )
        self._generation_seconds = Histogram(
            "kb_generation_seconds",
            "Time the generator took from the prompt to the last token.",
            buckets=_SLOW_S,
            registry=registry,
        )
        self._tokens = Counter("kb_tokens", "Tokens of the generator.", ("kind",), registry=registry)

    # -- requests
    def start_request(self) -> None:
        """Count a request as in progress."""
        self._in_progress.inc()

    def finish_request(self, *, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request; `route` is the template, so that ids don't become labels."""
        self._in_progress.dec()
        self._requests.labels(method, route, str(status)).inc()
        self._request_seconds.labels(method, route).observe(seconds)

    # -- answers
    def count_answer(self, answer: Answer, *, seconds: float) -> None:
        """Count a finished answer, its time and its tokens."""
        reason = answer.refusal.reason.value if answer.refusal else ""
        self._answers.labels(answer.mode, reason).inc()
        self._answer_seconds.labels(answer.mode).observe(seconds)
        self._tokens.labels("prompt").inc(answer.prompt_tokens)
        self._tokens.labels("completion").inc(answer.completion_tokens)

    def count_left_answer(self) -> None:
        """Count an answer that nobody waited for."""
        self._answers_left.inc()

    def observe_first_text(self, seconds: float) -> None:
        """Record how long the first piece of an answer took."""
        self._first_text_seconds.observe(seconds)

    @contextmanager
    def time_retrieval(self) -> Iterator[None]:
        """Record how long the block takes as the time of one retrieval, unless it raises."""
        started = time.perf_counter()
        yield
        self._retrieval_seconds.observe(time.perf_counter() - started)

    def time_generation(self, events: Iterator[GenerationEvent]) -> Iterator[GenerationEvent]:
        """Pass the events of a generator on and record how long they took in all."""
        started = time.perf_counter()
        try:
            yield from events
        finally:
            self._generation_seconds.observe(time.perf_counter() - started)

    # -- exposition
    def watch_catalog(self, catalog: Catalog) -> None:
        """Show documents and jobs by state from now on, read when they are scraped.

        The states are read at most every 15 s. A second call for the same process is an error.
        """
        self._registry.register(_CatalogCollector(catalog))

    def render(self) -> bytes:
        """Return everything in the text format of Prometheus (version 0.0.4)."""
        return generate_latest(self._registry)


class _CatalogCollector(Collector):
    """Counts what the catalog holds; keeps the last count for some seconds."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._counted_at = float("-inf")
        self._families: list[Metric] = []

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not read the catalog."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the counts, or only `kb_catalog_up 0` while the catalog does not answer."""
        with self._lock:
            if time.monotonic() - self._counted_at > _CATALOG_AGE_S:
                self._families = self._count()
                self._counted_at = time.monotonic()
            return list(self._families)

    def _count(self) -> list[Metric]:
        up = GaugeMetricFamily("kb_catalog_up", "1 if the catalog answers.")
        documents = GaugeMetricFamily("kb_documents", "Documents by state.", labels=("state",))
        jobs = GaugeMetricFamily("kb_jobs", "Jobs by state.", labels=("state",))
        try:
            document_counts, job_counts = self._catalog.count_documents(), self._catalog.count_jobs()
        except BackendError:
            up.add_metric((), 0)
            return [up]
        for state in DocumentState:
            documents.add_metric((state.value,), document_counts.get(state, 0))
        for job_state in JobState:
            jobs.add_metric((job_state.value,), job_counts.get(job_state, 0))
        up.add_metric((), 1)
        return [up, documents, jobs]
