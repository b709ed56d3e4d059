from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kb.errors import DocumentNotFoundError
from kb.explaining import Explainer, Explanation, Fate
from kb.retrieval import Retrieval, Retriever
from kb.types import Document, DocumentState, Passage
from tests.unit.kb.stand_ins import COLLECTION, DenseSide, LexicalSide, Library, make_chunk

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEXTS = {
    "filter": "回油滤芯每 3 个月更换一次。",
    "again": "回油滤芯每 3 个月更换一次",
    "belt": "皮带每年更换一次。",
    "pump": "油泵每 3 个月检查一次。",
}


class Shelf(Library):
    """A library whose catalog knows documents, one for each chunk."""

    state = DocumentState.READY

    def list_documents(self, collection_id: str, *, limit: int, after: str | None) -> list[Document]:
        names = ["empty", *TEXTS]
        rest = names[names.index(after) + 1 :] if after else names
        return [
            Document(name, collection_id, f"{name}.pdf", "0", 1, 1, self.state, NOW, NOW) for name in rest[:1]
        ]

    def list_chunks_of(self, document_id: str) -> list[Any]:
        return [chunk for chunk, _ in self.chunks.values() if chunk.document_id == document_id]


class _Catalog:
    def __init__(self, shelf: Shelf) -> None:
        self.list_documents = shelf.list_documents
        self.list_chunks = shelf.list_chunks_of
        self.find_visible_chunks = shelf.find_visible_chunks


def _explain(
    question: str,
    document: str,
    *,
    page: int | None = None,
    top_k: int = 3,
    candidates: int = 10,
    read: int | None = None,
    state: DocumentState = DocumentState.READY,
) -> Explanation:
    shelf = Shelf(
        *(
            (make_chunk(text, chunk_id=name, document_id=name, page=4), f"{name}.pdf")
            for name, text in TEXTS.items()
        )
    )
    shelf.state = state
    retriever = Retriever(
        embedder=shelf,
        vectors=DenseSide(shelf),  # type: ignore[arg-type]
        lexical=LexicalSide(shelf),  # type: ignore[arg-type]
        catalog=_Catalog(shelf),  # type: ignore[arg-type]
        candidates=candidates,
    )

    def list_read(_question: str, found: Retrieval) -> tuple[Passage, ...]:
        return found.passages if read is None else found.passages[:read]

    explainer = Explainer(retriever=retriever, catalog=_Catalog(shelf), list_read=list_read)  # type: ignore[arg-type]
    return explainer.explain(COLLECTION, question, document=document, page=page, top_k=top_k)


def test_a_page_that_is_read_is_used_and_has_a_rank_at_each_stage() -> None:
    found = _explain("回油滤芯多久更换？", "filter.pdf", page=4)

    (item,) = found.chunks
    assert (found.fate, item.fate) == (Fate.USED, Fate.USED)
    assert item.alone == {"dense": 0, "lexical": 0}
    assert item.ranks == {"fused": 0, "ranked": 0, "result": 0}
    assert item.scores["fused"] > 0


def test_each_stage_can_lose_it() -> None:
    question = "回油滤芯多久更换？"

    assert _explain(question, "filter", state=DocumentState.FAILED).fate is Fate.NOT_SEARCHABLE
    assert _explain(question, "empty").fate is Fate.NO_TEXT
    assert _explain(question, "filter", page=5).fate is Fate.NO_TEXT
    assert _explain(question, "pump", candidates=2, top_k=1).fate is Fate.CANDIDATES
    assert _explain(question, "pump", top_k=1).fate is Fate.FUSION
    assert _explain(question, "again").fate is Fate.REPEATED
    assert _explain(question, "filter", read=0).fate is Fate.GATE
    assert _explain(question, "belt", read=1).fate is Fate.BUDGET


def test_the_better_chunk_that_says_the_same_is_named() -> None:
    (item,) = _explain("回油滤芯多久更换？", "again").chunks

    assert item.repeated_by == "filter"


def test_an_unknown_document_is_an_error() -> None:
    with pytest.raises(DocumentNotFoundError):
        _explain("回油滤芯", "mill.pdf")


def test_what_no_candidate_list_held_still_has_its_rank_in_each_index() -> None:
    (item,) = _explain("回油滤芯多久更换？", "pump", candidates=2, top_k=1).chunks

    assert item.alone["dense"] is not None
    assert item.ranks == {"fused": None, "ranked": None, "result": None}
    assert replace(item, fate=Fate.USED).scores == {}
