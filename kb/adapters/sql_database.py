"""Transactions on SQLite or PostgreSQL with the catalog's schema, and the errors they end in."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import event, exc
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from kb.errors import CatalogUnavailableError, ConfigurationError

_MIGRATIONS = Path(__file__).parents[1] / "migrations"
_BUSY_TIMEOUT_S = 30.0
# Any constant will do as long as every version uses the same: it names the lock in the server.
_ADVISORY_LOCK = 0x6B62_0001
# Raised for wrong statements or values, which no retry mends: those are bugs and stay what they are.
_BUGS = (exc.IntegrityError, exc.DataError, exc.ProgrammingError, exc.NotSupportedError)
_BUG_CLASSES = ("22", "23", "42")  # data, integrity, syntax: PostgreSQL manual, appendix A


class SqlDatabase:
    """Opens read and write transactions; connects at the first one, not before.

    Write transactions exclude each other on both databases (BEGIN IMMEDIATE, advisory lock): they
    are short, and what a catalog method reads stays true until it commits. One object may be used
    from many threads, and in a child after a fork.
    """

    def __init__(self, url: str) -> None:
        self._url = parse_url(url)
        self._engine = _create_engine(self._url)
        self._writer = self._engine.execution_options(kb_write=True)
        self._pid = os.getpid()
        self._fork_guard = threading.Lock()

    @property
    def _is_sqlite(self) -> bool:
        return self._engine.dialect.name == "sqlite"

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction that changes nothing."""
        self._forget_inherited_connections()
        with _translated_errors(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Yield a connection in the only write transaction of this moment; commits at the end."""
        self._forget_inherited_connections()
        with _translated_errors(), self._writer.begin() as connection:
            if not self._is_sqlite:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
            yield connection

    def migrate(self) -> None:
        """Bring the schema to the newest revision; may be called by several processes at once.

        Raises `ConfigurationError` when the database was written by a newer version.
        """
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        head = ScriptDirectory.from_config(config).get_current_head()
        with self._start_lock():
            if self._is_sqlite:
                self._switch_to_wal()
            with self.write() as connection:
                if get_revision(connection) == head:
                    return
                config.attributes["connection"] = connection
                try:
                    command.upgrade(config, "head")
                except CommandError as error:
                    raise ConfigurationError(
                        f"the catalog has schema {get_revision(connection)!r}, this version knows {head!r}",
                        next_step="Install the version that wrote the catalog, or a newer one.",
                    ) from error

    def describe(self) -> str:
        """Return the product, its version and the schema revision."""
        with self.read() as connection:
            version = ".".join(map(str, connection.dialect.server_version_info or ()))
            name = "SQLite" if self._is_sqlite else "PostgreSQL"
            return f"{name} {version}, schema {get_revision(connection)}"

    def close(self) -> None:
        """Close idle connections; the object may be used again."""
        self._engine.dispose()

    def _forget_inherited_connections(self) -> None:
        if self._pid == os.getpid():
            return
        with self._fork_guard:
            if self._pid != os.getpid():
                # They belong to the parent, which goes on using them: leave them open.
                self._engine.dispose(close=False)
                self._pid = os.getpid()

    @contextmanager
    def _start_lock(self) -> Iterator[None]:
        """Let one process at a time create or convert a SQLite file: busy_timeout does not cover that."""
        if not self._is_sqlite:
            yield
            return
        path = Path(self._url.database or "")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.with_name(f"{path.name}.lock").open("w")
        except OSError as error:
            raise ConfigurationError(
                f"the catalog's folder {str(path.parent)!r} cannot be written: {error.strerror}",
                next_step="Correct KB_DATA_DIR or KB_DATABASE_URL, or the folder's permissions.",
            ) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _switch_to_wal(self) -> None:
        with _translated_errors(), self._engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            raw.execute("PRAGMA journal_mode = WAL")


def get_revision(connection: sa.Connection) -> str | None:
    """Return the schema revision, None for an empty database."""
    return MigrationContext.configure(connection).get_current_revision()


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        with nullcontext():
            yield
    except (exc.DBAPIError, exc.TimeoutError, OSError) as error:
        if isinstance(error, exc.DBAPIError) and _is_bug(error):
            raise
        reason = str(error.orig if isinstance(error, exc.DBAPIError) else error).strip()
        raise CatalogUnavailableError(f"the catalog's database does not answer: {reason}") from error


def _is_bug(error: exc.DBAPIError) -> bool:
    """Return whether the statement or its values are wrong.

    PostgreSQL's driver calls every error of the server a ProgrammingError; there the SQLSTATE class tells.
    """
    details = error.orig.args[0] if error.orig is not None and error.orig.args else None
    if isinstance(details, dict) and "C" in details:
        return str(details["C"])[:2] in _BUG_CLASSES
    return isinstance(error, _BUGS)


def parse_url(url: str) -> sa.URL:
    """Return the URL with its driver; raises `ConfigurationError` if the catalog can't live there."""
    try:
        parsed = sa.make_url(url)
    except exc.ArgumentError as error:
        raise ConfigurationError(
            "the catalog's database URL cannot be read",  # not shown: it may hold a password
            next_step="Write KB_DATABASE_URL as sqlite:////path/to/file or postgresql://user@host/name.",
        ) from error
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = _use_pg8000(parsed)
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigurationError(
            f"the catalog cannot live in a {parsed.get_backend_name()!r} database",
            next_step="Use a sqlite:/// or postgresql:// URL in KB_DATABASE_URL.",
        )
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigurationError(
            "the catalog needs a SQLite file, not a database in memory",
            next_step="Give KB_DATABASE_URL a path: sqlite:////path/to/file.",
        )
    return parsed


def _use_pg8000(url: sa.URL) -> sa.URL:
    """Turn the usual way to name a socket's folder, `?host=/folder&port=N`, into this driver's."""
    folder = url.query.get("host")
    if not isinstance(folder, str):
        return url.set(drivername="postgresql+pg8000")
    socket = f"{folder}/.s.PGSQL.{url.query.get('port', '5432')}"
    url = url.difference_update_query(["host", "port"]).update_query_dict({"unix_sock": socket})
    return url.set(drivername="postgresql+pg8000")


def _create_engine(url: sa.URL) -> sa.Engine:
    if url.get_backend_name() == "sqlite":
        # No pool: a SQLite connection must not cross a fork, and opening one is cheap.
        engine = sa.create_engine(url, poolclass=NullPool, connect_args={"timeout": _BUSY_TIMEOUT_S})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    engine = sa.create_engine(url, connect_args={"timeout": 10})
    driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error

    def require_living(dbapi_connection: Any, _record: ConnectionPoolEntry, _proxy: object) -> None:
        # What `pool_pre_ping` does, which does not know that this driver lets the socket's errors through.
        try:
            cursor = dbapi_connection.cursor()
            cursor.execute("SELECT 1")
            cursor.close()
            dbapi_connection.rollback()
        except (OSError, driver_error) as error:
            raise exc.InvalidatePoolError("the server has closed the connection") from error

    event.listen(engine, "checkout", require_living)
    return engine


def _prepare_sqlite(dbapi_connection: Any, _record: ConnectionPoolEntry) -> None:
    # The driver must not begin transactions by itself: it would begin them too late, see _begin_sqlite.
    dbapi_connection.isolation_level = None
    dbapi_connection.execute("PRAGMA foreign_keys = ON")
    # FULL: an upload that was answered with 202 survives a power cut, not only a crash.
    dbapi_connection.execute("PRAGMA synchronous = FULL")


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that reads first and writes later would fail at once when another one wrote in
    # between; taking the write lock at the beginning waits for it instead.
    is_write = connection.get_execution_options().get("kb_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")
