"""Statements of the catalog on documents; each function runs in its caller's transaction."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from kb.adapters.sql_catalog_attachments import drop_former_attachments, link, rename_document, replace_upload
from kb.adapters.sql_catalog_collections import get_collection_by_id, take_generation
from kb.adapters.sql_catalog_garbage import add_garbage, document_key, keep_orphaned_file
from kb.adapters.sql_catalog_jobs import insert_job, queued_columns, supersede_job
from kb.adapters.sql_catalog_rows import Row, clean_text, read_document
from kb.adapters.sql_tables import attachments, documents
from kb.errors import DocumentNotFoundError
from kb.filenames import name_attachment
from kb.ports import Attachment, AttachmentUse, StoredFile
from kb.types import Document, DocumentState, Job, Registration

_GIVEN_UP = (DocumentState.FAILED, DocumentState.CANCELLED)


def register_document(
    c: sa.Connection,
    collection_id: str,
    *,
    name: str,
    stored: StoredFile,
    media_type: str,
    now: datetime,
    force: bool,
) -> Registration:
    """Insert the document, or find it and give it another generation if it needs one."""
    get_collection_by_id(c, collection_id)
    name = clean_text(name)
    keep_orphaned_file(c, stored.sha256)
    document_id = get_document_id(collection_id, stored.sha256)
    row = find_document_row(c, document_id)
    if row is None:
        job = insert_document(
            c, collection_id, name=name, stored=stored, media_type=media_type, parent_id=None, now=now
        )
        return Registration(document=_read(c, document_id), job=job, duplicate=False)
    given_up = row["state"] in _GIVEN_UP
    was_attachment = row["parent_id"] is not None
    if was_attachment:
        c.execute(sa.update(documents).where(documents.c.id == document_id).values(parent_id=None))
    is_renamed = row["name"] != name
    rename_document(c, document_id, name)
    if was_attachment:
        needs_job = not DocumentState(row["state"]).is_searchable
    elif is_renamed and not DocumentState(row["state"]).is_searchable:
        # A newer generation than that of whatever has the name until now: it is replaced by this one.
        needs_job = given_up or _has_namesake(c, row, name)
    else:
        needs_job = given_up or _is_about_to_be_replaced(c, row, name)
    if needs_job or force:
        job = requeue_document(c, row, now=now)
        return Registration(document=_read(c, document_id), job=job, duplicate=not given_up)
    if was_attachment or is_renamed:
        replace_namesakes(c, _get_row(c, document_id), generation=take_generation(c, collection_id))
    if was_attachment:
        drop_former_attachments(c, document_id, generation=row["visible_generation"])
    return Registration(document=_read(c, document_id), job=None, duplicate=True)


def insert_document(
    c: sa.Connection,
    collection_id: str,
    *,
    name: str,
    stored: StoredFile,
    media_type: str,
    parent_id: str | None,
    now: datetime,
) -> Job:
    """Insert a document that is not there yet, with its job."""
    job_id = f"job_{secrets.token_hex(8)}"
    document_id = get_document_id(collection_id, stored.sha256)
    generation = take_generation(c, collection_id)
    c.execute(
        sa.insert(documents).values(
            id=document_id,
            collection_id=collection_id,
            name=clean_text(name),
            created_at=now,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
            media_type=clean_text(media_type),
            title="",
            source_metadata={},
            page_count=0,
            chunk_count=0,
            parent_id=parent_id,
            **queued_columns(generation, job_id, now=now),
        )
    )
    return insert_job(
        c, job_id, collection_id=collection_id, document_id=document_id, generation=generation, now=now
    )


def requeue_document(c: sa.Connection, row: Row, *, now: datetime) -> Job:
    """Give the document another generation and a job in place of its present one."""
    job_id = f"job_{secrets.token_hex(8)}"
    columns = queued_columns(take_generation(c, row["collection_id"]), job_id, now=now)
    supersede_job(c, row["job_id"], now=now)
    c.execute(sa.update(documents).where(documents.c.id == row["id"]).values(columns))
    return insert_job(
        c,
        job_id,
        collection_id=row["collection_id"],
        document_id=row["id"],
        generation=columns["generation"],
        now=now,
    )


def find_document_row(c: sa.Connection, document_id: str) -> Row | None:
    """Select by id."""
    return (
        c.execute(sa.select(documents).where(documents.c.id == clean_text(document_id)))
        .mappings()
        .one_or_none()
    )


def get_document_row(c: sa.Connection, collection_id: str, document_id: str) -> Row:
    """Select by id within a collection."""
    row = find_document_row(c, document_id)
    if row is None or row["collection_id"] != collection_id:
        raise DocumentNotFoundError(document_id)
    return row


def list_documents(
    c: sa.Connection,
    collection_id: str,
    *,
    state: DocumentState | None,
    parent_id: str | None,
    limit: int,
    after: str | None,
) -> list[Document]:
    """Select one page by name, then id."""
    query = sa.select(documents).where(documents.c.collection_id == clean_text(collection_id))
    if parent_id is not None:
        attached = sa.select(attachments.c.child_id).where(attachments.c.parent_id == clean_text(parent_id))
        query = query.where(documents.c.id.in_(attached))
    if state is not None:
        query = query.where(documents.c.state == state)
    if after is not None:
        last = get_document_row(c, collection_id, after)
        query = query.where(sa.tuple_(documents.c.name, documents.c.id) > sa.tuple_(last["name"], last["id"]))
    rows = c.execute(query.order_by(documents.c.name, documents.c.id).limit(limit)).mappings()
    return [read_document(row) for row in rows]


def count_documents(c: sa.Connection) -> dict[DocumentState, int]:
    """Count by state."""
    rows = c.execute(sa.select(documents.c.state, sa.func.count()).group_by(documents.c.state))
    return {DocumentState(state): count for state, count in rows}


def replace_namesakes(c: sa.Connection, row: Row, *, generation: int) -> None:
    """Take away what was uploaded under the same name before `generation` of this upload.

    What was attached to it counts as formerly attached to this one.
    """
    if row["parent_id"] is not None:
        return
    namesakes = c.execute(
        sa.select(documents).where(
            documents.c.collection_id == row["collection_id"],
            documents.c.name == row["name"],
            documents.c.id != row["id"],
            documents.c.parent_id.is_(None),
        )
    ).mappings()
    for other in namesakes.all():
        visible = other["visible_generation"]
        if other["generation"] < generation:
            replace_upload(c, other, successor_id=row["id"])
        elif visible is not None and visible < generation:
            # Its old bytes came back after ours were registered: they follow when they are ready.
            add_garbage(c, other["collection_id"], document_key(other["id"], visible))
            c.execute(
                sa.update(documents)
                .where(documents.c.id == other["id"])
                .values(visible_generation=None, chunk_count=0)
            )


def attach(
    c: sa.Connection, parent: Row, *, generation: int, found: Sequence[Attachment], now: datetime
) -> None:
    """Register what is attached to a generation of a document.

    What is there already gets no job, unless an earlier generation of the parent was visible: then all
    that is there as an attachment only is ingested again, as the parent was.
    """
    is_again = parent["visible_generation"] is not None
    for attachment in found:
        sha256 = attachment.stored.sha256
        child_id = get_document_id(parent["collection_id"], sha256)
        keep_orphaned_file(c, sha256)
        row = find_document_row(c, child_id)
        if row is None:
            insert_document(
                c,
                parent["collection_id"],
                name=name_attachment(parent["name"], clean_text(attachment.name)),
                stored=attachment.stored,
                media_type="",
                parent_id=parent["id"],
                now=now,
            )
        elif is_again and row["parent_id"] is not None and DocumentState(row["state"]).is_terminal:
            requeue_document(c, row, now=now)
        link(c, parent["id"], child_id, generation=generation, name=attachment.name)


def measure_attachments(c: sa.Connection, collection_id: str, document_id: str) -> AttachmentUse:
    """Go up to the topmost document, then down level by level."""
    row = get_document_row(c, collection_id, document_id)
    above: list[str] = []
    while row["parent_id"] is not None and row["parent_id"] not in above:
        parent = find_document_row(c, row["parent_id"])
        if parent is None:
            break
        row = parent
        above.append(row["id"])
    sizes: dict[str, int] = {}
    level = {row["id"]} - {document_id}
    while level:
        below = c.execute(
            sa.select(documents.c.id, documents.c.size_bytes)
            .join(attachments, attachments.c.child_id == documents.c.id)
            .where(attachments.c.parent_id.in_(level))
        ).all()
        level = {item.id for item in below} - sizes.keys() - {document_id}
        sizes |= {item.id: item.size_bytes for item in below}
    return AttachmentUse(len(above), len(sizes), sum(sizes.values()))


def get_document_id(collection_id: str, sha256: str) -> str:
    """Return the id of these bytes in this collection."""
    return f"doc_{hashlib.sha256(f'{collection_id}:{sha256}'.encode()).hexdigest()[:24]}"


def _get_row(c: sa.Connection, document_id: str) -> Row:
    return c.execute(sa.select(documents).where(documents.c.id == document_id)).mappings().one()


def _read(c: sa.Connection, document_id: str) -> Document:
    return read_document(_get_row(c, document_id))


def _has_namesake(c: sa.Connection, row: Row, name: str) -> bool:
    """Return whether other bytes were uploaded under the name."""
    return bool(
        c.scalar(
            sa.select(
                sa.exists().where(
                    documents.c.collection_id == row["collection_id"],
                    documents.c.name == name,
                    documents.c.parent_id.is_(None),
                    documents.c.id != row["id"],
                )
            )
        )
    )


def _is_about_to_be_replaced(c: sa.Connection, row: Row, name: str) -> bool:
    """Return whether newer bytes of this name are on their way: then these are the newest again."""
    return name == row["name"] and bool(
        c.scalar(
            sa.select(
                sa.exists().where(
                    documents.c.collection_id == row["collection_id"],
                    documents.c.name == name,
                    documents.c.parent_id.is_(None),
                    documents.c.generation > row["generation"],
                    documents.c.state.not_in([state for state in DocumentState if state.is_terminal]),
                )
            )
        )
    )
