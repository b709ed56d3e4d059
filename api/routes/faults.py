"""Routes of fault look-up: a code or a symptom to rows and sections as fields, without the generator."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from api.convert import build_fault
from api.errors import document_errors
from api.services import ServicesDep
from kb.errors import CallerError, CodeUnknownError, CollectionNotFoundError, IndexMismatchError
from kb.schemas import FaultLookUpOut, FaultSearchIn, FaultSearchOut

router = APIRouter(prefix="/v1/collections/{collection}/faults", tags=["Faults"])

_MOST_CODE_CHARS = 64


@router.post(
    "/search",
    summary="Find faults by a symptom",
    responses=document_errors(CallerError, CollectionNotFoundError, IndexMismatchError),
)
def search_faults(collection: str, body: FaultSearchIn, services: ServicesDep) -> FaultSearchOut:
    """Rows of fault tables and sections on faults that fit a symptom in words, Chinese or English.

    Nothing that fits is an empty list. No model writes anything: it works while the generator is down.
    """
    if not body.symptom.strip():
        raise CallerError("the symptom is empty", next_step="Send a symptom in words.")
    knowledge = services.knowledge
    found = knowledge.catalog.get_collection(collection)
    result = knowledge.faults.search(found, body.symptom, top_k=body.top_k or services.top_k)
    return FaultSearchOut(
        symptom=body.symptom,
        collection=found.name,
        faults=[build_fault(fault) for fault in result.faults],
        evidence=result.evidence,
        unknown_codes=list(result.unknown_codes),
    )


@router.get(
    # a code may hold a slash
    "/{code:path}",
    summary="Look a fault code up",
    responses=document_errors(CallerError, CodeUnknownError, CollectionNotFoundError),
)
def look_up_fault(
    collection: str,
    code: Annotated[
        str,
        Path(
            max_length=_MOST_CODE_CHARS,
            description="The code under any case, width and separators: `E-0471`, `e0471`, `Ｅ ０４７１`.",
            examples=["E-0471", "F30001", "0x0F4A", "AL.24"],
        ),
    ],
    services: ServicesDep,
    limit: Annotated[int, Query(ge=1, le=200, description="Most rows and sections in the answer.")] = 20,
) -> FaultLookUpOut:
    """Every row headed by the code, then sections, then mere mentions, with document, page and box.

    A code that no document has is a 404 with `code_unknown`; `suggestions` are the nearest codes that
    exist, look-alikes (O and 0, l, I and 1) first. A neighbour's row is never returned.
    """
    knowledge = services.knowledge
    found = knowledge.catalog.get_collection(collection)
    result = knowledge.faults.look_up(found, code, limit=limit)
    return FaultLookUpOut(
        code=code,
        collection=found.name,
        total=result.total,
        faults=[build_fault(fault) for fault in result.faults],
    )
