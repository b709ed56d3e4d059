"""Explains what became of a document or page for a question: at which stage it was lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kb.errors import DocumentNotFoundError
from kb.ports import Catalog
from kb.retrieval import ANY, IndexName, IndexRetriever, Retrieval, Trace
from kb.types import Chunk, Collection, Document, Passage, Scope

_LOOKED_THROUGH = 500
"""How far down the list of one index alone a chunk is looked for."""
_DOCUMENTS_A_PAGE = 500
_INDEXES: tuple[IndexName, ...] = ("dense", "lexical")


class Fate(StrEnum):
    """The stage that lost a passage, in their order, or `used`."""

    NOT_SEARCHABLE = "not_searchable"
    NO_TEXT = "no_text"
    CANDIDATES = "candidates"
    FUSION = "fusion"
    RERANKING = "reranking"
    REPEATED = "repeated"
    GATE = "gate"
    LANGUAGE = "language"
    BUDGET = "budget"
    USED = "used"


_ORDER = list(Fate)


@dataclass(frozen=True, slots=True)
class ExplainedChunk:
    """One expected chunk; ranks count from 0 and are None where a stage did not have it.

    `alone` are its ranks in each index alone, far beyond the candidates. `scores` are what the stages said.
    `repeated_by` is the better chunk that says the same.
    """

    chunk: Chunk
    fate: Fate
    alone: Mapping[str, int | None]
    ranks: Mapping[str, int | None]
    scores: Mapping[str, float]
    repeated_by: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What became of the expected document or page: the fate of its best chunk, and each chunk, best first."""

    document: Document
    fate: Fate
    retrieval: Retrieval
    chunks: tuple[ExplainedChunk, ...] = ()


@dataclass(frozen=True, slots=True)
class _Stages:
    """Ranks of all chunks by stage, and the ids that were left at the end."""

    trace: Trace
    alone: Mapping[str, Mapping[str, int]]
    read: frozenset[str]
    kept: Mapping[str, int] = field(default_factory=dict)


class Explainer:
    """Question and expected place to an explanation. May be used from several threads at once."""

    def __init__(
        self,
        *,
        retriever: IndexRetriever,
        catalog: Catalog,
        list_read: Callable[[str, Retrieval], tuple[Passage, ...]],
    ) -> None:
        """Take the parts; `list_read` returns the passages that the model would read, none for a refusal."""
        self._retriever = retriever
        self._catalog = catalog
        self._list_read = list_read

    def explain(
        self,
        collection: Collection,
        question: str,
        *,
        document: str,
        page: int | None,
        top_k: int,
        scope: Scope = ANY,
    ) -> Explanation:
        """Return what became of a document, named or by id, or of one page of it.

        Raises `DocumentNotFoundError` when the collection has no such document.
        """
        expected = self._find_document(collection, document)
        trace = self._retriever.trace(collection, question, top_k=top_k, scope=scope)
        found = trace.result
        if not expected.state.is_searchable:
            return Explanation(expected, Fate.NOT_SEARCHABLE, found)
        chunks = [
            chunk
            for chunk in self._catalog.list_chunks(expected.id)
            if page is None or chunk.page_start <= page <= chunk.page_end
        ]
        if not chunks:
            return Explanation(expected, Fate.NO_TEXT, found)
        read = self._list_read(question, found)
        stages = _Stages(
            trace,
            alone={
                index: {
                    passage.chunk.id: passage.rank
                    for passage in self._retriever.rank_by(
                        index, collection, question, top_k=_LOOKED_THROUGH, scope=scope
                    )
                }
                for index in _INDEXES
            },
            read=frozenset(passage.chunk.id for passage in read),
            kept={passage.chunk.id: passage.rank for passage in found.passages},
        )
        explained = [_explain_chunk(chunk, stages, top_k=top_k, is_refused=not read) for chunk in chunks]
        explained.sort(key=lambda item: (-_ORDER.index(item.fate), _get_best_rank(item), item.chunk.index))
        return Explanation(expected, explained[0].fate, found, tuple(explained))

    def _find_document(self, collection: Collection, name: str) -> Document:
        after = None
        while documents := self._catalog.list_documents(collection.id, limit=_DOCUMENTS_A_PAGE, after=after):
            for document in documents:
                if name in (document.id, document.name):
                    return document
            after = documents[-1].id
        raise DocumentNotFoundError(name)


def _explain_chunk(chunk: Chunk, stages: _Stages, *, top_k: int, is_refused: bool) -> ExplainedChunk:
    trace = stages.trace
    ranks: dict[str, int | None] = {
        "fused": _find(trace.order, chunk.id),
        "ranked": _find(trace.ranked, chunk.id),
        "result": stages.kept.get(chunk.id),
    }
    return ExplainedChunk(
        chunk=chunk,
        fate=_find_fate(chunk.id, stages, fused=ranks["fused"], top_k=top_k, is_refused=is_refused),
        alone={index: ranking.get(chunk.id) for index, ranking in stages.alone.items()},
        ranks=ranks,
        scores={name: by_id[chunk.id] for name, by_id in trace.scores.items() if chunk.id in by_id},
        repeated_by=trace.repeats.get(chunk.id),
    )


def _find_fate(chunk_id: str, stages: _Stages, *, fused: int | None, top_k: int, is_refused: bool) -> Fate:
    if chunk_id in stages.read:
        return Fate.USED
    if chunk_id in stages.kept:
        if is_refused:
            return Fate.GATE
        return Fate.BUDGET if _shares_language(chunk_id, stages) else Fate.LANGUAGE
    if chunk_id in stages.trace.repeats:
        return Fate.REPEATED
    if chunk_id not in stages.trace.found:
        return Fate.CANDIDATES
    return Fate.RERANKING if fused is not None and fused < top_k else Fate.FUSION


def _shares_language(chunk_id: str, stages: _Stages) -> bool:
    """Return whether what the model reads is in a language of the chunk."""
    languages = stages.trace.found[chunk_id].languages
    return any(
        not languages.isdisjoint(stages.trace.found[item].languages)
        for item in stages.read
        if item in stages.trace.found
    )


def _find(order: Sequence[str], chunk_id: str) -> int | None:
    return order.index(chunk_id) if chunk_id in order else None


def _get_best_rank(item: ExplainedChunk) -> int:
    known = [rank for rank in (*item.ranks.values(), *item.alone.values()) if rank is not None]
    return min(known, default=_LOOKED_THROUGH)
