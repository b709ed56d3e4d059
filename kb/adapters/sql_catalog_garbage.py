"""What the catalog has given up and somebody must still remove: index entries and files."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from kb.adapters.sql_catalog_rows import clean_text
from kb.adapters.sql_tables import documents, garbage, jobs, orphaned_files
from kb.types import JobState


def document_key(document_id: str, generation: int) -> str:
    """Return what `Document.key` is for that generation."""
    return f"{document_id}-g{generation}"


def add_garbage(
    c: sa.Connection, collection_id: str, key: str, *, held_until: datetime | None = None
) -> None:
    """List index entries for removal; `held_until` is the lease of a worker that may still add some."""
    where = sa.and_(garbage.c.collection_id == collection_id, garbage.c.document_key == key)
    changed = c.execute(sa.update(garbage).where(where).values(listed=True, held_until=held_until))
    if changed.rowcount == 0:
        c.execute(
            sa.insert(garbage).values(
                collection_id=collection_id, document_key=key, listed=True, held_until=held_until
            )
        )


def release_expired_garbage(c: sa.Connection, *, now: datetime) -> None:
    """List once more what a worker might have written before its lease ran out."""
    c.execute(sa.update(garbage).where(garbage.c.held_until <= now).values(listed=True, held_until=None))


def list_garbage(c: sa.Connection, *, limit: int) -> list[tuple[str, str]]:
    """Return (collection_id, document_key), in a stable order."""
    rows = c.execute(
        sa.select(garbage.c.collection_id, garbage.c.document_key)
        .where(garbage.c.listed)
        .order_by(garbage.c.collection_id, garbage.c.document_key)
        .limit(limit)
    )
    return [(row.collection_id, row.document_key) for row in rows]


def forget_garbage(c: sa.Connection, collection_id: str, key: str) -> None:
    """Drop the row, or set it aside while a worker may still write."""
    where = sa.and_(
        garbage.c.collection_id == clean_text(collection_id), garbage.c.document_key == clean_text(key)
    )
    c.execute(sa.delete(garbage).where(where, garbage.c.held_until.is_(None)))
    c.execute(sa.update(garbage).where(where).values(listed=False))


def is_live_key(c: sa.Connection, document_id: str, generation: int) -> bool:
    """Return whether index entries of this generation are visible or being written."""
    visible = sa.select(documents.c.id).where(
        documents.c.id == document_id, documents.c.visible_generation == generation
    )
    in_work = sa.select(jobs.c.id).where(
        jobs.c.document_id == document_id,
        jobs.c.generation == generation,
        jobs.c.state.in_([JobState.QUEUED, JobState.RUNNING]),
    )
    return bool(c.scalar(sa.select(sa.or_(visible.exists(), in_work.exists()))))


def add_orphaned_file(c: sa.Connection, sha256: str) -> bool:
    """Remember the bytes as unneeded unless a document has them; returns whether they are."""
    if c.scalar(sa.select(sa.exists().where(documents.c.sha256 == sha256))):
        return False
    keep_orphaned_file(c, sha256)
    c.execute(sa.insert(orphaned_files).values(sha256=sha256))
    return True


def keep_orphaned_file(c: sa.Connection, sha256: str) -> None:
    """Take the bytes off the list: they are needed again, or gone."""
    c.execute(sa.delete(orphaned_files).where(orphaned_files.c.sha256 == clean_text(sha256)))


def list_orphaned_files(c: sa.Connection, *, limit: int) -> list[str]:
    """Return SHA-256 values of bytes that no document needs."""
    return list(c.scalars(sa.select(orphaned_files.c.sha256).order_by(orphaned_files.c.sha256).limit(limit)))
