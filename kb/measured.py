"""Parts that record how long they take and are otherwise the parts they wrap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from kb.metrics import Metrics
from kb.ports import Generator
from kb.retrieval import ANY, IndexName, Trace
from kb.types import Collection, GenerationEvent, GenerationRequest, Passage, Scope

_Found_co = TypeVar("_Found_co", covariant=True)


class _Retriever(Protocol[_Found_co]):
    def retrieve(
        self, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY
    ) -> _Found_co: ...

    def rank_by(
        self, index: IndexName, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY
    ) -> tuple[Passage, ...]: ...

    def trace(self, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY) -> Trace: ...


class MeasuredGenerator:
    """A generator whose streams are timed from the prompt to the last token."""

    def __init__(self, generator: Generator, *, metrics: Metrics) -> None:
        self._generator = generator
        self._metrics = metrics

    @property
    def name(self) -> str:
        """The model's name as shown in answers."""
        return self._generator.name

    @property
    def mode(self) -> str:
        """How the wrapped generator makes text."""
        return self._generator.mode

    def get_context_limit(self) -> int:
        """Return the longest prompt plus answer in tokens."""
        return self._generator.get_context_limit()

    def stream(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        """Yield the events of the wrapped generator; closing this iterator closes that one."""
        return self._metrics.time_generation(self._generator.stream(request))

    def ping(self) -> str:
        """Return a line about the runtime, or raise."""
        return self._generator.ping()

    def close(self) -> None:
        """Close the wrapped generator if it can be closed."""
        close = getattr(self._generator, "close", None)
        if callable(close):
            close()


class MeasuredRetriever(Generic[_Found_co]):
    """A retriever whose calls are timed; it finds what the wrapped one finds."""

    def __init__(self, retriever: _Retriever[_Found_co], *, metrics: Metrics) -> None:
        self._retriever = retriever
        self._metrics = metrics

    def retrieve(self, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY) -> _Found_co:
        """Return what the wrapped retriever finds."""
        with self._metrics.time_retrieval():
            return self._retriever.retrieve(collection, query, top_k=top_k, scope=scope)

    def rank_by(
        self, index: IndexName, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY
    ) -> tuple[Passage, ...]:
        """Return what the wrapped retriever finds with one index; not timed, as it is a yardstick."""
        return self._retriever.rank_by(index, collection, query, top_k=top_k, scope=scope)

    def trace(self, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY) -> Trace:
        """Return what the wrapped retriever did; not timed, as nobody waits for an answer."""
        return self._retriever.trace(collection, query, top_k=top_k, scope=scope)
