"""Routes of searches, and of why one did not find what it should."""

from __future__ import annotations

from fastapi import APIRouter

from api.access import CallerDep
from api.convert import build_explanation, build_passage, read_scope
from api.errors import document_errors
from api.services import ServicesDep
from kb.errors import (
    CollectionNotFoundError,
    DocumentNotFoundError,
    IndexMismatchError,
    NothingInScopeError,
    QuestionTooLongError,
)
from kb.schemas import ExplainIn, ExplainOut, SearchIn, SearchOut

router = APIRouter(prefix="/v1", tags=["Answers"])


@router.post(
    "/search",
    summary="Find passages",
    responses=document_errors(CollectionNotFoundError, NothingInScopeError, IndexMismatchError),
)
def search(body: SearchIn, services: ServicesDep, caller: CallerDep) -> SearchOut:
    """Passages, best first, with the scores of each stage; no answer is written."""
    caller.require_collection(body.collection)
    knowledge = services.knowledge
    collection = knowledge.catalog.get_collection(body.collection)
    top_k = body.top_k or services.top_k
    scope = read_scope(body.scope)
    if body.mode != "hybrid":
        passages = knowledge.retriever.rank_by(body.mode, collection, body.query, top_k=top_k, scope=scope)
        return SearchOut(
            query=body.query,
            collection=collection.name,
            passages=[build_passage(passage) for passage in passages],
            evidence=None,
        )
    retrieval = knowledge.retriever.retrieve(collection, body.query, top_k=top_k, scope=scope)
    return SearchOut(
        query=body.query,
        collection=collection.name,
        passages=[build_passage(passage) for passage in retrieval.passages],
        evidence=retrieval.evidence,
        threshold=retrieval.threshold,
        unknown_codes=list(retrieval.unknown_codes),
        calibration_stale=retrieval.is_calibration_stale,
    )


@router.post(
    "/collections/{collection}/explain",
    summary="Explain what became of a page",
    responses=document_errors(
        CollectionNotFoundError,
        DocumentNotFoundError,
        NothingInScopeError,
        QuestionTooLongError,
        IndexMismatchError,
    ),
)
def explain(collection: str, body: ExplainIn, services: ServicesDep) -> ExplainOut:
    """For a question and the document or page that should answer it: the ranks and scores of every stage.

    `fate` names the stage that lost it. No answer is written.
    """
    knowledge = services.knowledge
    found = knowledge.catalog.get_collection(collection)
    explanation = knowledge.explainer.explain(
        found,
        body.question,
        document=body.document,
        page=body.page,
        top_k=body.top_k or services.top_k,
        scope=read_scope(body.scope),
    )
    return build_explanation(explanation, question=body.question, collection=found.name)
