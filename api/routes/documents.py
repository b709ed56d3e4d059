"""Routes of the documents of a collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query, Request, Response

from api.access import Audit, AuditDep, require
from api.convert import build_document, build_document_detail, build_page, build_problem
from api.errors import MalformedUploadError, document_errors
from api.services import Services, ServicesDep
from api.uploads import IncomingFile, iter_uploads
from kb.access import Role
from kb.errors import (
    CollectionNotFoundError,
    DocumentNotFoundError,
    EmptyFileError,
    KbError,
    PageNotFoundError,
    UploadTooLargeError,
)
from kb.schemas import (
    DocumentDetailOut,
    DocumentOut,
    DocumentsOut,
    PageOut,
    TagsIn,
    UploadOut,
    UploadResultOut,
)
from kb.types import DocumentState, Registration

router = APIRouter(prefix="/v1/collections/{collection}/documents", tags=["Documents"])

_FORM: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {
                        "password": {
                            "type": "string",
                            "format": "password",
                            "description": "Opens the files of this form; must come before them. Kept in "
                            "memory until they are ingested, never stored or logged.",
                        },
                        "files": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                            "description": "One or more files; `file` is accepted as well.",
                        },
                    },
                }
            }
        },
    }
}


@router.post(
    "",
    status_code=202,
    summary="Upload documents",
    dependencies=[require(Role.EDITOR)],
    responses=document_errors(
        CollectionNotFoundError, MalformedUploadError, UploadTooLargeError, EmptyFileError
    ),
    openapi_extra=_FORM,
)
async def upload_documents(
    collection: str,
    request: Request,
    services: ServicesDep,
    audit: AuditDep,
    *,
    force: Annotated[bool, Query(description="Ingest again what is already there.")] = False,
    tag: Annotated[
        list[str] | None, Query(max_length=50, description="Tags of the documents; may be repeated.")
    ] = None,
) -> UploadOut:
    """Answers as soon as the bytes are safe; follow the job of each document for the rest.

    Each file has a result of its own. If none was accepted, the status is that of the first error.
    """
    library = services.knowledge.library
    await run_sync(services.knowledge.catalog.get_collection, collection, limiter=services.upload_limiter)
    results: list[UploadResultOut] = []
    first_error: KbError | None = None
    files = iter_uploads(
        request,
        max_file_bytes=library.max_upload_bytes,
        spool_dir=services.spool_dir,
        limiter=services.upload_limiter,
    )
    async for file in files:
        try:
            results.append(
                await _accept(
                    file, collection=collection, force=force, tags=tag or [], services=services, audit=audit
                )
            )
        except KbError as error:
            first_error = first_error or error
            problem = build_problem(error.to_problem())
            results.append(UploadResultOut(name=file.name, document=None, duplicate=False, error=problem))
    if not results:
        raise MalformedUploadError("the form holds no file")
    if first_error is not None and not any(result.document for result in results):
        raise first_error
    return UploadOut(results=results)


async def _accept(
    file: IncomingFile,
    *,
    collection: str,
    force: bool,
    tags: Sequence[str],
    services: Services,
    audit: Audit,
) -> UploadResultOut:
    library = services.knowledge.library
    if file.too_large:
        raise UploadTooLargeError(file.name, limit_bytes=library.max_upload_bytes)

    def upload() -> Registration:
        done = library.upload(
            collection,
            name=file.name,
            stream=file.stream,
            force=force,
            password=file.password,
            tags=tags,
        )
        document = done.document
        audit.record(
            "document.upload",
            collection=collection,
            target=document.id,
            name=document.name,
            sha256=document.sha256,
        )
        return done

    registration = await run_sync(upload, limiter=services.upload_limiter)
    return UploadResultOut(
        name=file.name,
        document=build_document(registration.document, collection=collection),
        duplicate=registration.duplicate,
        error=None,
    )


@router.get("", summary="List documents", responses=document_errors(CollectionNotFoundError))
def list_documents(
    collection: str,
    services: ServicesDep,
    *,
    state: Annotated[DocumentState | None, Query(description="Only documents in this state.")] = None,
    parent_id: Annotated[
        str | None, Query(max_length=200, description="Only what is attached to this document.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500, description="Most documents in one answer.")] = 100,
    after: Annotated[
        str | None, Query(max_length=200, description="`next_after` of the page before.")
    ] = None,
) -> DocumentsOut:
    """Documents by name, with the state of each."""
    catalog = services.knowledge.catalog
    found = catalog.get_collection(collection)
    # one more than asked for tells whether there is a next page
    documents = catalog.list_documents(
        found.id, state=state, parent_id=parent_id, limit=limit + 1, after=after
    )
    return DocumentsOut(
        documents=[build_document(document, collection=found.name) for document in documents[:limit]],
        next_after=documents[limit - 1].id if len(documents) > limit else None,
    )


@router.get(
    "/{document_id}",
    summary="Show a document",
    responses=document_errors(CollectionNotFoundError, DocumentNotFoundError),
)
def get_document(collection: str, document_id: str, services: ServicesDep) -> DocumentDetailOut:
    """The document's state and how well each of its pages could be read."""
    catalog = services.knowledge.catalog
    found = catalog.get_collection(collection)
    document = catalog.get_document(found.id, document_id)
    return build_document_detail(document, catalog.get_pages(document.id), collection=found.name)


@router.put(
    "/{document_id}/tags",
    summary="Tag a document",
    dependencies=[require(Role.EDITOR)],
    responses=document_errors(CollectionNotFoundError, DocumentNotFoundError),
)
def set_tags(
    collection: str, document_id: str, body: TagsIn, services: ServicesDep, audit: AuditDep
) -> DocumentOut:
    """Gives the document these tags in place of former ones; searches can be limited to tags."""
    catalog = services.knowledge.catalog
    found = catalog.get_collection(collection)
    tagged = catalog.set_tags(found.id, document_id, body.tags)
    audit.record("document.tag", collection=found.name, target=document_id, tags=", ".join(tagged.tags))
    return build_document(tagged, collection=found.name)


@router.delete(
    "/{document_id}",
    status_code=204,
    summary="Delete a document",
    dependencies=[require(Role.EDITOR)],
    responses=document_errors(CollectionNotFoundError, DocumentNotFoundError),
)
def delete_document(
    collection: str,
    document_id: str,
    services: ServicesDep,
    audit: AuditDep,
    keep_attached: Annotated[
        bool, Query(description="Keep it as an attachment if another document has it attached.")
    ] = False,
) -> Response:
    """Removes the document and its attachments from every answer at once, and their bytes and index entries.

    An attachment that another document has as well stays.
    """
    services.knowledge.library.delete_document(collection, document_id, keep_attached=keep_attached)
    audit.record("document.delete", collection=collection, target=document_id)
    return Response(status_code=204)


@router.get(
    "/{document_id}/pages/{page_number}",
    summary="Show the stored text of a page",
    responses=document_errors(CollectionNotFoundError, DocumentNotFoundError, PageNotFoundError),
)
def get_page(
    collection: str,
    document_id: str,
    page_number: Annotated[int, Path(ge=1, le=1_000_000, description="Counts from 1.")],
    services: ServicesDep,
) -> PageOut:
    """The text that citations point into, with its lines, tables and quality."""
    catalog = services.knowledge.catalog
    document = catalog.get_document(catalog.get_collection(collection).id, document_id)
    pages = catalog.get_pages(document.id, first=page_number, last=page_number)
    if not pages:
        raise PageNotFoundError(document_id, page_number)
    return build_page(pages[0], document_id=document.id)
