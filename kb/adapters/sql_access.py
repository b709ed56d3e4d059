"""API keys and the audit log in the catalog's database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from kb.access import ApiKey, AuditEvent, Role
from kb.adapters.sql_database import SqlDatabase
from kb.adapters.sql_tables import api_keys, audit_events
from kb.errors import KeyNotFoundError


class SqlAccessStore:
    """Keys and audit log in the database that `url` names, which the catalog has migrated."""

    def __init__(self, url: str) -> None:
        self._database = SqlDatabase(url)

    def close(self) -> None:
        """Close idle connections."""
        self._database.close()

    # -- keys
    def add_key(self, key: ApiKey, *, digest: str) -> None:
        with self._database.write() as c:
            c.execute(
                sa.insert(api_keys).values(
                    id=key.id,
                    digest=digest,
                    name=key.name,
                    role=key.role,
                    collections=None if key.collections is None else list(key.collections),
                    hint=key.hint,
                    created_at=key.created_at,
                    expires_at=key.expires_at,
                    revoked_at=key.revoked_at,
                )
            )

    def find_key(self, digest: str) -> ApiKey | None:
        with self._database.read() as c:
            row = c.execute(sa.select(api_keys).where(api_keys.c.digest == digest)).mappings().first()
        return None if row is None else _read_key(row)

    def get_key(self, key_id: str) -> ApiKey:
        with self._database.read() as c:
            return _get_key(c, key_id)

    def list_keys(self) -> list[ApiKey]:
        with self._database.read() as c:
            rows = c.execute(sa.select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id)).mappings()
            return [_read_key(row) for row in rows]

    def has_keys(self) -> bool:
        with self._database.read() as c:
            return c.scalar(sa.select(api_keys.c.id).limit(1)) is not None

    def end_key(self, key_id: str, *, at: datetime) -> ApiKey:
        with self._database.write() as c:
            key = _get_key(c, key_id)
            end = at if key.revoked_at is None else min(at, key.revoked_at)
            c.execute(sa.update(api_keys).where(api_keys.c.id == key_id).values(revoked_at=end))
            return _get_key(c, key_id)

    # -- audit log
    def record(self, event: AuditEvent) -> None:
        with self._database.write() as c:
            c.execute(
                sa.insert(audit_events).values(
                    at=event.at,
                    caller_id=event.caller_id,
                    caller_name=event.caller_name,
                    action=event.action,
                    collection=event.collection,
                    target=event.target,
                    address=event.address,
                    request_id=event.request_id,
                    detail=dict(event.detail),
                )
            )

    def list_events(self, *, after: int = 0, limit: int = 100) -> list[AuditEvent]:
        query = (
            sa.select(audit_events)
            .where(audit_events.c.sequence > after)
            .order_by(audit_events.c.sequence)
            .limit(limit)
        )
        with self._database.read() as c:
            return [AuditEvent(**row) for row in c.execute(query).mappings()]


def _get_key(c: sa.Connection, key_id: str) -> ApiKey:
    row = c.execute(sa.select(api_keys).where(api_keys.c.id == key_id)).mappings().first()
    if row is None:
        raise KeyNotFoundError(key_id)
    return _read_key(row)


def _read_key(row: Mapping[Any, Any]) -> ApiKey:
    return ApiKey(
        id=row["id"],
        name=row["name"],
        role=Role(row["role"]),
        collections=None if row["collections"] is None else tuple(row["collections"]),
        hint=row["hint"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
    )
