"""Statements of the catalog on documents; each function runs in its caller's transaction."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from kb.adapters.sql_catalog_collections import get_collection_by_id, take_generation
from kb.adapters.sql_catalog_garbage import (
    add_garbage,
    add_orphaned_file,
    document_key,
    keep_orphaned_file,
)
from kb.adapters.sql_catalog_jobs import insert_job, queued_columns, supersede_job
from kb.adapters.sql_catalog_rows import Row, clean_text, read_document
from kb.adapters.sql_tables import documents, jobs
from kb.errors import DocumentNotFoundError
from kb.ports import StoredFile
from kb.types import Document, DocumentState, JobState, Registration

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
    document_id = _document_id(collection_id, stored.sha256)
    row = find_document_row(c, document_id)
    given_up = row is not None and row["state"] in _GIVEN_UP
    if row is not None and not (given_up or force or _is_about_to_be_replaced(c, row, name)):
        return Registration(document=read_document(row), job=None, duplicate=True)

    job_id = f"job_{secrets.token_hex(8)}"
    columns = queued_columns(take_generation(c, collection_id), job_id, now=now)
    if row is None:
        new = {"id": document_id, "collection_id": collection_id, "name": name, "created_at": now}
        _insert_document(c, new | columns, stored=stored, media_type=media_type)
    else:
        supersede_job(c, row["job_id"], now=now)
        if given_up and row["visible_generation"] is None:
            columns["name"] = name
        c.execute(sa.update(documents).where(documents.c.id == document_id).values(columns))
    job = insert_job(
        c,
        job_id,
        collection_id=collection_id,
        document_id=document_id,
        generation=columns["generation"],
        now=now,
    )
    document = read_document(get_document_row(c, collection_id, document_id))
    return Registration(document=document, job=job, duplicate=row is not None and not given_up)


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
    c: sa.Connection, collection_id: str, *, state: DocumentState | None, limit: int, after: str | None
) -> list[Document]:
    """Select one page by name, then id."""
    query = sa.select(documents).where(documents.c.collection_id == clean_text(collection_id))
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


def remove_document(c: sa.Connection, row: Row) -> str | None:
    """Delete the document with its jobs, pages and chunks; returns its sha256 if nobody needs it."""
    collection_id, document_id = row["collection_id"], row["id"]
    for generation in {row["generation"], row["visible_generation"]} - {None}:
        add_garbage(c, collection_id, document_key(document_id, generation))
    in_work = c.execute(
        sa.select(jobs.c.generation, jobs.c.lease_until).where(
            jobs.c.document_id == document_id, jobs.c.state == JobState.RUNNING
        )
    ).all()
    for job in in_work:
        key = document_key(document_id, job.generation)
        add_garbage(c, collection_id, key, held_until=job.lease_until)
    c.execute(sa.delete(documents).where(documents.c.id == document_id))
    return row["sha256"] if add_orphaned_file(c, row["sha256"]) else None


def replace_namesakes(c: sa.Connection, row: Row, *, generation: int) -> None:
    """Take away what was registered under the same name before `generation` of this document."""
    namesakes = c.execute(
        sa.select(documents).where(
            documents.c.collection_id == row["collection_id"],
            documents.c.name == row["name"],
            documents.c.id != row["id"],
        )
    ).mappings()
    for other in namesakes.all():
        visible = other["visible_generation"]
        if other["generation"] < generation:
            remove_document(c, other)
        elif visible is not None and visible < generation:
            # Its old bytes came back after ours were registered: they follow when they are ready.
            add_garbage(c, other["collection_id"], document_key(other["id"], visible))
            c.execute(
                sa.update(documents)
                .where(documents.c.id == other["id"])
                .values(visible_generation=None, chunk_count=0)
            )


def _document_id(collection_id: str, sha256: str) -> str:
    return f"doc_{hashlib.sha256(f'{collection_id}:{sha256}'.encode()).hexdigest()[:24]}"


def _is_about_to_be_replaced(c: sa.Connection, row: Row, name: str) -> bool:
    """Return whether newer bytes of this name are on their way: then these are the newest again."""
    return name == row["name"] and bool(
        c.scalar(
            sa.select(
                sa.exists().where(
                    documents.c.collection_id == row["collection_id"],
                    documents.c.name == name,
                    documents.c.generation > row["generation"],
                    documents.c.state.not_in([state for state in DocumentState if state.is_terminal]),
                )
            )
        )
    )


def _insert_document(
    c: sa.Connection, columns: Mapping[str, Any], *, stored: StoredFile, media_type: str
) -> None:
    c.execute(
        sa.insert(documents).values(
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
            media_type=clean_text(media_type),
            title="",
            source_metadata={},
            page_count=0,
            chunk_count=0,
            **columns,
        )
    )
