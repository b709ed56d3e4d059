"""Route of searches."""

from __future__ import annotations

from fastapi import APIRouter

from api.access import CallerDep
from api.convert import build_passage
from api.errors import document_errors
from api.services import ServicesDep
from kb.errors import CollectionNotFoundError, IndexMismatchError
from kb.schemas import SearchIn, SearchOut

router = APIRouter(prefix="/v1", tags=["Answers"])


@router.post(
    "/search",
    summary="Find passages",
    responses=document_errors(CollectionNotFoundError, IndexMismatchError),
)
def search(body: SearchIn, services: ServicesDep, caller: CallerDep) -> SearchOut:
    """Passages, best first, with the scores of each stage; no answer is written."""
    caller.require_collection(body.collection)
    knowledge = services.knowledge
    collection = knowledge.catalog.get_collection(body.collection)
    top_k = body.top_k or services.top_k
    if body.mode != "hybrid":
        passages = knowledge.retriever.rank_by(body.mode, collection, body.query, top_k=top_k)
        return SearchOut(
            query=body.query,
            collection=collection.name,
            passages=[build_passage(passage) for passage in passages],
            evidence=None,
        )
    retrieval = knowledge.retriever.retrieve(collection, body.query, top_k=top_k)
    return SearchOut(
        query=body.query,
        collection=collection.name,
        passages=[build_passage(passage) for passage in retrieval.passages],
        evidence=retrieval.evidence,
    )
