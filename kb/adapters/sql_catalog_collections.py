"""Statements of the catalog on collections; each function runs in its caller's transaction."""

from __future__ import annotations

import secrets
import unicodedata
from datetime import datetime

import sqlalchemy as sa

from kb.access import normalise_name
from kb.adapters.sql_catalog_garbage import add_garbage, add_orphaned_file, document_key
from kb.adapters.sql_catalog_rows import Row, clean_text, read_calibration, write_calibration
from kb.adapters.sql_tables import collections, documents, jobs
from kb.errors import CollectionExistsError, CollectionNotFoundError, IndexMismatchError, InvalidNameError
from kb.types import Calibration, Collection, JobState


def create_collection(c: sa.Connection, name: str, *, now: datetime) -> Collection:
    """Insert an empty collection."""
    name = normalise_name(name)
    hidden = any(unicodedata.category(char) in ("Cc", "Cs") for char in name)
    if not 1 <= len(name) <= 64 or hidden:
        raise InvalidNameError(
            f"{name!r} cannot be the name of a collection",
            next_step="Use 1 to 64 characters without line breaks or control characters.",
        )
    if c.scalar(sa.select(sa.exists().where(collections.c.name == name))):
        raise CollectionExistsError(name)
    created = Collection(id=f"col_{secrets.token_hex(8)}", name=name, created_at=now)
    c.execute(
        sa.insert(collections).values(
            id=created.id, name=name, created_at=now, fingerprint="", dimension=0, last_generation=0
        )
    )
    return created


def get_collection(c: sa.Connection, name: str) -> Collection:
    """Select by name."""
    found = _select(c, collections.c.name == clean_text(normalise_name(name)))
    if not found:
        raise CollectionNotFoundError(name)
    return found[0]


def get_collection_by_id(c: sa.Connection, collection_id: str) -> Collection:
    """Select by id."""
    found = _select(c, collections.c.id == clean_text(collection_id))
    if not found:
        raise CollectionNotFoundError(collection_id)
    return found[0]


def list_collections(c: sa.Connection) -> list[Collection]:
    """Select all, by name."""
    return _select(c, sa.true())


def delete_collection(c: sa.Connection, collection_id: str) -> list[str]:
    """Delete the row and everything that hangs on it."""
    get_collection_by_id(c, collection_id)
    in_work = c.execute(
        sa.select(jobs.c.document_id, jobs.c.generation, jobs.c.lease_until).where(
            jobs.c.collection_id == collection_id, jobs.c.state == JobState.RUNNING
        )
    ).all()
    hashes = sorted(
        c.scalars(sa.select(documents.c.sha256).where(documents.c.collection_id == collection_id))
    )
    # The caller removes the collection's indexes as a whole; what a worker still adds is garbage.
    for job in in_work:
        add_garbage(
            c, collection_id, document_key(job.document_id, job.generation), held_until=job.lease_until
        )
    c.execute(sa.delete(collections).where(collections.c.id == collection_id))
    return [sha256 for sha256 in hashes if add_orphaned_file(c, sha256)]


def claim_fingerprint(c: sa.Connection, collection_id: str, *, fingerprint: str, dimension: int) -> None:
    """Set the vector space, or compare with it."""
    collection = get_collection_by_id(c, collection_id)
    if not collection.fingerprint:
        c.execute(
            sa.update(collections)
            .where(collections.c.id == collection_id)
            .values(fingerprint=fingerprint, dimension=dimension)
        )
    elif (collection.fingerprint, collection.dimension) != (fingerprint, dimension):
        raise IndexMismatchError(collection.name, expected=collection.fingerprint, actual=fingerprint)


def save_calibration(c: sa.Connection, collection_id: str, calibration: Calibration | None) -> None:
    """Set or clear the calibration."""
    changed = c.execute(
        sa.update(collections)
        .where(collections.c.id == clean_text(collection_id))
        .values(calibration=None if calibration is None else write_calibration(calibration))
    )
    if not changed.rowcount:
        raise CollectionNotFoundError(collection_id)


def take_generation(c: sa.Connection, collection_id: str) -> int:
    """Return a number that no document of the collection had before."""
    generation = c.scalar(
        sa.update(collections)
        .where(collections.c.id == collection_id)
        .values(last_generation=collections.c.last_generation + 1)
        .returning(collections.c.last_generation)
    )
    if generation is None:
        raise CollectionNotFoundError(collection_id)
    return int(generation)


def _select(c: sa.Connection, where: sa.ColumnElement[bool]) -> list[Collection]:
    rows = c.execute(
        sa.select(
            collections,
            sa.func.count(documents.c.id).label("document_count"),
            sa.func.coalesce(sa.func.sum(documents.c.chunk_count), 0).label("chunk_count"),
        )
        .outerjoin(documents, documents.c.collection_id == collections.c.id)
        .where(where)
        .group_by(collections.c.id)
        .order_by(collections.c.name)
    ).mappings()
    return [_read(row) for row in rows]


def _read(row: Row) -> Collection:
    return Collection(
        id=row["id"],
        name=row["name"],
        created_at=row["created_at"],
        fingerprint=row["fingerprint"],
        dimension=row["dimension"],
        document_count=row["document_count"],
        chunk_count=row["chunk_count"],
        calibration=read_calibration(row["calibration"]),
        generation=row["last_generation"],
    )
