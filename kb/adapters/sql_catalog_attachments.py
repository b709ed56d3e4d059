"""Statements of the catalog on what is attached to what, and on what goes with a document.

Each function runs in its caller's transaction.
"""

from __future__ import annotations

import sqlalchemy as sa

from kb.adapters.sql_catalog_garbage import add_garbage, add_orphaned_file, document_key
from kb.adapters.sql_catalog_rows import Row, clean_text
from kb.adapters.sql_tables import attachments, documents, jobs
from kb.filenames import name_attachment
from kb.types import JobState

_FORMER = 0
"""Parent generation of what is attached to a former version; real ones count from 1."""


def link(c: sa.Connection, parent_id: str, child_id: str, *, generation: int, name: str) -> None:
    """Note that the child is attached to this generation of the parent; the first name counts."""
    key = sa.and_(attachments.c.parent_id == parent_id, attachments.c.child_id == child_id)
    known = c.scalar(sa.select(attachments.c.parent_generation).where(key))
    if known == generation:
        return
    c.execute(sa.delete(attachments).where(key))
    c.execute(
        sa.insert(attachments).values(
            parent_id=parent_id, child_id=child_id, parent_generation=generation, name=clean_text(name)
        )
    )


def remove_document(c: sa.Connection, row: Row) -> str | None:
    """Delete the document with its jobs, pages, chunks and attachments.

    Returns its sha256 if nobody needs it.
    """
    collection_id, document_id = row["collection_id"], row["id"]
    attached = c.scalars(
        sa.select(attachments.c.child_id)
        .where(attachments.c.parent_id == document_id)
        .order_by(attachments.c.child_id)
    ).all()
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
    for child_id in attached:
        let_go(c, child_id)
    return row["sha256"] if add_orphaned_file(c, row["sha256"]) else None


def remove_upload(c: sa.Connection, row: Row) -> str | None:
    """Delete the document unless another has it attached; returns like `remove_document`."""
    if not _is_attached(c, row["id"]):
        return remove_document(c, row)
    if row["parent_id"] is None:
        c.execute(sa.update(documents).where(documents.c.id == row["id"]).values(parent_id=""))
    let_go(c, row["id"])
    return None


def replace_upload(c: sa.Connection, row: Row, *, successor_id: str) -> None:
    """Like `remove_upload`; what was attached to what is removed counts as formerly attached to another."""
    if not _is_attached(c, row["id"]):
        already = sa.select(attachments.c.child_id).where(attachments.c.parent_id == successor_id)
        c.execute(
            sa.update(attachments)
            .where(
                attachments.c.parent_id == row["id"],
                attachments.c.child_id.not_in(already.scalar_subquery()),
                attachments.c.child_id != successor_id,
            )
            .values(parent_id=successor_id, parent_generation=_FORMER)
        )
        named_after = documents.c.parent_id == row["id"]
        c.execute(sa.update(documents).where(named_after).values(parent_id=successor_id))
    remove_upload(c, row)


def rename_document(c: sa.Connection, document_id: str, name: str) -> None:
    """Give the document another name, and the attachments that are named after it theirs."""
    renamed = c.execute(
        sa.update(documents).where(documents.c.id == document_id, documents.c.name != name).values(name=name)
    )
    if renamed.rowcount == 0:
        return
    named_after = c.execute(
        sa.select(attachments.c.child_id, attachments.c.name)
        .join(documents, documents.c.id == attachments.c.child_id)
        .where(attachments.c.parent_id == document_id, documents.c.parent_id == document_id)
    ).all()
    for child in named_after:
        rename_document(c, child.child_id, name_attachment(name, child.name))


def drop_former_attachments(c: sa.Connection, parent_id: str, *, generation: int) -> None:
    """Remove what was attached before `generation`, except where a new version of it is not ready yet."""
    rows = c.execute(
        sa.select(
            attachments.c.child_id,
            attachments.c.name,
            attachments.c.parent_generation,
            documents.c.visible_generation,
        )
        .join(documents, documents.c.id == attachments.c.child_id)
        .where(attachments.c.parent_id == parent_id)
        .order_by(attachments.c.child_id)
    ).all()
    awaited = {
        row.name for row in rows if row.parent_generation == generation and row.visible_generation is None
    }
    for row in rows:
        if row.parent_generation != generation and row.name not in awaited:
            _unlink(c, parent_id, row.child_id)


def replace_attachments(c: sa.Connection, child_id: str) -> None:
    """Remove what this attachment, now that it is ready, is the new version of."""
    own = attachments.alias()
    former = c.execute(
        sa.select(attachments.c.parent_id, attachments.c.child_id)
        .join(own, sa.and_(own.c.parent_id == attachments.c.parent_id, own.c.name == attachments.c.name))
        .where(
            own.c.child_id == child_id,
            attachments.c.child_id != child_id,
            attachments.c.parent_generation < own.c.parent_generation,
        )
        .order_by(attachments.c.child_id)
    ).all()
    for row in former:
        _unlink(c, row.parent_id, row.child_id)


def let_go(c: sa.Connection, document_id: str) -> None:
    """Delete the attachment unless a document has it attached, or it was uploaded as well.

    One that stays is named after a document that has it.
    """
    row = c.execute(sa.select(documents).where(documents.c.id == document_id)).mappings().one_or_none()
    if row is None or row["parent_id"] is None:
        return
    links = c.execute(
        sa.select(attachments)
        .where(attachments.c.child_id == document_id)
        .order_by(attachments.c.parent_generation.desc(), attachments.c.parent_id)
    ).all()
    if not links:
        remove_document(c, row)
        return
    kept = next((item for item in links if item.parent_id == row["parent_id"]), links[0])
    parent_name = c.execute(sa.select(documents.c.name).where(documents.c.id == kept.parent_id)).scalar_one()
    c.execute(sa.update(documents).where(documents.c.id == document_id).values(parent_id=kept.parent_id))
    rename_document(c, document_id, name_attachment(parent_name, kept.name))


def _unlink(c: sa.Connection, parent_id: str, child_id: str) -> None:
    c.execute(
        sa.delete(attachments).where(attachments.c.parent_id == parent_id, attachments.c.child_id == child_id)
    )
    let_go(c, child_id)


def _is_attached(c: sa.Connection, document_id: str) -> bool:
    return bool(c.scalar(sa.select(sa.exists().where(attachments.c.child_id == document_id))))
