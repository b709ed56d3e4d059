from __future__ import annotations

from datetime import timedelta

import pytest

from kb.access import LOCAL_CALLER, ApiKey, Role
from kb.adapters.memory_access import MemoryAccessStore
from kb.errors import (
    AccessDeniedError,
    CallerError,
    InvalidApiKeyError,
    KeyNotFoundError,
    LastAdminKeyError,
)
from kb.keyring import REMEMBERED_S, KeyRing
from tests.unit.fakes import Clock


class Timer:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def store() -> MemoryAccessStore:
    return MemoryAccessStore()


@pytest.fixture
def ring(store: MemoryAccessStore, clock: Clock, timer: Timer) -> KeyRing:
    return KeyRing(store, clock=clock, timer=timer)


@pytest.fixture
def admin(ring: KeyRing) -> ApiKey:
    """The first key."""
    return ring.create("boss", Role.ADMIN)[0]


def test_before_the_first_key_only_this_machine_may_do_anything(ring: KeyRing) -> None:
    assert ring.authenticate([], is_local=True) == LOCAL_CALLER
    assert ring.authenticate(["anything"], is_local=True) == LOCAL_CALLER
    with pytest.raises(InvalidApiKeyError, match="no key yet"):
        ring.authenticate([], is_local=False)


def test_after_the_first_key_this_machine_needs_one_too(ring: KeyRing) -> None:
    _, secret = ring.create("boss", Role.ADMIN)

    assert ring.authenticate([secret], is_local=False).role is Role.ADMIN
    for sent in ([], [""], ["kb_wrong"], [secret + "x"], [secret[:-1]]):
        with pytest.raises(InvalidApiKeyError):
            ring.authenticate(sent, is_local=True)


def test_another_process_notices_the_first_key(store: MemoryAccessStore, ring: KeyRing, clock: Clock) -> None:
    other = KeyRing(store, clock=clock)
    assert not other.is_locked()

    ring.create("boss", Role.ADMIN)

    assert other.is_locked()


def test_a_key_from_the_settings_is_an_administrators(store: MemoryAccessStore, clock: Clock) -> None:
    ring = KeyRing(store, clock=clock, static_key="a-static-key-of-the-settings")

    caller = ring.authenticate(["a-static-key-of-the-settings"], is_local=False)

    assert (caller.name, caller.role) == ("KB_API_KEY", Role.ADMIN)
    with pytest.raises(InvalidApiKeyError):
        ring.authenticate(["\udcff"], is_local=True)
    assert ring.create("reader", Role.READER)[0].role is Role.READER


def test_the_secret_is_long_and_random_and_not_stored(ring: KeyRing, store: MemoryAccessStore) -> None:
    made = [ring.create(f"admin {number}", Role.ADMIN) for number in range(20)]

    secrets = [secret for _, secret in made]
    assert len(set(secrets)) == 20
    assert {len(secret) for secret in secrets} == {46}
    assert all(key.hint == secret[:7] for key, secret in made)
    assert not any(secret in repr(vars(store)) for secret in secrets)


@pytest.mark.parametrize(
    ("role", "options"),
    [
        (Role.READER, {}),
        (Role.EDITOR, {}),
        (Role.ADMIN, {"collections": ["a"]}),
        (Role.ADMIN, {"expires_at": Clock().now + timedelta(days=1)}),
    ],
)
def test_the_first_key_must_be_able_to_make_others(
    ring: KeyRing, role: Role, options: dict[str, object]
) -> None:
    with pytest.raises(LastAdminKeyError):
        ring.create("first", role, **options)  # type: ignore[arg-type]

    assert not ring.is_locked()


@pytest.mark.usefixtures("admin")
def test_a_caller_may_use_its_collections_under_any_spelling(ring: KeyRing) -> None:
    _, secret = ring.create("line 2", Role.READER, collections=["ma\u0308nner", " press "])

    caller = ring.authenticate([secret], is_local=False)

    assert caller.may_use("m\u00e4nner")
    assert caller.may_use("press")
    for other in ("Press", "default", ""):
        with pytest.raises(AccessDeniedError):
            caller.require_collection(other)


def test_roles_include_the_ones_before(ring: KeyRing, admin: ApiKey) -> None:
    _, secret = ring.create("e", Role.EDITOR)
    caller = ring.authenticate([secret], is_local=False)

    caller.require(Role.READER)
    caller.require(Role.EDITOR)
    with pytest.raises(AccessDeniedError, match="needs admin"):
        caller.require(Role.ADMIN)


@pytest.mark.usefixtures("admin")
def test_a_key_expires(ring: KeyRing, clock: Clock) -> None:
    _, secret = ring.create("guest", Role.READER, expires_at=clock.now + timedelta(hours=1))
    ring.authenticate([secret], is_local=False)

    clock.advance(3600)

    with pytest.raises(InvalidApiKeyError):
        ring.authenticate([secret], is_local=False)
    with pytest.raises(CallerError, match="expired already"):
        ring.create("late", Role.READER, expires_at=clock.now)


@pytest.mark.usefixtures("admin")
def test_a_revoked_key_ends_here_at_once_and_elsewhere_soon(
    store: MemoryAccessStore, ring: KeyRing, clock: Clock, timer: Timer
) -> None:
    other = KeyRing(store, clock=clock, timer=timer)
    key, secret = ring.create("guest", Role.READER)
    other.authenticate([secret], is_local=False)

    ring.revoke(key.id)

    with pytest.raises(InvalidApiKeyError):
        ring.authenticate([secret], is_local=False)
    other.authenticate([secret], is_local=False)
    timer.now += REMEMBERED_S
    with pytest.raises(InvalidApiKeyError):
        other.authenticate([secret], is_local=False)


def test_a_rotated_key_has_the_same_rights_and_a_time_of_grace(
    ring: KeyRing, admin: ApiKey, clock: Clock
) -> None:
    old, old_secret = ring.create("line 2", Role.EDITOR, collections=["a"])

    new, new_secret = ring.rotate(old.id, grace=timedelta(hours=2))

    assert (new.name, new.role, new.collections) == (old.name, old.role, old.collections)
    ring.authenticate([old_secret], is_local=False)
    clock.advance(7200)
    with pytest.raises(InvalidApiKeyError):
        ring.authenticate([old_secret], is_local=False)
    assert ring.authenticate([new_secret], is_local=False).id == new.id
    with pytest.raises(CallerError, match="not valid any more"):
        ring.rotate(old.id)


def test_the_last_administrators_key_cannot_be_revoked(ring: KeyRing, admin: ApiKey) -> None:
    ring.create("other", Role.ADMIN, collections=["a"])
    with pytest.raises(LastAdminKeyError):
        ring.revoke(admin.id)

    ring.create("second boss", Role.ADMIN)

    assert ring.revoke(admin.id).revoked_at is not None


def test_unknown_keys_and_empty_names_are_errors(ring: KeyRing) -> None:
    with pytest.raises(KeyNotFoundError):
        ring.revoke("key_0")
    for name in (" ", "x" * 101):
        with pytest.raises(CallerError, match="name of a key"):
            ring.create(name, Role.ADMIN)


@pytest.mark.usefixtures("admin")
def test_guesses_do_not_fill_the_memory(ring: KeyRing) -> None:
    for number in range(5000):
        with pytest.raises(InvalidApiKeyError):
            ring.authenticate([f"kb_{number}"], is_local=False)

    assert len(ring._remembered) <= 4096
