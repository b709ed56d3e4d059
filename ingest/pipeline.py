"""IngestPipeline: one job from stored bytes to a searchable document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime

import structlog

from ingest.attachments import AttachmentIntake
from ingest.chunking import Chunker
from ingest.indexing import ChunkIndexer
from ingest.lease import JobLease
from ingest.warnings import summarise_warnings
from kb.errors import (
    BackendError,
    CallerError,
    ConfigurationError,
    DamagedFileError,
    DocumentError,
    JobCancelledError,
    JobNotFoundError,
    JobPausedError,
    NoTextFoundError,
)
from kb.ports import (
    Attachment,
    Catalog,
    DocumentReader,
    Embedder,
    IngestQueue,
    LexicalIndex,
    Passwords,
    ReadRequest,
    SourceFiles,
    StoredChunks,
    VectorStore,
)
from kb.types import Document, DocumentState, Job, ParsedDocument, Problem

_log = structlog.get_logger(__name__)

WORKER_STOPPED = Problem("worker_stopped", "the worker was stopped; the job goes on with the next one")

_MANY = 10_000


def _never() -> bool:
    return False


class IngestPipeline:
    """Runs jobs: parse, chunk, embed, write, activate.

    What it writes is named by content and generation, so a job may run twice, or die anywhere and
    start again. Nothing is visible before `Catalog.activate`.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        files: SourceFiles,
        reader: DocumentReader,
        embedder: Embedder,
        vectors: VectorStore,
        lexical: LexicalIndex,
        chunker: Chunker,
        intake: AttachmentIntake,
        queue: IngestQueue,
        passwords: Passwords,
        lease_s: float,
        max_attempts: int,
        batch_size: int,
        clock: Callable[[], datetime],
        pause_after_s: float = 10.0,
    ) -> None:
        """`chunker` must count with `embedder` and stay within its `max_tokens`.

        A stage that takes longer than `pause_after_s` lets other jobs go first.
        """
        self._catalog = catalog
        self._files = files
        self._reader = reader
        self._embedder = embedder
        self._vectors = vectors
        self._lexical = lexical
        self._chunker = chunker
        self._intake = intake
        self._queue = queue
        self._passwords = passwords
        self._lease_s = lease_s
        self._max_attempts = max_attempts
        self._indexer = ChunkIndexer(
            embedder=embedder, vectors=vectors, lexical=lexical, batch_size=batch_size
        )
        self._clock = clock
        self._pause_after_s = pause_after_s

    def run(self, job_id: str, *, worker: str, should_stop: Callable[[], bool] = _never) -> None:
        """Run the job to its end, or do nothing if there is nothing to do.

        How it ended stands in the catalog. Raises `BackendError` when a dependency failed; the job
        is queued again and may be run again later. Raises `JobPausedError` when the job lets others go
        first: it is queued, and shall be submitted again behind them. Once `should_stop` turns true the
        job is given back to the queue within a few seconds.
        """
        with structlog.contextvars.bound_contextvars(job_id=job_id):
            try:
                job = self._catalog.start_attempt(
                    job_id,
                    worker=worker,
                    lease_s=self._lease_s,
                    max_attempts=self._max_attempts,
                    now=self._clock(),
                )
            except JobNotFoundError:
                _log.info("job_is_gone")
                return
            if job is None:
                _log.info("job_skipped")
                return
            self._run_attempt(job, should_stop)

    def _run_attempt(self, job: Job, should_stop: Callable[[], bool]) -> None:
        lease = JobLease(
            catalog=self._catalog,
            job_id=job.id,
            lease_s=self._lease_s,
            clock=self._clock,
            should_stop=should_stop,
            pause_after_s=self._pause_after_s,
        )
        try:
            with lease:
                warnings, attachments = self._ingest(job, lease)
            document = self._activate(job, warnings, attachments)
            if document is None:
                self._leave(job.id)
            elif attachments:
                self._submit_attachments(document)
            _log.info("job_ended", state=document.state if document else DocumentState.CANCELLED)
        except JobCancelledError:
            # the catalog may have said so before the lease has noticed
            if should_stop() and not lease.has_ended:
                _log.info("job_released", code=WORKER_STOPPED.code)
                self._catalog.release_job(job.id, problem=WORKER_STOPPED, now=self._clock())
                return
            _log.info("job_cancelled")
            self._leave(job.id)
        except JobPausedError:
            _log.info("job_paused")
            self._catalog.pause_job(job.id, now=self._clock())
            raise
        except BackendError as error:
            _log.warning("job_released", code=error.code)
            with suppress(BackendError):
                self._catalog.release_job(job.id, problem=error.to_problem(), now=self._clock())
            raise
        except CallerError as error:
            # the document or the whole collection was deleted in the meantime
            _log.info("job_is_gone", code=error.code)
            self._leave(job.id)
        except (DocumentError, ConfigurationError) as error:
            _log.warning("job_failed", code=error.code)
            self._catalog.fail_job(job.id, problem=error.to_problem(), now=self._clock())
        except Exception as error:
            _log.error("job_failed", code="internal_error", exc_info=True)
            problem = Problem(
                "internal_error",
                f"an unexpected {type(error).__name__} ended the ingestion",
                "Look for this job's id in the worker's log, and report what it says.",
            )
            self._catalog.fail_job(job.id, problem=problem, now=self._clock())
        self._forget_password(job.id)
        self._remove_garbage()

    def _ingest(self, job: Job, lease: JobLease) -> tuple[list[Problem], list[Attachment]]:
        """Do all the work up to, not including, activation.

        Return the document's warnings and what came attached to it, whose bytes are stored.
        """
        document = replace(
            self._catalog.get_document(job.collection_id, job.document_id), generation=job.generation
        )
        password = self._passwords.find(job.id)
        parsed = self._parse(document, lease, password=password)
        warnings = summarise_warnings(parsed)
        page_count, attachment_count = len(parsed.pages), parsed.attachment_count
        chunks = self._chunker.chunk(parsed, document_id=document.id, generation=job.generation)
        if not chunks and not attachment_count:
            raise NoTextFoundError(f"no text was found in {document.name!r} ({page_count} pages)")
        stored = self._catalog.find_stored_chunks(job.id, chunks)
        if stored is not StoredChunks.SAME:
            self._catalog.save_parsed(job.id, parsed, now=self._clock())
        del parsed  # as large as all that follows together
        lease.enter(DocumentState.EMBEDDING, "embedding", page_count=page_count)
        self._catalog.claim_fingerprint(
            job.collection_id, fingerprint=self._embedder.fingerprint, dimension=self._embedder.dimension
        )
        self._vectors.ensure_collection(job.collection_id, dimension=self._embedder.dimension)

        def advance(share: float) -> None:
            lease.advance_by_share(share, page_count)

        if stored is StoredChunks.SAME:
            self._indexer.complete(job.collection_id, document.key, chunks, lease=lease, done=advance)
        else:
            if stored is StoredChunks.OTHER:
                # an earlier attempt has cut the text otherwise; the ids are the same
                self._indexer.remove(job.collection_id, document.key)
            self._catalog.save_chunks(job.id, chunks)
            self._indexer.add(job.collection_id, document.key, chunks, lease=lease, done=advance)
        lease.check()
        _log.info("document_written", pages=page_count, chunks=len(chunks))
        if not attachment_count:
            return warnings, []
        attachments, more = self._intake.take(document, password=password, is_cancelled=lease.should_end)
        if not chunks and not attachments:
            raise NoTextFoundError(f"no text was found in {document.name!r}, nor in what is attached to it")
        return [*warnings, *more], attachments

    def _activate(
        self, job: Job, warnings: Sequence[Problem], attachments: Sequence[Attachment]
    ) -> Document | None:
        """Make the document visible and register what came attached to it."""
        with self._files.guard() if attachments else nullcontext():
            for attachment in attachments:
                try:
                    self._files.get_path(attachment.stored.sha256)
                except DamagedFileError as error:
                    raise BackendError(
                        "the bytes of an attachment were deleted with another document"
                    ) from error
            return self._catalog.activate(
                job.id, warnings=warnings, now=self._clock(), attachments=attachments
            )

    def _submit_attachments(self, document: Document) -> None:
        """Queue what came attached; what fails here is queued by a later sweep."""
        try:
            queued = self._catalog.list_documents(
                document.collection_id, parent_id=document.id, state=DocumentState.QUEUED, limit=_MANY
            )
            for attached in queued:
                self._queue.submit(attached.job_id)
        except BackendError as error:
            _log.warning("attachments_wait_for_queue", document_id=document.id, code=error.code)
            return
        _log.info("attachments_queued", document_id=document.id, count=len(queued))

    def _parse(self, document: Document, lease: JobLease, *, password: str | None) -> ParsedDocument:
        """Return the pages; of a job that paused while it was embedding they are read from the cache."""
        was_embedding = document.state is DocumentState.EMBEDDING
        lease.enter(
            document.state if was_embedding else DocumentState.PARSING,
            "embedding" if was_embedding else "parsing",
            page_count=document.page_count,
            pages_done=document.pages_done,
        )
        request = ReadRequest(
            self._files.get_path(document.sha256),
            name=document.name,
            password=password,
            is_cancelled=lease.should_end,
            should_pause=lease.should_pause,
        )
        parsed = self._reader.read(request if was_embedding else replace(request, progress=lease.advance))
        lease.check()
        return parsed

    def _leave(self, job_id: str) -> None:
        """Say that this worker writes no more for a job that was cancelled, deleted or taken over."""
        with suppress(JobNotFoundError):
            self._catalog.finish_cancel(job_id, now=self._clock())

    def _forget_password(self, job_id: str) -> None:
        """Forget the password, unless another worker has taken the job over; a sweep does it otherwise."""
        with suppress(BackendError):
            try:
                ended = self._catalog.get_job(job_id).state.is_terminal
            except JobNotFoundError:
                ended = True
            if ended:
                self._passwords.forget(job_id)

    def _remove_garbage(self) -> None:
        """Remove what this job replaced; what fails here is removed by a later sweep."""
        try:
            for collection_id, key in self._catalog.list_garbage():
                self._indexer.remove(collection_id, key)
                self._catalog.forget_garbage(collection_id, key)
        except BackendError as error:
            _log.warning("garbage_left", code=error.code)
