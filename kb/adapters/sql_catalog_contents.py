"""Statements of the catalog on pages and chunks; each function runs in its caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from kb.adapters.sql_catalog_attachments import drop_former_attachments, replace_attachments
from kb.adapters.sql_catalog_documents import attach, find_document_row, replace_namesakes
from kb.adapters.sql_catalog_garbage import add_garbage, add_orphaned_file, document_key
from kb.adapters.sql_catalog_jobs import Lease, find_job_row, find_working_row, leave_job, succeed_job
from kb.adapters.sql_catalog_rows import (
    Row,
    clean_text,
    read_chunk,
    read_document,
    read_page,
    write_chunk,
    write_metadata,
    write_page,
    write_problem,
)
from kb.adapters.sql_tables import chunks, documents, pages
from kb.errors import JobCancelledError
from kb.ports import Attachment, StoredChunks
from kb.types import Chunk, Document, DocumentState, JobState, Page, ParsedDocument, Problem


def save_parsed(
    c: sa.Connection, job_id: str, lease: Lease | None, parsed: ParsedDocument, *, now: datetime
) -> None:
    """Replace the generation's pages."""
    row = _get_working_row(c, job_id, lease)
    key = {"document_id": row["document_id"], "generation": row["generation"]}
    c.execute(sa.delete(pages).where(*(pages.c[name] == value for name, value in key.items())))
    if parsed.pages:
        c.execute(sa.insert(pages), [key | write_page(page) for page in parsed.pages])
    c.execute(
        sa.update(documents)
        .where(documents.c.job_id == row["id"])
        .values(
            media_type=clean_text(parsed.media_type),
            title=clean_text(parsed.title or ""),
            source_metadata=write_metadata(parsed.metadata),
            page_count=len(parsed.pages),
            updated_at=now,
        )
    )


def save_chunks(c: sa.Connection, job_id: str, lease: Lease | None, found: Sequence[Chunk]) -> None:
    """Replace the generation's chunks."""
    row = _get_working_row(c, job_id, lease)
    document_id, generation = row["document_id"], row["generation"]
    if any((chunk.document_id, chunk.generation) != (document_id, generation) for chunk in found):
        raise JobCancelledError(f"job {job_id!r} is at another generation than these chunks")
    c.execute(sa.delete(chunks).where(chunks.c.document_id == document_id, chunks.c.generation == generation))
    if found:
        c.execute(sa.insert(chunks), [write_chunk(chunk) for chunk in found])


def find_stored_chunks(c: sa.Connection, job_id: str, found: Sequence[Chunk]) -> StoredChunks:
    """Compare with the generation's chunks, column by column."""
    row = find_job_row(c, job_id)
    if row is None:
        return StoredChunks.NONE
    stored = c.execute(
        sa.select(chunks)
        .where(chunks.c.document_id == row["document_id"], chunks.c.generation == row["generation"])
        .order_by(chunks.c.position)
    ).mappings()
    columns = [write_chunk(read_chunk(stored_row)) for stored_row in stored]
    if not columns:
        return StoredChunks.NONE
    return StoredChunks.SAME if columns == [write_chunk(chunk) for chunk in found] else StoredChunks.OTHER


def activate(
    c: sa.Connection,
    job_id: str,
    lease: Lease | None,
    *,
    warnings: Sequence[Problem],
    attachments: Sequence[Attachment],
    now: datetime,
) -> Document | None:
    """Switch what is visible."""
    job = find_working_row(c, job_id, lease)
    if job is None:
        leave_job(c, lease)
        for attachment in attachments:
            add_orphaned_file(c, attachment.stored.sha256)
        return _find_activated(c, job_id)
    document_id, generation = job["document_id"], job["generation"]
    row = find_document_row(c, document_id)
    assert row is not None
    attach(c, row, generation=generation, found=attachments, now=now)
    replace_namesakes(c, row, generation=generation)
    former = row["visible_generation"]
    if former is not None:
        add_garbage(c, row["collection_id"], document_key(document_id, former))
    for table in (pages, chunks):
        c.execute(
            sa.delete(table).where(table.c.document_id == document_id, table.c.generation != generation)
        )
    chunk_count = c.scalar(
        sa.select(sa.func.count()).select_from(chunks).where(chunks.c.document_id == document_id)
    )
    succeed_job(c, job, now=now)
    c.execute(
        sa.update(documents)
        .where(documents.c.id == document_id)
        .values(
            visible_generation=generation,
            state=DocumentState.READY_WITH_WARNINGS if warnings else DocumentState.READY,
            stage="",
            pages_done=row["page_count"],
            chunk_count=chunk_count,
            warnings=[write_problem(warning) for warning in warnings],
            error=None,
            updated_at=now,
            finished_at=now,
        )
    )
    drop_former_attachments(c, document_id, generation=generation)
    replace_attachments(c, document_id)
    return _find_activated(c, job_id)


def get_pages(c: sa.Connection, document_id: str, *, first: int, last: int | None) -> list[Page]:
    """Select the pages that belong to what is retrieved, or else the newest."""
    query = sa.select(pages).where(
        pages.c.document_id == clean_text(document_id),
        pages.c.generation == _shown_generation(pages, clean_text(document_id)),
        pages.c.page_number >= first,
    )
    if last is not None:
        query = query.where(pages.c.page_number <= last)
    return [read_page(row) for row in c.execute(query.order_by(pages.c.page_number)).mappings()]


def find_laid_out_page(c: sa.Connection, document_id: str, page_number: int) -> Page | None:
    """Select one page unless it has no size: a big sheet is not read for boxes that it can't have."""
    row = (
        c.execute(
            sa.select(pages).where(
                pages.c.document_id == clean_text(document_id),
                pages.c.generation == _shown_generation(pages, clean_text(document_id)),
                pages.c.page_number == page_number,
                pages.c.width.is_not(None),
            )
        )
        .mappings()
        .first()
    )
    return read_page(row) if row is not None else None


def list_chunks(c: sa.Connection, document_id: str) -> list[Chunk]:
    """Select the chunks that are retrieved, or else the newest."""
    rows = c.execute(
        sa.select(chunks)
        .where(
            chunks.c.document_id == clean_text(document_id),
            chunks.c.generation == _shown_generation(chunks, clean_text(document_id)),
        )
        .order_by(chunks.c.position)
    ).mappings()
    return [read_chunk(row) for row in rows]


def find_visible_chunks(c: sa.Connection, chunk_ids: Sequence[str]) -> dict[str, tuple[Chunk, str]]:
    """Select by id what may be retrieved."""
    wanted = {clean_text(chunk_id) for chunk_id in chunk_ids}
    rows = c.execute(
        sa.select(chunks, documents.c.name.label("document_name"))
        .join(
            documents,
            sa.and_(
                documents.c.id == chunks.c.document_id,
                documents.c.visible_generation == chunks.c.generation,
            ),
        )
        .where(chunks.c.id.in_(wanted))
    ).mappings()
    return {row["id"]: (read_chunk(row), row["document_name"]) for row in rows}


def _get_working_row(c: sa.Connection, job_id: str, lease: Lease | None) -> Row:
    row = find_working_row(c, job_id, lease)
    if row is None:
        raise JobCancelledError(f"job {job_id!r} was cancelled, deleted or taken over")
    return row


def _find_activated(c: sa.Connection, job_id: str) -> Document | None:
    """Return the document if this job made its newest generation visible."""
    job = find_job_row(c, job_id)
    if job is None or job["state"] != JobState.SUCCEEDED:
        return None
    row = find_document_row(c, job["document_id"])
    assert row is not None
    return read_document(row) if row["visible_generation"] == job["generation"] else None


def _shown_generation(table: sa.Table, document_id: str) -> sa.ScalarSelect[int]:
    visible = sa.select(documents.c.visible_generation).where(documents.c.id == document_id)
    newest = sa.select(sa.func.max(table.c.generation)).where(table.c.document_id == document_id)
    return sa.select(sa.func.coalesce(visible.scalar_subquery(), newest.scalar_subquery())).scalar_subquery()
