"""The catalog's schema, its migrations, and what becomes of a database that fails."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from kb import migrations
from kb.adapters.sql_catalog import SqlCatalog
from kb.adapters.sql_database import SqlDatabase
from kb.adapters.sql_tables import UtcDateTime, metadata
from kb.errors import CatalogUnavailableError, ConfigurationError
from tests.databases import DATABASES
from tests.servers import find_free_port, fresh_database

NOW = datetime(2026, 3, 1, tzinfo=UTC)

MIGRATIONS = Path(migrations.__file__).parent
FIRST_ROWS = {
    "collections": {
        "id": "col_1",
        "name": "manuals",
        "created_at": NOW,
        "fingerprint": "",
        "dimension": 0,
        "last_generation": 1,
    },
    "documents": {
        "id": "doc_1",
        "collection_id": "col_1",
        "name": "press.pdf",
        "sha256": "",
        "size_bytes": 2,
        "generation": 1,
        "job_id": "job_1",
        "state": "queued",
        "created_at": NOW,
        "updated_at": NOW,
        "media_type": "",
        "title": "",
        "source_metadata": {},
        "stage": "",
        "pages_done": 0,
        "page_count": 0,
        "chunk_count": 0,
        "attempt": 0,
        "warnings": [],
    },
}


@pytest.fixture(params=list(DATABASES))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with DATABASES[request.param](tmp_path, request) as opened:
        yield opened


@pytest.fixture
def database(url: str) -> Iterator[SqlDatabase]:
    with closing(SqlDatabase(url)) as opened:
        yield opened


def test_the_migrated_schema_is_the_declared_one(database: SqlDatabase) -> None:
    database.migrate()

    with database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        differences = compare_metadata(context, metadata)

    assert differences == []


def test_constraints_have_the_declared_names(database: SqlDatabase) -> None:
    database.migrate()

    with database.read() as connection:
        inspector = sa.inspect(connection)
        for table in metadata.sorted_tables:
            names = {constraint["name"] for constraint in inspector.get_foreign_keys(table.name)}
            names |= {constraint["name"] for constraint in inspector.get_unique_constraints(table.name)}
            names.add(inspector.get_pk_constraint(table.name)["name"])
            assert names == {
                str(constraint.name)
                for constraint in table.constraints
                if not isinstance(constraint, sa.CheckConstraint)
            }, table.name


def test_migrating_again_changes_nothing(url: str) -> None:
    with closing(SqlCatalog(url)) as catalog:
        catalog.migrate()
        created = catalog.create_collection("manuals", now=NOW)

        catalog.migrate()

        assert catalog.list_collections() == [created]


def test_documents_of_the_first_schema_count_as_uploads(database: SqlDatabase, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    first = sa.MetaData()
    with database.write() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        first.reflect(connection)
        for name, row in FIRST_ROWS.items():
            connection.execute(sa.insert(first.tables[name]).values(row))

    database.migrate()

    with database.read() as connection:
        documents = connection.execute(sa.select(metadata.tables["documents"])).mappings().all()
    assert [(row["name"], row["parent_id"]) for row in documents] == [("press.pdf", None)]


def migrate_in_process(url: str) -> None:
    with closing(SqlCatalog(url)) as catalog:
        catalog.migrate()
        catalog.create_collection(f"of process {os.getpid()}", now=NOW)


def test_processes_may_migrate_at_once(url: str) -> None:
    context = multiprocessing.get_context("spawn")
    starters = [context.Process(target=migrate_in_process, args=(url,)) for _ in range(4)]

    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join()

    assert [starter.exitcode for starter in starters] == [0] * 4
    with closing(SqlCatalog(url)) as catalog:
        assert len(catalog.list_collections()) == 4


def test_a_database_of_a_newer_version_is_refused_and_left_alone(database: SqlDatabase) -> None:
    database.migrate()
    with database.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(ConfigurationError, match="9999"):
        database.migrate()

    assert "schema 9999" in database.describe()


def test_a_failed_transaction_leaves_nothing_behind(database: SqlDatabase) -> None:
    database.migrate()
    orphaned_files = metadata.tables["orphaned_files"]

    def fail_half_way() -> None:
        with database.write() as connection:
            connection.execute(sa.insert(orphaned_files).values(sha256="x"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()

    with database.read() as connection:
        assert connection.execute(sa.select(orphaned_files)).all() == []


def test_wrong_statements_stay_the_bugs_they_are(database: SqlDatabase) -> None:
    database.migrate()

    with pytest.raises(sa.exc.DBAPIError), database.write() as connection:
        connection.execute(sa.insert(metadata.tables["orphaned_files"]).values(sha256=None))


def test_a_time_without_zone_is_refused(database: SqlDatabase) -> None:
    database.migrate()

    with pytest.raises(sa.exc.StatementError, match="time zone"), database.read() as connection:
        connection.execute(sa.select(sa.literal(datetime(2026, 1, 1), UtcDateTime())))  # noqa: DTZ001 - the point


# -- SQLite


def test_sqlite_runs_in_wal_mode_with_foreign_keys_and_full_flushes(tmp_path: Path) -> None:
    with closing(SqlDatabase(f"sqlite:///{tmp_path / 'catalog.sqlite'}")) as database:
        database.migrate()

        with database.read() as connection:
            modes = [
                connection.scalar(sa.text(f"PRAGMA {name}"))
                for name in ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
            ]

    assert modes == ["wal", 1, 2, 30_000]


def test_a_damaged_sqlite_file_is_reported_as_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    path.write_bytes(b"this is not a database, whatever its name says" * 100)

    with closing(SqlCatalog(f"sqlite:///{path}")) as catalog, pytest.raises(CatalogUnavailableError):
        catalog.migrate()


def test_a_catalog_that_was_never_migrated_is_reported_as_unavailable(tmp_path: Path) -> None:
    with (
        closing(SqlCatalog(f"sqlite:///{tmp_path / 'catalog.sqlite'}")) as catalog,
        pytest.raises(CatalogUnavailableError),
    ):
        catalog.list_collections()


def test_a_folder_that_cannot_be_made_is_a_wrong_installation(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(ConfigurationError):
        SqlCatalog(f"sqlite:///{tmp_path / 'file' / 'catalog.sqlite'}").migrate()


# -- URLs


@pytest.mark.parametrize(
    "url", ["", "nonsense", "sqlite://", "sqlite:///:memory:", "mysql://user@host/name", "oracle://x"]
)
def test_a_url_that_cannot_hold_a_catalog_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        SqlCatalog(url)


def test_a_wrong_url_is_not_shown_with_its_password() -> None:
    with pytest.raises(ConfigurationError) as caught:
        SqlCatalog("postgresql//user:secret@host/name")

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+pg8000"])
def test_postgresql_that_does_not_answer_is_reported_as_unavailable(scheme: str) -> None:
    url = f"{scheme}://user:secret@127.0.0.1:{find_free_port()}/name"

    with closing(SqlCatalog(url)) as catalog:
        with pytest.raises(CatalogUnavailableError) as caught:
            catalog.list_collections()
        with pytest.raises(CatalogUnavailableError):
            catalog.migrate()

    assert "secret" not in str(caught.value)


def test_a_connection_that_the_server_cut_is_replaced(postgresql_url: str) -> None:
    with fresh_database(postgresql_url) as url, closing(SqlCatalog(url)) as catalog:
        catalog.migrate()
        catalog.list_collections()
        with closing(SqlDatabase(postgresql_url)) as admin, admin.read() as connection:
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'kb\\_%'"
            assert len(connection.execute(sa.text(cut)).all()) >= 1

        assert catalog.list_collections() == []
