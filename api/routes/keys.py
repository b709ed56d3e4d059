"""Routes of API keys and of the audit log, for administrators."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from api.access import AuditDep, require
from api.convert import build_audit_event, build_key
from api.errors import document_errors
from api.services import ServicesDep
from kb.access import Role
from kb.errors import CallerError, KeyNotFoundError, LastAdminKeyError
from kb.schemas import AuditOut, KeyIn, KeysOut, NewKeyOut, RotateKeyIn

router = APIRouter(prefix="/v1", tags=["Access"], dependencies=[require(Role.ADMIN)])

_EXPORT_BATCH = 500
_NO_STORE = "no-store"


@router.get("/keys", summary="List API keys", responses=document_errors())
def list_keys(services: ServicesDep) -> KeysOut:
    """All keys without their secrets, ended ones too, oldest first."""
    now = services.knowledge.clock()
    return KeysOut(keys=[build_key(key, now=now) for key in services.knowledge.keys.list_keys()])


@router.post(
    "/keys",
    status_code=201,
    summary="Create an API key",
    responses=document_errors(CallerError, LastAdminKeyError),
)
def create_key(body: KeyIn, services: ServicesDep, audit: AuditDep, response: Response) -> NewKeyOut:
    """A new key with its secret, which is shown this once and stored as a hash.

    The first key must be an administrator's for all collections; from then on every request needs one.
    """
    knowledge = services.knowledge
    key, secret = knowledge.keys.create(
        body.name, body.role, collections=body.collections, expires_at=body.expires_at
    )
    audit.record("key.create", target=key.id, name=key.name, role=key.role)
    response.headers["Cache-Control"] = _NO_STORE
    return NewKeyOut(key=build_key(key, now=knowledge.clock()), secret=secret)


@router.post(
    "/keys/{key_id}/rotate",
    status_code=201,
    summary="Replace an API key",
    responses=document_errors(CallerError, KeyNotFoundError),
)
def rotate_key(
    key_id: str, body: RotateKeyIn, services: ServicesDep, audit: AuditDep, response: Response
) -> NewKeyOut:
    """A new key with the same rights; the old one ends after `grace_s` seconds."""
    knowledge = services.knowledge
    key, secret = knowledge.keys.rotate(key_id, grace=timedelta(seconds=body.grace_s))
    audit.record("key.rotate", target=key_id, name=key.name, new=key.id)
    response.headers["Cache-Control"] = _NO_STORE
    return NewKeyOut(key=build_key(key, now=knowledge.clock()), secret=secret)


@router.delete(
    "/keys/{key_id}",
    status_code=204,
    summary="Revoke an API key",
    responses=document_errors(KeyNotFoundError, LastAdminKeyError),
)
def revoke_key(key_id: str, services: ServicesDep, audit: AuditDep) -> Response:
    """Ends a key within two seconds; it stays in the list."""
    key = services.knowledge.keys.revoke(key_id)
    audit.record("key.revoke", target=key.id, name=key.name)
    return Response(status_code=204)


@router.get("/audit", summary="Read the audit log", responses=document_errors())
def list_audit(
    services: ServicesDep,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="`next_after` of the page before.")] = 0,
    limit: Annotated[int, Query(ge=1, le=500, description="Most events in one answer.")] = 100,
) -> AuditOut:
    """Who did what to which collection, document or key, when and from where; oldest first."""
    events = services.knowledge.audit.list_events(after=after, limit=limit + 1)
    return AuditOut(
        events=[build_audit_event(event) for event in events[:limit]],
        next_after=events[limit - 1].sequence if len(events) > limit else None,
    )


@router.get(
    "/audit/export",
    summary="Export the audit log",
    response_class=Response,
    responses={
        **document_errors(),
        200: {"description": "One event a line, as JSON.", "content": {"application/x-ndjson": {}}},
    },
)
def export_audit(services: ServicesDep) -> Response:
    """The whole log as JSON lines."""

    def read() -> Iterator[str]:
        after = 0
        while events := services.knowledge.audit.list_events(after=after, limit=_EXPORT_BATCH):
            yield "".join(f"{build_audit_event(event).model_dump_json()}\n" for event in events)
            after = events[-1].sequence

    return StreamingResponse(read(), media_type="application/x-ndjson", headers={"Cache-Control": _NO_STORE})
