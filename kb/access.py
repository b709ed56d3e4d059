"""Who may do what: roles, API keys, and the callers that present them."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from kb.errors import AccessDeniedError


class Role(StrEnum):
    """What a key is for; each role includes the ones before it."""

    READER = "reader"
    """Searches, asks, looks faults up, reads documents and jobs."""
    EDITOR = "editor"
    """Also uploads and deletes documents, controls jobs, creates and deletes collections."""
    ADMIN = "admin"
    """Also manages keys and reads metrics and the audit log."""

    def includes(self, other: Role) -> bool:
        """Return whether this role may do all that the other may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key without its secret, of which only the SHA-256 is stored.

    `collections` is None for all. `hint` are the first characters of the secret, to tell keys apart.
    A key whose `revoked_at` lies in the future is valid until then.
    """

    id: str
    name: str
    role: Role
    collections: tuple[str, ...] | None
    hint: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_active(self, now: datetime) -> bool:
        """Return whether the key opens anything at this moment."""
        return all(end is None or now < end for end in (self.expires_at, self.revoked_at))

    @property
    def is_unrestricted_admin(self) -> bool:
        """Whether whoever has this key can do everything, now and later."""
        return self.role is Role.ADMIN and self.collections is None and self.expires_at is None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request. `collections` is None for all."""

    id: str
    name: str
    role: Role
    collections: frozenset[str] | None = None

    def require(self, role: Role) -> None:
        """Raise `AccessDeniedError` unless the caller has the role."""
        if not self.role.includes(role):
            raise AccessDeniedError(
                f"the key {self.name!r} has the role {self.role}, this needs {role}",
                next_step="Use a key with that role; an administrator creates one with `kb keys create`.",
            )

    def may_use(self, collection: str) -> bool:
        """Return whether the caller may work on a collection of this name, whether or not there is one."""
        return self.collections is None or normalise_name(collection) in self.collections

    def require_collection(self, collection: str) -> None:
        """Raise `AccessDeniedError` unless the caller may work on a collection of this name."""
        if not self.may_use(collection):
            raise AccessDeniedError(
                f"the key {self.name!r} does not open the collection {collection!r}",
                next_step="Ask an administrator for a key that does.",
            )


LOCAL_CALLER = Caller(id="local", name="local", role=Role.ADMIN)
"""Whoever sits at the machine while no key exists."""


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """Who did what to which thing, when and from where. `sequence` counts up, and is 0 before it is stored."""

    at: datetime
    caller_id: str
    caller_name: str
    action: str
    collection: str = ""
    target: str = ""
    address: str = ""
    request_id: str = ""
    detail: Mapping[str, str] = field(default_factory=dict)
    sequence: int = 0


def normalise_name(name: str) -> str:
    """Return the name of a collection as it is stored and compared."""
    return unicodedata.normalize("NFC", name).strip()
