"""Dify's External Knowledge API: a collection is a knowledge base.

Dify takes any answer but 200 for an empty one, so failures are logged and counted here as everywhere. When
it registers the service it sends a request without a body, and takes 403 and 404 for a wrong address.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from pydantic import ValidationError

from api.access import CallerDep
from api.errors import DIFY_PREFIX, describe_validation, document_dify_errors
from api.services import Services, ServicesDep
from kb.access import Caller
from kb.errors import CallerError
from kb.metadata_conditions import Condition, Value, meets
from kb.schemas import DifyRecordOut, DifyRetrievalIn, DifyRetrievalOut
from kb.types import Collection, Document, Passage

router = APIRouter(prefix=DIFY_PREFIX, tags=["Dify"])

_FILTERED_TOP_K = 50
_SCHEMA = {
    "requestBody": {
        "content": {"application/json": {"schema": DifyRetrievalIn.model_json_schema()}},
        "description": "Without a body the list of records is empty.",
    }
}


@router.post(
    "/retrieval",
    summary="Find passages for Dify",
    responses=document_dify_errors(),
    openapi_extra=_SCHEMA,
)
async def retrieve(request: Request, services: ServicesDep, caller: CallerDep) -> DifyRetrievalOut:
    """Passages of the collection that `knowledge_id` names, best first, with scores from 0 to 1.

    `top_k` and `score_threshold` may be null. Conditions on metadata look at the document (`document_name`,
    `document_id`, `title`, `media_type`, `created_at`, `updated_at`) and the passage (`page`, `language`).
    """
    raw = await request.body()
    if not raw.strip():
        return DifyRetrievalOut(records=[])
    try:
        body = DifyRetrievalIn.model_validate(json.loads(raw))
    except ValidationError as error:
        raise CallerError(
            describe_validation(error.errors()),
            next_step="Compare the request with the description in /docs.",
        ) from None
    except ValueError:
        raise CallerError("the body is not JSON", next_step="Send JSON.") from None
    if not body.query.strip() or not body.knowledge_id:
        return DifyRetrievalOut(records=[])
    return await run_sync(_retrieve, body, services, caller)


def _retrieve(body: DifyRetrievalIn, services: Services, caller: Caller) -> DifyRetrievalOut:
    caller.require_collection(body.knowledge_id)
    knowledge = services.knowledge
    collection = knowledge.catalog.get_collection(body.knowledge_id)
    wanted = body.retrieval_setting
    top_k = wanted.top_k or services.top_k
    filters = body.metadata_condition
    conditions = [
        Condition(item.name, item.comparison_operator, item.value)
        for item in (filters.conditions if filters else None) or ()
    ]
    retrieval = knowledge.retriever.retrieve(
        collection, body.query, top_k=max(top_k, _FILTERED_TOP_K) if conditions else top_k
    )
    logic = (filters.logical_operator if filters else None) or "and"
    records = []
    for passage, metadata in _describe(retrieval.passages, collection, services):
        score = min(max(passage.score, 0.0), 1.0)
        if score >= (wanted.score_threshold or 0.0) and meets(metadata, conditions, logic=logic):
            records.append(
                DifyRecordOut(
                    content=passage.chunk.text,
                    score=score,
                    title=passage.document_name,
                    metadata=_complete(metadata, passage),
                )
            )
    return DifyRetrievalOut(records=records[:top_k])


def _describe(
    passages: Sequence[Passage], collection: Collection, services: Services
) -> list[tuple[Passage, dict[str, Value]]]:
    """Return each passage with what conditions may ask of it."""
    documents: dict[str, Document] = {}
    described = []
    for passage in passages:
        document_id = passage.chunk.document_id
        if document_id not in documents:
            documents[document_id] = services.knowledge.catalog.get_document(collection.id, document_id)
        document = documents[document_id]
        metadata: dict[str, Value] = {
            "document_id": document.id,
            "document_name": document.name,
            "title": document.title,
            "media_type": document.media_type,
            "created_at": document.created_at.isoformat(),
            "updated_at": document.updated_at.isoformat(),
            "page": passage.chunk.spans[0].page_number,
            "language": passage.chunk.language,
        }
        described.append((passage, metadata))
    return described


def _complete(metadata: Mapping[str, Value], passage: Passage) -> dict[str, Any]:
    chunk = passage.chunk
    return {
        **metadata,
        "doc_id": chunk.document_id,
        "page_end": chunk.spans[-1].page_number,
        "chunk_id": chunk.id,
        "heading_path": list(chunk.heading_path),
        "score_detail": dict(passage.scores),
    }
