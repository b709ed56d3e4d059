"""Routes of receipts: what an answer was made from, and what would change today."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool

from api.access import AuditDep, CallerDep, require
from api.convert import build_receipt, build_replay
from api.errors import document_errors
from api.services import Services, ServicesDep
from api.streaming import AnswerStream
from kb.access import Caller, Role
from kb.errors import AnswerNotFoundError, CallerError, CollectionNotFoundError, IndexMismatchError
from kb.presets import DEFAULT_PRESET, PRESET_NAMES
from kb.receipts import compare
from kb.schemas import PurgedOut, ReceiptOut, ReplayOut
from kb.types import AnswerEvent, Receipt

router = APIRouter(prefix="/v1/answers", tags=["Answers"])


@router.get("/{answer_id}", summary="Show a receipt", responses=document_errors(AnswerNotFoundError))
def get_receipt(answer_id: str, services: ServicesDep, caller: CallerDep) -> ReceiptOut:
    """Question, rewritten query, chunks with their hashes, prompt hash, model, sampling and timings."""
    return build_receipt(_find(answer_id, services, caller))


@router.post(
    "/{answer_id}/replay",
    summary="Ask the same again",
    responses=document_errors(AnswerNotFoundError, CollectionNotFoundError, IndexMismatchError),
)
async def replay(answer_id: str, request: Request, services: ServicesDep, caller: CallerDep) -> ReplayOut:
    """Both receipts and what differs: retrieval, prompt, model, answer. The new answer has its own id."""
    knowledge = services.knowledge
    if not knowledge.receipts.enabled:
        raise CallerError(
            "receipts are switched off, so nothing can be compared", next_step="Set KB_RECEIPTS=true."
        )
    found: list[Receipt] = []

    def start() -> Iterator[AnswerEvent]:
        receipt = _find(answer_id, services, caller)
        found.append(receipt)
        return knowledge.answerer.stream(
            knowledge.catalog.get_collection_by_id(receipt.collection_id),
            receipt.question,
            history=receipt.history,
            system=receipt.system,
            top_k=receipt.top_k,
            sampling=receipt.sampling,
            preset=next((name for name in PRESET_NAMES if name == receipt.preset), DEFAULT_PRESET),
            think=receipt.think,
        )

    stream = AnswerStream(start, limiter=services.answer_limiter, metrics=knowledge.metrics)
    answer = await stream.finish(request)
    after = await run_in_threadpool(knowledge.receipts.get, answer.id)
    return build_replay(compare(found[0], after))


@router.delete(
    "/{answer_id}",
    summary="Delete a receipt",
    status_code=204,
    dependencies=[require(Role.EDITOR)],
    responses=document_errors(AnswerNotFoundError),
)
def delete_receipt(answer_id: str, services: ServicesDep, caller: CallerDep, audit: AuditDep) -> None:
    """The receipt is gone; the answer can't be replayed."""
    receipt = _find(answer_id, services, caller)
    services.knowledge.receipts.delete(answer_id)
    audit.record("receipt.delete", collection=receipt.collection, target=answer_id)


@router.delete(
    "",
    summary="Delete old receipts",
    dependencies=[require(Role.ADMIN)],
    responses=document_errors(),
)
def purge_receipts(
    services: ServicesDep,
    audit: AuditDep,
    older_than_days: Annotated[float, Query(ge=0, le=36500, description="0 deletes all of them.")],
) -> PurgedOut:
    """How many receipts were deleted."""
    age = timedelta(days=older_than_days)
    deleted = services.knowledge.receipts.purge(older_than=age)
    audit.record("receipt.purge", older_than_days=f"{older_than_days:g}", deleted=str(deleted))
    return PurgedOut(deleted=deleted)


def _find(answer_id: str, services: Services, caller: Caller) -> Receipt:
    """Return a receipt from the caller's collections; one from others' is as unknown as one that is not there."""
    receipt = services.knowledge.receipts.get(answer_id)
    if not caller.may_use(receipt.collection):
        raise AnswerNotFoundError(answer_id)
    return receipt
