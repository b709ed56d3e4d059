"""KeyRing: makes API keys, ends them, and finds out whose a request is."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from kb.access import LOCAL_CALLER, ApiKey, Caller, Role, normalise_name
from kb.errors import CallerError, InvalidApiKeyError, LastAdminKeyError
from kb.ports import KeyStore

REMEMBERED_S = 2.0
"""How long another process may still accept a key that was revoked."""

_PREFIX = "kb_"
_SECRET_BYTES = 32
_HINT_CHARS = 7
_MOST_REMEMBERED = 4096
_MAX_NAME_CHARS = 100
_STATIC_CALLER = Caller(id="static", name="KB_API_KEY", role=Role.ADMIN)


class KeyRing:
    """The keys of one service; may be used from many threads.

    `static_key` is an administrator's key out of the settings, or None. Without it, and before the
    first key is created, requests from this very machine need none and may do everything, others
    nothing.
    """

    def __init__(
        self,
        store: KeyStore,
        *,
        clock: Callable[[], datetime],
        static_key: str | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._timer = timer
        self._static = static_key.encode() if static_key else None
        self._remembered: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()
        self._locked = self._static is not None
        self._guard = threading.Lock()

    def is_locked(self) -> bool:
        """Return whether requests need a key: one is set, or was created at some time."""
        if not self._locked:
            # keys are never removed, so this needs no asking again once it is so
            self._locked = self._store.has_keys()
        return self._locked

    def authenticate(self, sent: Sequence[str], *, is_local: bool) -> Caller:
        """Return who sent a request with these keys, from this machine or another.

        Raises `InvalidApiKeyError` when none of the keys is valid.
        """
        if not self.is_locked():
            if is_local:
                return LOCAL_CALLER
            raise InvalidApiKeyError(
                "the service has no key yet, so only its own machine may use it",
                next_step="Run `kb keys create` on that machine.",
            )
        now = self._clock()
        for secret in filter(None, sent):
            if self._static and hmac.compare_digest(secret.encode(errors="surrogateescape"), self._static):
                return _STATIC_CALLER
            key = self._find(secret)
            if key is not None and key.is_active(now):
                collections = None if key.collections is None else frozenset(key.collections)
                return Caller(id=key.id, name=key.name, role=key.role, collections=collections)
        raise InvalidApiKeyError("the API key is missing or wrong")

    def create(
        self,
        name: str,
        role: Role,
        *,
        collections: Sequence[str] | None = None,
        expires_at: datetime | None = None,
    ) -> tuple[ApiKey, str]:
        """Store a new key and return it with its secret, which can't be read again.

        The first key must be able to create others. Raises `CallerError` for what can't be a key.
        """
        name = " ".join(name.split())
        if not 1 <= len(name) <= _MAX_NAME_CHARS:
            raise CallerError(
                f"the name of a key has 1 to {_MAX_NAME_CHARS} characters", next_step="Say who will use it."
            )
        now = self._clock()
        if expires_at is not None and expires_at <= now:
            raise CallerError("the key would have expired already", next_step="Choose a later end.")
        names = None if collections is None else tuple(sorted({normalise_name(item) for item in collections}))
        key, secret = self._make(name, role, names, expires_at, now)
        if not key.is_unrestricted_admin and not self.is_locked():
            raise LastAdminKeyError(
                "the first key must be an administrator's, for all collections and without an end",
                next_step="Run `kb keys create NAME --role admin` first, and keep that key.",
            )
        self._store.add_key(key, digest=_hash(secret))
        return key, secret

    def rotate(self, key_id: str, *, grace: timedelta = timedelta()) -> tuple[ApiKey, str]:
        """Return a new key with the rights of this one, which ends after the time of grace.

        Raises `KeyNotFoundError`, and `CallerError` if the key has ended already.
        """
        now = self._clock()
        old = self._store.get_key(key_id)
        if not old.is_active(now):
            raise CallerError(
                f"the key {old.name!r} is not valid any more",
                next_step="Create another with `kb keys create`.",
            )
        new, secret = self._make(old.name, old.role, old.collections, old.expires_at, now)
        self._store.add_key(new, digest=_hash(secret))
        self._end(key_id, now + grace)
        return new, secret

    def revoke(self, key_id: str) -> ApiKey:
        """End a key; here at once, in other processes within two seconds.

        Raises `KeyNotFoundError`, and `LastAdminKeyError` if nobody could manage keys any more.
        """
        now = self._clock()
        key = self._store.get_key(key_id)
        if self._static is None and key.is_unrestricted_admin:
            others = (item for item in self._store.list_keys() if item.id != key_id)
            if not any(item.is_unrestricted_admin and item.is_active(now) for item in others):
                raise LastAdminKeyError(
                    f"{key.name!r} is the last key that can manage keys",
                    next_step="Create or rotate an administrator's key first.",
                )
        return self._end(key_id, now)

    def list_keys(self) -> list[ApiKey]:
        """Return all keys, ended ones too, oldest first."""
        return self._store.list_keys()

    def _make(
        self,
        name: str,
        role: Role,
        collections: tuple[str, ...] | None,
        expires_at: datetime | None,
        now: datetime,
    ) -> tuple[ApiKey, str]:
        secret = _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        key = ApiKey(
            id=f"key_{secrets.token_hex(8)}",
            name=name,
            role=role,
            collections=collections,
            hint=secret[:_HINT_CHARS],
            created_at=now,
            expires_at=expires_at,
        )
        return key, secret

    def _end(self, key_id: str, at: datetime) -> ApiKey:
        ended = self._store.end_key(key_id, at=at)
        with self._guard:
            self._remembered.clear()
        return ended

    def _find(self, secret: str) -> ApiKey | None:
        digest = _hash(secret)
        now = self._timer()
        with self._guard:
            found = self._remembered.get(digest)
            if found is not None and now < found[0]:
                return found[1]
        key = self._store.find_key(digest)
        with self._guard:
            self._remembered[digest] = (now + REMEMBERED_S, key)
            self._remembered.move_to_end(digest)
            while len(self._remembered) > _MOST_REMEMBERED:
                self._remembered.popitem(last=False)
        return key


def _hash(secret: str) -> str:
    # 256 random bits need no slow hash: there is nothing to guess
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()
