"""API keys and the audit log in memory: for tests and for programs without a service."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from kb.access import ApiKey, AuditEvent
from kb.errors import KeyNotFoundError


class MemoryAccessStore:
    """Keeps keys and events as long as the process lives."""

    def __init__(self) -> None:
        self._keys: dict[str, ApiKey] = {}
        self._ids_by_digest: dict[str, str] = {}
        self._events: list[AuditEvent] = []

    # -- keys
    def add_key(self, key: ApiKey, *, digest: str) -> None:
        self._keys[key.id] = key
        self._ids_by_digest[digest] = key.id

    def find_key(self, digest: str) -> ApiKey | None:
        key_id = self._ids_by_digest.get(digest)
        return None if key_id is None else self._keys[key_id]

    def get_key(self, key_id: str) -> ApiKey:
        if key_id not in self._keys:
            raise KeyNotFoundError(key_id)
        return self._keys[key_id]

    def list_keys(self) -> list[ApiKey]:
        return sorted(self._keys.values(), key=lambda key: (key.created_at, key.id))

    def has_keys(self) -> bool:
        return bool(self._keys)

    def end_key(self, key_id: str, *, at: datetime) -> ApiKey:
        key = self.get_key(key_id)
        end = at if key.revoked_at is None else min(at, key.revoked_at)
        self._keys[key_id] = replace(key, revoked_at=end)
        return self._keys[key_id]

    # -- audit log
    def record(self, event: AuditEvent) -> None:
        self._events.append(replace(event, sequence=len(self._events) + 1))

    def list_events(self, *, after: int = 0, limit: int = 100) -> list[AuditEvent]:
        return self._events[after : after + limit]
