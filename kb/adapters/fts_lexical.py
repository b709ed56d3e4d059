"""BM25 by SQLite's FTS5, one full-text table per collection, in one file for all processes."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kb.errors import ConfigurationError, LexicalIndexUnavailableError
from kb.lexemes import CODE_PREFIX, code_term, list_query_terms, list_single_characters, tokenise
from kb.ports import LexicalEntry
from kb.types import ScoredId

_FORMAT = 1
_BUSY_TIMEOUT_S = 30.0
# Terms beyond the first hundreds of a pasted page cost time and no longer change what is found.
_MAX_QUERY_TERMS = 400
# A single character that more entries hold is left to the pairs: scoring it would take longer than the rest.
_MAX_HOLDERS = 2000
# Entries that are scored for a query, summed over its terms, rarest first: what nearly every entry holds weighs
# next to nothing and takes nearly all of the time.
_MAX_SCORED = 30_000
_COUNTS_KEPT = 20_000
_COUNT_AGE_S = 300.0

# A table of full text can be searched by rowid and by term only; this one says what the rows are.
_SCHEMA = """
CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    collection_id TEXT NOT NULL,
    chunk_id TEXT NOT NULL,
    document_key TEXT NOT NULL,
    UNIQUE (collection_id, chunk_id)
);
CREATE INDEX entries_by_document ON entries (collection_id, document_key);
"""


class FtsLexicalIndex:
    """Lexical index in the SQLite file `path` (WAL mode), which is created at the first call.

    Many processes may read and write at once; usable in a child after a fork.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[sqlite3.Connection] = []
        self._inherited: list[sqlite3.Connection] = []
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], tuple[int, float]] = {}

    def close(self) -> None:
        """Close idle connections; the object may be used again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def upsert(self, collection_id: str, entries: Sequence[LexicalEntry]) -> None:
        rows = [(entry.chunk_id, entry.document_key, " ".join(tokenise(entry.text))) for entry in entries]
        table = _table(collection_id)
        with self._transaction("IMMEDIATE") as connection:
            # The table's own tokenizer only cuts at spaces: what is beyond ASCII stays whole.
            connection.execute(
                f"CREATE VIRTUAL TABLE IF NOT EXISTS {table} "
                "USING fts5(terms, tokenize = \"ascii tokenchars '_'\")"
            )
            for chunk_id, document_key, terms in rows:
                (rowid,) = connection.execute(
                    "INSERT INTO entries (collection_id, chunk_id, document_key) VALUES (?, ?, ?) "
                    "ON CONFLICT (collection_id, chunk_id) "
                    "DO UPDATE SET document_key = excluded.document_key RETURNING id",
                    (collection_id, chunk_id, document_key),
                ).fetchone()
                connection.execute(
                    f"INSERT OR REPLACE INTO {table} (rowid, terms) VALUES (?, ?)",  # noqa: S608 - quoted
                    (rowid, terms),
                )

    def query(
        self, collection_id: str, text: str, *, top_k: int, document_keys: Sequence[str] | None = None
    ) -> list[ScoredId]:
        terms = list_query_terms(text)[:_MAX_QUERY_TERMS]
        singles = list_single_characters(text)[: _MAX_QUERY_TERMS - len(terms)]
        return self._rank(collection_id, terms, singles=singles, top_k=top_k, document_keys=document_keys)

    def find_code(
        self, collection_id: str, code: str, *, top_k: int, document_keys: Sequence[str] | None = None
    ) -> list[ScoredId]:
        return self._rank(collection_id, [code_term(code)], top_k=top_k, document_keys=document_keys)

    def list_codes(self, collection_id: str, *, prefix: str = "") -> list[str]:
        first = f"{CODE_PREFIX}{prefix.lower()}"
        with self._transaction("DEFERRED") as connection:
            if not _exists(connection, collection_id):
                return []
            # a table of the terms themselves; it belongs to this connection and costs nothing to make
            connection.execute(
                f"CREATE VIRTUAL TABLE temp.terms_now USING fts5vocab('main', {_table(collection_id)}, 'row')"
            )
            try:
                rows = connection.execute(
                    "SELECT term FROM temp.terms_now WHERE term >= ? AND term < ? ORDER BY term",
                    (first, f"{first}\x7f"),
                ).fetchall()
            finally:
                connection.execute("DROP TABLE temp.terms_now")
        return [term.removeprefix(CODE_PREFIX).upper() for (term,) in rows]

    def delete_document(self, collection_id: str, document_key: str) -> None:
        where, values = "collection_id = ? AND document_key = ?", (collection_id, document_key)
        table = _table(collection_id)
        with self._transaction("IMMEDIATE") as connection:
            if not _exists(connection, collection_id):
                return
            connection.execute(
                f"DELETE FROM {table} WHERE rowid IN (SELECT id FROM entries WHERE {where})",  # noqa: S608 - quoted
                values,
            )
            connection.execute(f"DELETE FROM entries WHERE {where}", values)  # noqa: S608 - a constant
            # What a worker wrote after its collection was deleted must not leave an empty table.
            rest = connection.execute(
                "SELECT 1 FROM entries WHERE collection_id = ? LIMIT 1", (collection_id,)
            )
            if rest.fetchone() is None:
                connection.execute(f"DROP TABLE {table}")

    def delete_collection(self, collection_id: str) -> None:
        with self._transaction("IMMEDIATE") as connection:
            connection.execute(f"DROP TABLE IF EXISTS {_table(collection_id)}")
            connection.execute("DELETE FROM entries WHERE collection_id = ?", (collection_id,))

    def list_chunk_ids(self, collection_id: str, document_key: str) -> set[str]:
        query = "SELECT chunk_id FROM entries WHERE collection_id = ? AND document_key = ?"
        with self._transaction("DEFERRED") as connection:
            return {row[0] for row in connection.execute(query, [collection_id, document_key])}

    def count(self, collection_id: str, *, document_key: str | None = None) -> int:
        query, values = "SELECT count(*) FROM entries WHERE collection_id = ?", [collection_id]
        if document_key is not None:
            query, values = f"{query} AND document_key = ?", [*values, document_key]
        with self._transaction("DEFERRED") as connection:
            return int(connection.execute(query, values).fetchone()[0])

    def ping(self) -> str:
        with self._transaction("DEFERRED") as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return f"SQLite {sqlite3.sqlite_version}, FTS5, format {_FORMAT}"

    def _rank(
        self,
        collection_id: str,
        terms: Sequence[str],
        *,
        singles: Sequence[str] = (),
        top_k: int,
        document_keys: Sequence[str] | None,
    ) -> list[ScoredId]:
        if not terms or top_k < 1:
            return []
        table = _table(collection_id)
        with self._transaction("DEFERRED") as connection:
            if not _exists(connection, collection_id):
                return []
            counts = self._count_holders(connection, collection_id, [*terms, *singles])
            rare = [term for term in singles if 0 < counts[term] <= _MAX_HOLDERS]
            # Quoted, so that AND, NEAR or a column name is a word; terms hold no quotes themselves.
            match = " OR ".join(f'"{term}"' for term in _choose(terms, rare, counts))
            if not match:
                return []
            among = ""
            values: list[str | int] = [match]
            if document_keys is not None:
                among = "AND entries.document_key IN (SELECT value FROM json_each(?)) "
                values.append(json.dumps(list(document_keys)))
            rows = connection.execute(
                f"SELECT entries.chunk_id, found.rank FROM {table} AS found "  # noqa: S608 - quoted
                f"JOIN entries ON entries.id = found.rowid WHERE found.terms MATCH ? {among}"
                "ORDER BY found.rank, entries.chunk_id LIMIT ?",
                [*values, top_k],
            ).fetchall()
        return [ScoredId(chunk_id, -rank) for chunk_id, rank in rows]

    def _count_holders(
        self, connection: sqlite3.Connection, collection_id: str, terms: Sequence[str]
    ) -> dict[str, int]:
        """Return how many entries hold each term, as of a few minutes ago at most.

        Counting a common term reads its whole list, so counts are kept for a while.
        """
        now_s = time.monotonic()
        with self._lock:
            known = {
                term: kept[0]
                for term in terms
                if (kept := self._counts.get((collection_id, term))) and now_s - kept[1] < _COUNT_AGE_S
            }
        missing = [term for term in dict.fromkeys(terms) if term not in known]
        counted = _read_counts(connection, collection_id, missing) if missing else {}
        with self._lock:
            if len(self._counts) + len(counted) > _COUNTS_KEPT:
                self._counts.clear()
            # rare ones are counted at once, and a new document may bring more of them
            self._counts |= {
                (collection_id, term): (count, now_s)
                for term, count in counted.items()
                if count > _MAX_HOLDERS
            }
        return known | counted

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        try:
            connection = self._borrow()
            try:
                connection.execute(f"BEGIN {kind}")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.close()  # rolls back
                raise
        except sqlite3.Error as error:
            raise LexicalIndexUnavailableError(
                f"the lexical index {str(self._path)!r} cannot be used: {error}"
            ) from error
        with self._lock:
            self._idle.append(connection)

    def _borrow(self) -> sqlite3.Connection:
        with self._lock:
            if self._pid != os.getpid():
                # The parent's connections must not even be closed here: keep them, unused.
                self._inherited += self._idle
                self._idle, self._pid = [], os.getpid()
            if self._idle:
                return self._idle.pop()
        return self._open()

    def _open(self) -> sqlite3.Connection:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LexicalIndexUnavailableError(f"{str(self._path.parent)!r}: {error.strerror}") from error
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            # A document that is shown as ready is in the index, also after a power cut.
            connection.execute("PRAGMA synchronous = FULL")
            if _read_format(connection) != _FORMAT:
                self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # Conversion to WAL ignores the busy timeout: let one process at a time try it.
        with self._path.with_name(f"{self._path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = _read_format(connection)
            if found > _FORMAT:
                raise ConfigurationError(
                    f"the lexical index has format {found}, this version knows {_FORMAT}",
                    next_step="Install the version that wrote it, or a newer one.",
                )
            if found == 0:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_FORMAT}; COMMIT;")


def _read_format(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _table(collection_id: str) -> str:
    """Return the quoted name of the collection's full-text table."""
    return '"{}"'.format(_table_name(collection_id).replace('"', '""'))


def _table_name(collection_id: str) -> str:
    return f"terms_{collection_id}"


def _choose(terms: Sequence[str], rare: Sequence[str], counts: Mapping[str, int]) -> list[str]:
    """Return the terms to score, rarest first, as many as may be scored; at least one, then `rare` ones."""
    chosen: list[str] = []
    scored = 0
    for term in [*sorted(filter(counts.get, terms), key=counts.__getitem__), *rare]:
        scored += counts[term]
        if chosen and scored > _MAX_SCORED:
            break
        chosen.append(term)
    return chosen


def _read_counts(connection: sqlite3.Connection, collection_id: str, terms: Sequence[str]) -> dict[str, int]:
    """Return how many entries hold each term; the vocabulary is a view of the connection's own."""
    name = '"{}"'.format(f"words_{collection_id}".replace('"', '""'))
    connection.execute(
        f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.{name} USING fts5vocab(main, {_table(collection_id)}, row)"
    )
    counts = dict.fromkeys(terms, 0)
    for term in terms:
        row = connection.execute(f"SELECT doc FROM temp.{name} WHERE term = ?", (term,)).fetchone()  # noqa: S608 - quoted
        if row is not None:
            counts[term] = int(row[0])
    return counts


def _exists(connection: sqlite3.Connection, collection_id: str) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (_table_name(collection_id),))
    return found.fetchone() is not None
