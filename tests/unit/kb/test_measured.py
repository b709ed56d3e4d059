from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from kb.errors import VectorStoreUnavailableError
from kb.measured import MeasuredGenerator, MeasuredRetriever
from kb.metrics import Metrics
from kb.retrieval import ANY, IndexName, Retrieval, Trace
from kb.types import (
    Collection,
    GenerationDelta,
    GenerationEnd,
    GenerationEvent,
    GenerationRequest,
    Passage,
    Scope,
)
from tests.unit.fakes import FakeCatalog, FakeGenerator

REQUEST = GenerationRequest(messages=(), question="x", passages=(), language="en")
COLLECTION = Collection("c1", "default", datetime(2026, 1, 1, tzinfo=UTC))


class Retriever:
    def __init__(self) -> None:
        self.down = False

    def retrieve(self, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY) -> Retrieval:
        if self.down:
            raise VectorStoreUnavailableError("down")
        return Retrieval(passages=(), evidence=0.5)

    def rank_by(
        self, index: IndexName, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY
    ) -> tuple[Passage, ...]:
        raise VectorStoreUnavailableError(f"{index} is down")

    def trace(self, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY) -> Trace:
        return Trace(self.retrieve(collection, query, top_k=top_k, scope=scope))


def test_a_measured_generator_gives_the_same_events_and_its_time() -> None:
    metrics = Metrics()
    generator = MeasuredGenerator(FakeGenerator(), metrics=metrics)

    events = list(generator.stream(REQUEST))

    assert events == [GenerationDelta("one"), GenerationDelta("two"), GenerationEnd("stop", 5, 2)]
    assert b"kb_generation_seconds_count 1.0" in metrics.render()
    assert (generator.name, generator.mode) == ("fake-generator", "generated")
    assert generator.get_context_limit() == 2048
    assert generator.ping() == "fake generator"
    generator.close()


def test_closing_a_measured_stream_closes_the_model() -> None:
    closed: list[bool] = []

    class Closable(FakeGenerator):
        def stream(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
            try:
                yield GenerationDelta("one")
                yield GenerationDelta("two")
            finally:
                closed.append(True)

        def close(self) -> None:
            closed.append(False)

    generator = MeasuredGenerator(Closable(), metrics=Metrics())
    events = generator.stream(REQUEST)
    next(events)

    events.close()  # type: ignore[attr-defined]  # a generator function's iterator
    generator.close()

    assert closed == [True, False]


def test_a_measured_retriever_times_what_it_found_but_not_what_failed() -> None:
    metrics = Metrics()
    inner = Retriever()
    retriever = MeasuredRetriever(inner, metrics=metrics)

    assert retriever.retrieve(COLLECTION, "x", top_k=3).evidence == 0.5
    inner.down = True
    with pytest.raises(VectorStoreUnavailableError):
        retriever.retrieve(COLLECTION, "x", top_k=3)

    assert b"kb_retrieval_seconds_count 1.0" in metrics.render()


def test_states_are_counted_over_all_pages_of_the_catalog() -> None:
    from kb.ports import StoredFile

    catalog = FakeCatalog()
    now = datetime(2026, 1, 1, tzinfo=UTC)
    collection = catalog.create_collection("default", now=now)
    for number in range(1001):
        stored = StoredFile(f"{number:064x}", 1)
        catalog.register_document(collection.id, name=f"{number}", stored=stored, media_type="", now=now)
    metrics = Metrics()
    metrics.watch_catalog(catalog)

    text = metrics.render()

    assert b'kb_documents{state="queued"} 1001.0' in text
    assert b'kb_jobs{state="queued"} 1001.0' in text


def test_two_metrics_in_one_process_do_not_disturb_each_other() -> None:
    first, second = Metrics(), Metrics()

    first.count_left_answer()

    assert b"kb_answers_left_total 1.0" in first.render()
    assert b"kb_answers_left_total 0.0" in second.render()
