"""The application on fakes, for the tests of the API."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import structlog
from fastapi import FastAPI

from api.app import create_app
from kb.adapters.memory_access import MemoryAccessStore
from kb.adapters.memory_passwords import MemoryPasswords
from kb.errors import QuestionTooLongError
from kb.explaining import Explainer
from kb.faults import FaultFinder
from kb.keyring import KeyRing
from kb.knowledge import KnowledgeBase
from kb.library import Library
from kb.ports import Vectors
from kb.presets import DEFAULT_PRESET, PresetName
from kb.receipts import ReceiptBook
from kb.retrieval import ANY, IndexName, PassageRetriever, Retrieval, Trace
from kb.types import (
    Answer,
    AnswerDelta,
    AnswerEvent,
    AnswerFinished,
    Chunk,
    Citation,
    Collection,
    IndexParts,
    Message,
    Passage,
    Refusal,
    RefusalReason,
    Sampling,
    Scope,
    Span,
)
from tests.unit.fakes import (
    Clock,
    FakeCatalog,
    FakeFiles,
    FakeGenerator,
    FakeLexical,
    FakeQueue,
    FakeVectors,
)

LOCAL = ("127.0.0.1", 50000)
"""Address of a client on the service's own machine."""

PASSAGE = Passage(
    chunk=Chunk(
        id="d1-g1-00000",
        document_id="d1",
        generation=1,
        index=0,
        text="E-0132 油温过高 停机并检查冷却器",
        spans=(Span(3, 10, 40),),
        heading_path=("维护", "故障代码"),
        records=({"代码": "E-0132"},),
    ),
    document_name="压机手册.pdf",
    score=0.9,
    rank=0,
    scores={"dense": 0.8, "exact": 1.0},
)
CITATION = Citation(
    number=1,
    document_id="d1",
    document_name="压机手册.pdf",
    page_number=3,
    quote="停机并检查冷却器",
    char_start=20,
    char_end=28,
    chunk_id="d1-g1-00000",
    heading_path=("维护",),
)


class FakeEmbedder:
    """Unit vectors of two numbers."""

    fingerprint = "fake"
    dimension = 2
    max_tokens = 100

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.used = threading.Event()

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return np.tile(np.array([1, 0], dtype=np.float32), (len(texts), 1))

    def embed_query(self, text: str) -> Vectors:
        self.used.set()
        if self.failure is not None:
            raise self.failure
        return np.array([1, 0], dtype=np.float32)


class FakeRetriever:
    """Always finds the same passage, or what `instead` finds."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int]] = []
        self.scope = ANY
        self.instead: PassageRetriever | None = None

    def retrieve(self, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY) -> Retrieval:
        self.asked.append((collection.name, query, top_k))
        self.scope = scope
        if self.instead is not None:
            return self.instead.retrieve(collection, query, top_k=top_k, scope=scope)
        return Retrieval(passages=(PASSAGE,), evidence=0.75)

    def rank_by(
        self, index: IndexName, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY
    ) -> tuple[Passage, ...]:
        self.asked.append((f"{index} {collection.name}", query, top_k))
        self.scope = scope
        return (PASSAGE,)

    def trace(self, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY) -> Trace:
        return Trace(self.retrieve(collection, query, top_k=top_k, scope=scope))


@dataclass
class Asked:
    """How the answerer was called."""

    collection: str
    question: str
    history: tuple[Message, ...]
    system: str
    top_k: int | None
    sampling: Sampling | None
    preset: PresetName = DEFAULT_PRESET
    think: bool = False
    scope: Scope = ANY


class FakeAnswerer:
    """Answers with `pieces`; `before` and `between` run before the first and before later events."""

    def __init__(self) -> None:
        self.pieces = ["停机并", "检查冷却器。", "[1]"]
        self.asked: list[Asked] = []
        self.before: Callable[[], None] = _nothing
        self.between: Callable[[], None] = _nothing
        self.closed = threading.Event()
        self.refuses = False
        self.finish_reason = "stop"

    def stream(
        self,
        collection: Collection,
        question: str,
        *,
        history: Sequence[Message] = (),
        system: str = "",
        top_k: int | None = None,
        sampling: Sampling | None = None,
        preset: PresetName = DEFAULT_PRESET,
        think: bool = False,
        scope: Scope = ANY,
    ) -> Iterator[AnswerEvent]:
        self.asked.append(
            Asked(collection.name, question, tuple(history), system, top_k, sampling, preset, think, scope)
        )
        if question == "too long":
            raise QuestionTooLongError(tokens=9000, limit_tokens=1600)
        try:
            self.before()
            for piece in self.pieces:
                yield AnswerDelta(piece)
                self.between()
            yield AnswerFinished(self.build(question))
        except GeneratorExit:
            self.closed.set()
            raise

    def answer(
        self,
        collection: Collection,
        question: str,
        *,
        history: Sequence[Message] = (),
        system: str = "",
        top_k: int | None = None,
        sampling: Sampling | None = None,
        preset: PresetName = DEFAULT_PRESET,
        think: bool = False,
        scope: Scope = ANY,
    ) -> Answer:
        return self.build(question)

    def build(self, question: str) -> Answer:
        return Answer(
            id="a1",
            question=question,
            text="".join(self.pieces),
            mode="refused" if self.refuses else "generated",
            language="zh",
            citations=() if self.refuses else (CITATION,),
            passages=() if self.refuses else (PASSAGE,),
            refusal=Refusal(RefusalReason.BELOW_THRESHOLD, (PASSAGE,)) if self.refuses else None,
            notices=("a notice",),
            model="fake-generator",
            finish_reason=self.finish_reason,
            prompt_tokens=120,
            completion_tokens=9,
        )


def _nothing() -> None:
    return None


@dataclass
class Service:
    """All fakes, and the application on top of them."""

    catalog: FakeCatalog = field(default_factory=FakeCatalog)
    files: FakeFiles = field(default_factory=FakeFiles)
    queue: FakeQueue = field(default_factory=FakeQueue)
    vectors: FakeVectors = field(default_factory=FakeVectors)
    lexical: FakeLexical = field(default_factory=FakeLexical)
    passwords: MemoryPasswords = field(default_factory=MemoryPasswords)
    embedder: FakeEmbedder = field(default_factory=FakeEmbedder)
    retriever: FakeRetriever = field(default_factory=FakeRetriever)
    answerer: FakeAnswerer = field(default_factory=FakeAnswerer)
    generator: FakeGenerator = field(default_factory=FakeGenerator)
    parts: IndexParts = field(default_factory=lambda: IndexParts("fake", "", "1-100"))
    clock: Clock = field(default_factory=Clock)
    access: MemoryAccessStore = field(default_factory=MemoryAccessStore)
    max_upload_bytes: int = 3_000_000
    receipts_enabled: bool = True

    @property
    def receipts(self) -> ReceiptBook:
        return ReceiptBook(self.catalog, enabled=self.receipts_enabled, keep_days=30, clock=self.clock)

    def build_knowledge(self, *, api_key: str | None = None) -> KnowledgeBase:
        library = Library(
            catalog=self.catalog,
            files=self.files,
            queue=self.queue,
            vectors=self.vectors,
            lexical=self.lexical,
            passwords=self.passwords,
            max_upload_bytes=self.max_upload_bytes,
            clock=self.clock,
        )
        return KnowledgeBase(
            catalog=self.catalog,
            files=self.files,
            vectors=self.vectors,
            lexical=self.lexical,
            queue=self.queue,
            embedder=self.embedder,
            retriever=self.retriever,
            answerer=self.answerer,
            faults=FaultFinder(
                retriever=self.retriever,
                embedder=self.embedder,
                lexical=self.lexical,
                catalog=self.catalog,
            ),
            explainer=Explainer(
                retriever=self.retriever,
                catalog=self.catalog,
                list_read=lambda _question, found: found.passages,
            ),
            library=library,
            generator=self.generator,
            keys=KeyRing(self.access, clock=self.clock, static_key=api_key),
            audit=self.access,
            clock=self.clock,
            get_index_parts=lambda: self.parts,
            receipts=self.receipts,
        )

    def build_app(
        self,
        *,
        api_key: str | None = None,
        heartbeat_s: float = 10.0,
        first_event_patience_s: float = 5.0,
    ) -> FastAPI:
        return create_app(
            self.build_knowledge(api_key=api_key),
            heartbeat_s=heartbeat_s,
            first_event_patience_s=first_event_patience_s,
        )


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Let the routes log nothing."""
    structlog.configure(
        processors=[structlog.processors.KeyValueRenderer()], logger_factory=structlog.ReturnLoggerFactory()
    )
    yield
    structlog.reset_defaults()
