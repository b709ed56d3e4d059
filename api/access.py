"""What the caller of a route may do, and the trace of what was done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request

from api.errors import get_request_id
from api.services import ServicesDep
from kb.access import AuditEvent, Caller, Role


def get_caller(request: Request) -> Caller:
    """Return who sent this request."""
    caller = request.scope["state"]["caller"]
    assert isinstance(caller, Caller)
    return caller


CallerDep = Annotated[Caller, Depends(get_caller)]


@dataclass(frozen=True, slots=True)
class Guard:
    """A dependency that lets callers with a role pass, and only to the collection in the path that is theirs.

    It does not look whether there is such a collection: a caller learns nothing of others' names.
    """

    role: Role

    def __call__(self, request: Request, caller: CallerDep) -> None:
        """Raise `AccessDeniedError` for other callers."""
        caller.require(self.role)
        collection = request.path_params.get("collection")
        if collection is not None:
            caller.require_collection(collection)


def require(role: Role) -> Any:
    """Return the `dependencies` entry of a route or a router for this role."""
    return Depends(Guard(role))


class Audit:
    """Writes what the caller of this request did to the audit log."""

    def __init__(self, request: Request, services: ServicesDep, caller: CallerDep) -> None:
        self._request = request
        self._services = services
        self._caller = caller

    def record(self, action: str, *, collection: str = "", target: str = "", **detail: str) -> None:
        """Append one event; call it once the thing is done. Blocks for a write to the database."""
        client = self._request.client
        self._services.knowledge.audit.record(
            AuditEvent(
                at=self._services.knowledge.clock(),
                caller_id=self._caller.id,
                caller_name=self._caller.name,
                action=action,
                collection=collection,
                target=target,
                address=client.host if client else "",
                request_id=get_request_id(self._request),
                detail=detail,
            )
        )


AuditDep = Annotated[Audit, Depends(Audit)]
