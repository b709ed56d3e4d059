"""Every store of keys and events keeps its promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from kb.access import ApiKey, AuditEvent, Role
from kb.adapters.memory_access import MemoryAccessStore
from kb.adapters.sql_access import SqlAccessStore
from kb.adapters.sql_catalog import SqlCatalog
from kb.adapters.sql_database import SqlDatabase
from kb.errors import CatalogUnavailableError, KeyNotFoundError
from tests.databases import DATABASES

NOW = datetime(2026, 3, 1, 8, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)

Store = MemoryAccessStore | SqlAccessStore


@pytest.fixture(params=list(DATABASES))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with DATABASES[request.param](tmp_path, request) as opened, closing(SqlCatalog(opened)) as catalog:
        catalog.migrate()
        yield opened


@pytest.fixture(params=["memory", *DATABASES])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryAccessStore()
        return
    with DATABASES[request.param](tmp_path, request) as opened, closing(SqlCatalog(opened)) as catalog:
        catalog.migrate()
        with closing(SqlAccessStore(opened)) as made:
            yield made


def make_key(number: int = 1, *, collections: tuple[str, ...] | None = ("手册", "press")) -> ApiKey:
    return ApiKey(
        id=f"key_{number}",
        name="维修站 terminal",
        role=Role.EDITOR,
        collections=collections,
        hint="kb_abcd",
        created_at=NOW + number * HOUR,
        expires_at=NOW + 9 * HOUR,
    )


def test_a_key_is_found_by_the_digest_of_its_secret(store: Store) -> None:
    assert not store.has_keys()
    store.add_key(make_key(), digest="d1")

    assert store.has_keys()
    assert store.find_key("d1") == make_key()
    assert store.get_key("key_1") == make_key()
    assert store.find_key("d2") is None


def test_keys_are_listed_oldest_first(store: Store) -> None:
    store.add_key(make_key(2, collections=None), digest="d2")
    store.add_key(make_key(1), digest="d1")

    assert store.list_keys() == [make_key(1), make_key(2, collections=None)]


def test_a_key_that_ended_stays_and_never_ends_later(store: Store) -> None:
    store.add_key(make_key(), digest="d1")

    store.end_key("key_1", at=NOW + 2 * HOUR)
    store.end_key("key_1", at=NOW + 5 * HOUR)

    (key,) = store.list_keys()
    assert key.revoked_at == NOW + 2 * HOUR
    assert (key.is_active(NOW + HOUR), key.is_active(NOW + 2 * HOUR)) == (True, False)


def test_an_unknown_key_is_an_error(store: Store) -> None:
    with pytest.raises(KeyNotFoundError):
        store.get_key("key_0")
    with pytest.raises(KeyNotFoundError):
        store.end_key("key_0", at=NOW)


def make_event(number: int) -> AuditEvent:
    return AuditEvent(
        at=NOW + number * HOUR,
        caller_id="key_1",
        caller_name="维修站",
        action="document.delete",
        collection="手册",
        target=f"doc_{number}",
        address="10.0.0.5",
        request_id="r1",
        detail={"name": "压机.pdf"},
    )


def test_events_are_read_page_by_page_in_order(store: Store) -> None:
    for number in range(1, 6):
        store.record(make_event(number))

    first = store.list_events(limit=2)
    rest = store.list_events(after=first[-1].sequence)

    assert [event.target for event in (*first, *rest)] == [f"doc_{number}" for number in range(1, 6)]
    assert first[0] == AuditEvent(
        **{name: getattr(make_event(1), name) for name in AuditEvent.__dataclass_fields__} | {"sequence": 1}
    )
    assert store.list_events(after=rest[-1].sequence) == []


@pytest.mark.parametrize(
    "statement", ["DELETE FROM audit_events", "UPDATE audit_events SET caller_name = 'nobody'"]
)
def test_what_was_recorded_cannot_be_changed(url: str, statement: str) -> None:
    with closing(SqlAccessStore(url)) as store:
        store.record(make_event(1))
        database = SqlDatabase(url)

        with (
            pytest.raises((DBAPIError, CatalogUnavailableError), match="can only grow"),
            database.write() as connection,
        ):
            connection.execute(sa.text(statement))

        database.close()
        assert [event.caller_name for event in store.list_events()] == ["维修站"]
