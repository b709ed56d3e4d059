"""KnowledgeBase: the wired parts of the service, as the entry points receive them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import Protocol

import structlog

from kb.errors import BackendError, KbError
from kb.explaining import Explainer
from kb.faults import FaultFinder
from kb.keyring import KeyRing
from kb.library import Library
from kb.logs import describe_exception
from kb.metrics import Metrics
from kb.ports import (
    AuditLog,
    Catalog,
    Embedder,
    Generator,
    IngestQueue,
    LexicalIndex,
    SourceFiles,
    VectorStore,
)
from kb.presets import DEFAULT_PRESET, PresetName
from kb.receipts import ReceiptBook
from kb.retrieval import ANY, IndexRetriever
from kb.types import Answer, AnswerEvent, Collection, DependencyStatus, IndexParts, Message, Sampling, Scope

CHECK_TIMEOUT_S = 5.0
_WARM_UP_TEXT = "warm up"

_log = structlog.get_logger("kb.knowledge")


class QuestionAnswerer(Protocol):
    """Question to cited answer."""

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
        """Yield deltas, then one `AnswerFinished`; closing the iterator stops the generator.

        A `CallerError` is raised before the first event.
        """
        ...

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
        """Return what the last event of `stream` holds."""
        ...


class WarmUp:
    """Whether the embedder is loaded, or why not."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._failure: KbError | None = None

    def run(self, embedder: Embedder) -> None:
        """Load the model by embedding one query; raises what the embedder raises."""
        try:
            embedder.embed_query(_WARM_UP_TEXT)
        except Exception as error:
            self._failure = (
                error
                if isinstance(error, KbError)
                else KbError(f"the embedder does not work: {type(error).__name__}")
            )
            raise
        self._failure = None
        self._done.set()

    def check(self) -> str:
        """Return a line if the embedder is loaded, or raise."""
        if self._done.is_set():
            return "loaded"
        if self._failure is not None:
            raise self._failure
        raise KbError("the model is being loaded")


@dataclass(frozen=True, slots=True)
class KnowledgeBase:
    """All parts by the roles they play; built once per process."""

    catalog: Catalog
    files: SourceFiles
    vectors: VectorStore
    lexical: LexicalIndex
    queue: IngestQueue
    embedder: Embedder
    retriever: IndexRetriever
    answerer: QuestionAnswerer
    faults: FaultFinder
    explainer: Explainer
    library: Library
    generator: Generator
    keys: KeyRing
    audit: AuditLog
    clock: Callable[[], datetime]
    get_index_parts: Callable[[], IndexParts]
    receipts: ReceiptBook
    metrics: Metrics = field(default_factory=Metrics)
    warm_up_state: WarmUp = field(default_factory=WarmUp)

    def warm_up(self) -> None:
        """Load the embedder, so that the first question need not wait for it.

        Raises what the embedder raises; may be called again.
        """
        self.warm_up_state.run(self.embedder)

    def check_dependencies(self, *, timeout_s: float = CHECK_TIMEOUT_S) -> list[DependencyStatus]:
        """Ask every dependency at once and return one status each, always in the same order.

        One that does not answer within `timeout_s` counts as down. Without a generator answers
        are quotes, without a live worker uploads wait: neither is required.
        """
        checks: list[tuple[str, bool, Callable[[], str]]] = [
            ("catalog", True, self.catalog.ping),
            ("vectors", True, self.vectors.ping),
            ("lexical", True, self.lexical.ping),
            ("queue", True, self.queue.ping),
            ("embedder", True, self.warm_up_state.check),
            ("generator", False, self.generator.ping),
            ("workers", False, self._check_workers),
            ("calibration", False, self._check_calibrations),
        ]
        deadline = time.monotonic() + timeout_s
        pending = [(name, required, _start_check(check)) for name, required, check in checks]
        return [_collect(name, required, outcome, deadline) for name, required, outcome in pending]

    def close(self) -> None:
        """Close every part that holds a connection, a file or a model; one failure stops no other."""
        parts = (
            self.queue,
            self.generator,
            self.embedder,
            self.lexical,
            self.vectors,
            self.audit,
            self.catalog,
        )
        for part in parts:
            close = getattr(part, "close", None)
            if not callable(close):
                continue
            try:
                close()
            except Exception as error:
                _log.warning("close_failed", part=type(part).__name__, exception=describe_exception(error))

    def _check_calibrations(self) -> str:
        """Return how many collections have a threshold of their own; raises if one is stale."""
        try:
            known = self.catalog.list_collections()
        except BackendError:
            return "not known"  # the catalog's own line says why
        calibrated = [collection for collection in known if collection.calibration is not None]
        parts = self.get_index_parts() if calibrated else None
        stale = [item.name for item in calibrated if item.calibration and item.calibration.parts != parts]
        if stale:
            names = ", ".join(map(repr, stale))
            raise KbError(f"measured with another embedder, reranker or chunker: {names}; run `kb calibrate`")
        return f"{len(calibrated)} collections"

    def _check_workers(self) -> str:
        count = self.queue.get_live_workers()
        if not count:
            raise KbError("no live worker: uploads stay queued until one is started")
        return f"{count} live"


def _start_check(check: Callable[[], str]) -> SimpleQueue[tuple[bool, str]]:
    """Run the check in a thread that can't keep the process alive; the queue gets its outcome."""
    outcome: SimpleQueue[tuple[bool, str]] = SimpleQueue()

    def run() -> None:
        try:
            outcome.put((True, check()))
        except KbError as error:
            outcome.put((False, error.message))
        except Exception as error:
            _log.exception("dependency_check_failed")
            outcome.put((False, type(error).__name__))

    threading.Thread(target=run, name="dependency-check", daemon=True).start()
    return outcome


def _collect(
    name: str, required: bool, outcome: SimpleQueue[tuple[bool, str]], deadline: float
) -> DependencyStatus:
    try:
        ok, detail = outcome.get(timeout=max(deadline - time.monotonic(), 0.0))
    except Empty:
        ok, detail = False, "no answer in time"
    return DependencyStatus(name=name, ok=ok, detail=detail, required=required)
