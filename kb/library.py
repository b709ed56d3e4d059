"""Library: puts documents in, takes them out, and keeps catalog, files, indexes and queue in step."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import BinaryIO

import structlog

from kb.access import normalise_name
from kb.errors import (
    BackendError,
    CollectionExistsError,
    DamagedFileError,
    EmptyFileError,
    InvalidNameError,
    JobNotFoundError,
    UploadTooLargeError,
)
from kb.filenames import clean_filename
from kb.ports import (
    Catalog,
    IngestQueue,
    LexicalIndex,
    Passwords,
    SourceFiles,
    StoredFile,
    VectorStore,
)
from kb.progress import estimate_rest_s
from kb.types import Collection, Document, Job, Registration

DEFAULT_COLLECTION = "default"
NO_LIVE_WORKER = "no_live_worker"
QUEUE_UNAVAILABLE = "queue_unavailable"

_PATIENCE = timedelta(seconds=10)
_WORKER_COUNT_AGE = timedelta(seconds=5)
_SWEEP_LIMIT = 100

_log = structlog.get_logger("kb.library")


class Library:
    """The use cases around documents; may be used from several threads.

    The catalog is the truth. What the indexes and the queue could not be told in time is made up
    for by `sweep`, so that an upload or a deletion never waits for them.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        files: SourceFiles,
        queue: IngestQueue,
        vectors: VectorStore,
        lexical: LexicalIndex,
        passwords: Passwords,
        max_upload_bytes: int,
        clock: Callable[[], datetime],
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._queue = queue
        self._vectors = vectors
        self._lexical = lexical
        self._passwords = passwords
        self._max_upload_bytes = max_upload_bytes
        self._clock = clock
        self._workers_lock = threading.Lock()
        self._workers: tuple[datetime, str | None] | None = None

    @property
    def max_upload_bytes(self) -> int:
        """Largest file that `upload` accepts."""
        return self._max_upload_bytes

    # -- collections
    def ensure_default_collection(self) -> Collection:
        """Return the collection `default`, created if it is not there."""
        for collection in self._catalog.list_collections():
            if collection.name == DEFAULT_COLLECTION:
                return collection
        try:
            return self._catalog.create_collection(DEFAULT_COLLECTION, now=self._clock())
        except CollectionExistsError:
            return self._catalog.get_collection(DEFAULT_COLLECTION)

    def create_collection(self, name: str) -> Collection:
        """Create an empty collection.

        Raises `InvalidNameError` for a name that can't stand in a URL path or on one line, and
        `CollectionExistsError`.
        """
        name = normalise_name(name)
        hidden = any(unicodedata.category(char).startswith("C") for char in name)
        if not 1 <= len(name) <= 64 or hidden or name in {".", ".."} or set(name) & set("/\\"):
            raise InvalidNameError(
                f"{name!r} can't be the name of a collection",
                next_step="Use 1 to 64 letters, digits, spaces or signs, but no / or \\.",
            )
        return self._catalog.create_collection(name, now=self._clock())

    def delete_collection(self, name: str) -> None:
        """Remove a collection with its documents, index entries and bytes.

        The indexes go first: if one of them is down the collection is still listed and the
        deletion can be repeated.
        """
        collection = self._catalog.get_collection(name)
        self._delete_spaces(collection.id)
        self._catalog.delete_collection(collection.id)
        self._remove_orphaned_files()
        try:
            # once more: a worker may have written until the catalog told it to stop
            self._delete_spaces(collection.id)
        except BackendError as error:
            _log.warning("index_not_cleaned", collection_id=collection.id, code=error.code)
        _log.info("collection_deleted", collection_id=collection.id)

    # -- documents
    def upload(
        self,
        collection_name: str,
        *,
        name: str,
        stream: BinaryIO,
        force: bool = False,
        password: str | None = None,
        tags: Sequence[str] = (),
    ) -> Registration:
        """Keep the bytes, register the document and queue its job.

        Returns as soon as bytes and registration are safe; with the queue down the job waits for
        `sweep`. The password is kept in memory until the job ends. Tags take the place of former ones
        if there are any. Raises `CollectionNotFoundError`,
        `UploadTooLargeError`, `EmptyFileError` or `PasswordsUnavailableError`.
        """
        collection = self._catalog.get_collection(collection_name)
        shown = clean_filename(name)
        stored = self._save(stream, name=shown)
        if stored.size_bytes == 0:
            self._files.delete(stored.sha256)
            raise EmptyFileError(f"{shown!r} has no bytes")
        with self._files.guard():
            self._ensure_kept(stored, stream, name=shown)
            registration = self._catalog.register_document(
                collection.id, name=shown, stored=stored, media_type="", now=self._clock(), force=force
            )
        if tags:
            document = self._catalog.set_tags(collection.id, registration.document.id, tags)
            registration = replace(registration, document=document)
        try:
            if password and not registration.document.state.is_terminal:
                self._passwords.keep(registration.document.job_id, password)
        finally:
            if registration.job is not None:
                self._submit(registration.job.id)
        _log.info(
            "document_registered",
            document_id=registration.document.id,
            job_id=registration.document.job_id,
            size_bytes=stored.size_bytes,
            duplicate=registration.duplicate,
        )
        return registration

    def delete_document(self, collection_name: str, document_id: str, *, keep_attached: bool = False) -> None:
        """Hide the document and its attachments at once, then remove their bytes and index entries.

        With `keep_attached` it stays as an attachment if another document has it attached. An index
        that is down is cleaned by `sweep` later.
        """
        collection = self._catalog.get_collection(collection_name)
        self._catalog.begin_delete(collection.id, document_id, keep_attached=keep_attached)
        self._remove_orphaned_files()
        try:
            self._remove_garbage()
        except BackendError as error:
            _log.warning("garbage_left", document_id=document_id, code=error.code)
        _log.info("document_deleted", document_id=document_id)

    # -- jobs
    def cancel_job(self, job_id: str) -> Job:
        """Ask the job to stop; a running one stops when its worker notices."""
        job = self._catalog.cancel_job(job_id, now=self._clock())
        if job.state.is_terminal:
            self._passwords.forget(job_id)
        _log.info("job_cancel_requested", job_id=job_id, state=job.state.value)
        return job

    def retry_job(self, job_id: str) -> Job:
        """Queue a failed or cancelled job again; raises `JobStateError` for any other."""
        job = self._catalog.retry_job(job_id, now=self._clock())
        self._submit(job_id)
        _log.info("job_retried", job_id=job_id)
        return job

    def find_stalled_reason(self, job: Job) -> str | None:
        """Return why a job that nobody has touched for more than ten seconds does not go on, if known.

        A worker touches the job it runs every second or two.
        """
        now = self._clock()
        if job.state.is_terminal or now - job.updated_at <= _PATIENCE:
            return None
        with self._workers_lock:
            if self._workers is None or now - self._workers[0] > _WORKER_COUNT_AGE:
                self._workers = (now, self._probe_workers())
            return self._workers[1]

    def estimate_rest_s(self, job: Job, document: Document) -> float | None:
        """Return the seconds until the job's present stage ends, None if they can't be told."""
        return estimate_rest_s(job, document, now=self._clock())

    def sweep(self) -> None:
        """Remove garbage from indexes, files and passwords, and queue stalled jobs again.

        Each part is tried even if another failed; the first failure is raised at the end.
        """
        failure: BackendError | None = None
        for action in (
            self._remove_orphaned_files,
            self._remove_garbage,
            self._forget_passwords,
            self._resubmit_stalled,
        ):
            try:
                action()
            except BackendError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    # -- parts
    def _save(self, stream: BinaryIO, *, name: str) -> StoredFile:
        try:
            return self._files.save(stream, max_bytes=self._max_upload_bytes)
        except UploadTooLargeError as error:
            raise UploadTooLargeError(name, limit_bytes=error.limit_bytes) from None

    def _ensure_kept(self, stored: StoredFile, stream: BinaryIO, *, name: str) -> None:
        """Save again what a deletion removed between saving and registering."""
        try:
            self._files.get_path(stored.sha256)
        except DamagedFileError:
            stream.seek(0)
            self._save(stream, name=name)

    def _submit(self, job_id: str) -> None:
        try:
            self._queue.submit(job_id)
        except BackendError as error:
            _log.warning("job_waits_for_queue", job_id=job_id, code=error.code)

    def _probe_workers(self) -> str | None:
        try:
            return None if self._queue.get_live_workers() else NO_LIVE_WORKER
        except BackendError:
            return QUEUE_UNAVAILABLE

    def _delete_spaces(self, collection_id: str) -> None:
        self._vectors.delete_collection(collection_id)
        self._lexical.delete_collection(collection_id)

    def _remove_orphaned_files(self) -> None:
        with self._files.guard():
            for sha256 in self._catalog.list_orphaned_files(limit=_SWEEP_LIMIT):
                self._files.delete(sha256)
                self._catalog.forget_orphaned_file(sha256)

    def _remove_garbage(self) -> None:
        for collection_id, document_key in self._catalog.list_garbage(limit=_SWEEP_LIMIT):
            self._vectors.delete_document(collection_id, document_key)
            self._lexical.delete_document(collection_id, document_key)
            self._catalog.forget_garbage(collection_id, document_key)

    def _forget_passwords(self) -> None:
        """Forget the passwords of jobs that have ended or are gone."""
        for job_id in self._passwords.list_jobs():
            try:
                ended = self._catalog.get_job(job_id).state.is_terminal
            except JobNotFoundError:
                ended = True
            if ended:
                self._passwords.forget(job_id)

    def _resubmit_stalled(self) -> None:
        # while jobs wait for a worker, those that have not begun are most likely among them
        begun_only = self._queue.count_waiting() > 0
        stalled = self._catalog.list_stalled_jobs(
            now=self._clock(), begun_only=begun_only, limit=_SWEEP_LIMIT
        )
        for job_id in stalled:
            self._queue.submit(job_id)
        if stalled:
            _log.info("stalled_jobs_queued", count=len(stalled))
