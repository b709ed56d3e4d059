"""Routes of collections."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.access import AuditDep, CallerDep, require
from api.convert import build_collection
from api.errors import document_errors
from api.services import ServicesDep
from kb.access import Role
from kb.errors import CollectionExistsError, CollectionNotFoundError, InvalidNameError
from kb.schemas import CollectionIn, CollectionOut, CollectionsOut

router = APIRouter(prefix="/v1/collections", tags=["Collections"])


@router.get("", summary="List the collections", responses=document_errors())
def list_collections(services: ServicesDep, caller: CallerDep) -> CollectionsOut:
    """The caller's collections by name, with their counts of documents and chunks."""
    found = services.knowledge.catalog.list_collections()
    return CollectionsOut(
        collections=[build_collection(collection) for collection in found if caller.may_use(collection.name)]
    )


@router.post(
    "",
    status_code=201,
    summary="Create a collection",
    dependencies=[require(Role.EDITOR)],
    responses=document_errors(CollectionExistsError, InvalidNameError),
)
def create_collection(
    body: CollectionIn, services: ServicesDep, caller: CallerDep, audit: AuditDep
) -> CollectionOut:
    """An empty collection. Names have 1 to 64 characters of any script, without slashes."""
    caller.require_collection(body.name)
    created = services.knowledge.library.create_collection(body.name)
    audit.record("collection.create", collection=created.name)
    return build_collection(created)


@router.get("/{collection}", summary="Show a collection", responses=document_errors(CollectionNotFoundError))
def get_collection(collection: str, services: ServicesDep) -> CollectionOut:
    """One collection with its counts."""
    return build_collection(services.knowledge.catalog.get_collection(collection))


@router.delete(
    "/{collection}",
    status_code=204,
    summary="Delete a collection",
    dependencies=[require(Role.EDITOR)],
    responses=document_errors(CollectionNotFoundError),
)
def delete_collection(collection: str, services: ServicesDep, audit: AuditDep) -> Response:
    """Removes the collection with all its documents; there is no way back."""
    services.knowledge.library.delete_collection(collection)
    audit.record("collection.delete", collection=collection)
    return Response(status_code=204)
