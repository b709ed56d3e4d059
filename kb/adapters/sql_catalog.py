"""The catalog in SQLite or PostgreSQL: one method, one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kb.adapters import sql_catalog_attachments as attached
from kb.adapters import sql_catalog_collections as collections
from kb.adapters import sql_catalog_contents as contents
from kb.adapters import sql_catalog_documents as documents
from kb.adapters import sql_catalog_garbage as garbage
from kb.adapters import sql_catalog_jobs as jobs
from kb.adapters.sql_catalog_rows import read_document, read_job
from kb.adapters.sql_database import SqlDatabase
from kb.ports import Attachment, AttachmentUse, StoredChunks, StoredFile
from kb.types import (
    Chunk,
    Collection,
    Document,
    DocumentState,
    Job,
    JobState,
    Page,
    ParsedDocument,
    Problem,
    Registration,
)


class SqlCatalog:
    """Catalog in the database that `url` names, ready for use after `migrate`.

    `sqlite:///path` (WAL mode, many processes) or `postgresql://…`. Connects at the first call,
    not before; may be used from many threads, and in a child after a fork.
    """

    def __init__(self, url: str) -> None:
        self._database = SqlDatabase(url)
        # A worker that was silent for too long finds here that the lease is no longer its own.
        self._leases: dict[str, jobs.Lease] = {}

    def migrate(self) -> None:
        """Bring the schema to the newest revision; may be called by several processes at once.

        Raises `ConfigurationError` when the database was written by a newer version.
        """
        self._database.migrate()

    def close(self) -> None:
        """Close idle connections."""
        self._database.close()

    def ping(self) -> str:
        return self._database.describe()

    # -- collections
    def create_collection(self, name: str, *, now: datetime) -> Collection:
        with self._database.write() as c:
            return collections.create_collection(c, name, now=now)

    def get_collection(self, name: str) -> Collection:
        with self._database.read() as c:
            return collections.get_collection(c, name)

    def get_collection_by_id(self, collection_id: str) -> Collection:
        with self._database.read() as c:
            return collections.get_collection_by_id(c, collection_id)

    def list_collections(self) -> list[Collection]:
        with self._database.read() as c:
            return collections.list_collections(c)

    def delete_collection(self, collection_id: str) -> list[str]:
        with self._database.write() as c:
            return collections.delete_collection(c, collection_id)

    def claim_fingerprint(self, collection_id: str, *, fingerprint: str, dimension: int) -> None:
        with self._database.write() as c:
            collections.claim_fingerprint(c, collection_id, fingerprint=fingerprint, dimension=dimension)

    # -- documents
    def register_document(
        self,
        collection_id: str,
        *,
        name: str,
        stored: StoredFile,
        media_type: str,
        now: datetime,
        force: bool = False,
    ) -> Registration:
        with self._database.write() as c:
            return documents.register_document(
                c, collection_id, name=name, stored=stored, media_type=media_type, now=now, force=force
            )

    def get_document(self, collection_id: str, document_id: str) -> Document:
        with self._database.read() as c:
            return read_document(documents.get_document_row(c, collection_id, document_id))

    def list_documents(
        self,
        collection_id: str,
        *,
        state: DocumentState | None = None,
        parent_id: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[Document]:
        with self._database.read() as c:
            return documents.list_documents(
                c, collection_id, state=state, parent_id=parent_id, limit=limit, after=after
            )

    def measure_attachments(self, collection_id: str, document_id: str) -> AttachmentUse:
        with self._database.read() as c:
            return documents.measure_attachments(c, collection_id, document_id)

    def begin_delete(
        self, collection_id: str, document_id: str, *, keep_attached: bool = False
    ) -> str | None:
        with self._database.write() as c:
            row = documents.get_document_row(c, collection_id, document_id)
            if keep_attached:
                return attached.remove_upload(c, row)
            return attached.remove_document(c, row)

    # -- pages and chunks
    def save_parsed(self, job_id: str, parsed: ParsedDocument, *, now: datetime) -> None:
        with self._database.write() as c:
            contents.save_parsed(c, job_id, self._leases.get(job_id), parsed, now=now)

    def save_chunks(self, job_id: str, chunks: Sequence[Chunk]) -> None:
        with self._database.write() as c:
            contents.save_chunks(c, job_id, self._leases.get(job_id), chunks)

    def find_stored_chunks(self, job_id: str, chunks: Sequence[Chunk]) -> StoredChunks:
        with self._database.read() as c:
            return contents.find_stored_chunks(c, job_id, chunks)

    def activate(
        self,
        job_id: str,
        *,
        warnings: Sequence[Problem],
        now: datetime,
        attachments: Sequence[Attachment] = (),
    ) -> Document | None:
        with self._database.write() as c:
            document = contents.activate(
                c, job_id, self._leases.get(job_id), warnings=warnings, attachments=attachments, now=now
            )
        if document is not None:
            self._leases.pop(job_id, None)
        return document

    def get_pages(self, document_id: str, *, first: int = 1, last: int | None = None) -> list[Page]:
        with self._database.read() as c:
            return contents.get_pages(c, document_id, first=first, last=last)

    def find_laid_out_page(self, document_id: str, page_number: int) -> Page | None:
        with self._database.read() as c:
            return contents.find_laid_out_page(c, document_id, page_number)

    def list_chunks(self, document_id: str) -> list[Chunk]:
        with self._database.read() as c:
            return contents.list_chunks(c, document_id)

    def find_visible_chunks(self, chunk_ids: Sequence[str]) -> dict[str, tuple[Chunk, str]]:
        if not chunk_ids:
            return {}
        with self._database.read() as c:
            return contents.find_visible_chunks(c, chunk_ids)

    # -- what is left to remove
    def list_garbage(self, *, limit: int = 100) -> list[tuple[str, str]]:
        with self._database.read() as c:
            return garbage.list_garbage(c, limit=limit)

    def forget_garbage(self, collection_id: str, document_key: str) -> None:
        with self._database.write() as c:
            garbage.forget_garbage(c, collection_id, document_key)

    def list_orphaned_files(self, *, limit: int = 100) -> list[str]:
        with self._database.read() as c:
            return garbage.list_orphaned_files(c, limit=limit)

    def forget_orphaned_file(self, sha256: str) -> None:
        with self._database.write() as c:
            garbage.keep_orphaned_file(c, sha256)

    # -- jobs
    def get_job(self, job_id: str) -> Job:
        with self._database.read() as c:
            return read_job(jobs.get_job_row(c, job_id))

    def list_jobs(
        self,
        *,
        collection_id: str | None = None,
        state: JobState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[Job]:
        with self._database.read() as c:
            return jobs.list_jobs(c, collection_id=collection_id, state=state, limit=limit, after=after)

    def start_attempt(
        self, job_id: str, *, worker: str, lease_s: float, max_attempts: int, now: datetime
    ) -> Job | None:
        with self._database.write() as c:
            started = jobs.start_attempt(
                c, job_id, worker=worker, lease_s=lease_s, max_attempts=max_attempts, now=now
            )
        if started is None:
            return None
        job, self._leases[job_id] = started
        return job

    def find_lease_end(self, job_id: str) -> datetime | None:
        with self._database.read() as c:
            row = jobs.find_job_row(c, job_id)
            return None if row is None else row["lease_until"]

    def report_progress(
        self,
        job_id: str,
        *,
        state: DocumentState,
        stage: str,
        pages_done: int,
        page_count: int,
        rest_s: float | None,
        lease_s: float,
        now: datetime,
    ) -> bool:
        with self._database.write() as c:
            return jobs.report_progress(
                c,
                job_id,
                self._leases.get(job_id),
                state=state,
                stage=stage,
                pages_done=pages_done,
                page_count=page_count,
                rest_s=rest_s,
                lease_s=lease_s,
                now=now,
            )

    def fail_job(self, job_id: str, *, problem: Problem, now: datetime) -> None:
        with self._database.write() as c:
            jobs.fail_job(c, job_id, self._leases.get(job_id), problem=problem, now=now)
        self._leases.pop(job_id, None)

    def release_job(self, job_id: str, *, problem: Problem, now: datetime) -> None:
        with self._database.write() as c:
            jobs.release_job(c, job_id, self._leases.get(job_id), problem=problem, now=now)
        self._leases.pop(job_id, None)

    def pause_job(self, job_id: str, *, now: datetime) -> None:
        with self._database.write() as c:
            jobs.pause_job(c, job_id, self._leases.get(job_id), now=now)
        self._leases.pop(job_id, None)

    def has_waiting_jobs(self, *, besides: str) -> bool:
        with self._database.read() as c:
            return jobs.has_waiting_jobs(c, besides=besides)

    def cancel_job(self, job_id: str, *, now: datetime) -> Job:
        with self._database.write() as c:
            return jobs.cancel_job(c, job_id, now=now)

    def finish_cancel(self, job_id: str, *, now: datetime) -> None:
        with self._database.write() as c:
            jobs.finish_cancel(c, job_id, self._leases.get(job_id), now=now)
        self._leases.pop(job_id, None)

    def retry_job(self, job_id: str, *, now: datetime) -> Job:
        with self._database.write() as c:
            return jobs.retry_job(c, job_id, now=now)

    def list_stalled_jobs(self, *, now: datetime, begun_only: bool = False, limit: int = 100) -> list[str]:
        with self._database.write() as c:
            return jobs.list_stalled_jobs(c, now=now, begun_only=begun_only, limit=limit)

    # -- counts
    def count_documents(self) -> dict[DocumentState, int]:
        with self._database.read() as c:
            return documents.count_documents(c)

    def count_jobs(self) -> dict[JobState, int]:
        with self._database.read() as c:
            return jobs.count_jobs(c)
