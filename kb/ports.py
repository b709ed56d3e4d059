"""What the core needs from outside, as Protocols; each docstring is the promise adapters keep.

Unless a method says otherwise: calls may come from several threads, a repeated call has the same
effect as one, and a dependency that does not answer raises the `BackendError` named in the class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum, auto
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from kb.access import ApiKey, AuditEvent
from kb.types import (
    Chunk,
    Collection,
    Document,
    DocumentState,
    GenerationEvent,
    GenerationRequest,
    Job,
    JobState,
    Message,
    Page,
    ParsedDocument,
    Passage,
    Problem,
    Registration,
    ScoredId,
)

Vectors = npt.NDArray[np.float32]

PageProgress = Callable[[int, int], None]
"""Called with (pages done, pages in all) while a document is parsed."""


def _ignore(pages_done: int, page_count: int) -> None:
    """Take progress and do nothing."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A file that a `DocumentReader` shall read, and who watches.

    `name` is what the user calls it. `is_cancelled` and `should_pause` are asked twice a second or so.
    """

    path: Path
    name: str
    password: str | None = field(default=None, repr=False)
    progress: PageProgress = _ignore
    is_cancelled: Callable[[], bool] = _never
    should_pause: Callable[[], bool] = _never


@dataclass(frozen=True, slots=True)
class VectorRecord:
    """A chunk's vector; `document_key` is `Document.key`."""

    chunk_id: str
    document_key: str
    vector: Vectors
    language: str = ""


@dataclass(frozen=True, slots=True)
class LexicalEntry:
    """A chunk's text for the lexical index; `document_key` is `Document.key`."""

    chunk_id: str
    document_key: str
    text: str


class StoredChunks(Enum):
    """What the catalog holds of a job's chunks."""

    NONE = auto()
    SAME = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Bytes that are safe on disk."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that came attached to a document; `name` is its own, clean and without its parent's."""

    name: str
    stored: StoredFile


@dataclass(frozen=True, slots=True)
class AttachmentUse:
    """What an upload has brought along.

    `depth` says how many documents stand above this one. `count` and `size_bytes` are of all that is
    attached below the topmost of them, without what is below this one.
    """

    depth: int = 0
    count: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class AttachmentLimits:
    """How much may be taken out of a file; `max_bytes` holds for each attachment."""

    max_count: int
    max_bytes: int
    max_total_bytes: int


class LeaveReason(StrEnum):
    """Why an attachment is left where it is."""

    TOO_MANY = "too_many"
    TOO_LARGE = "too_large"
    TOO_DEEP = "too_deep"
    EMPTY = "empty"
    UNREADABLE = "unreadable"
    SMALL_PICTURE = "small_picture"
    CALENDAR = "calendar"
    SIGNATURE = "signature"
    DELIVERY = "delivery"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An attachment that was not taken."""

    name: str
    reason: LeaveReason


@dataclass(frozen=True, slots=True)
class FoundAttachments:
    """What is attached to a file, by clean names that differ from each other.

    `left_out` was beyond a limit or could not be read; `skipped` are parts that are no documents,
    such as signatures.
    """

    files: tuple[tuple[str, Path], ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    skipped: tuple[LeftOut, ...] = ()


class Parser(Protocol):
    """Turns one file of a known format into pages."""

    def parse(self, path: Path, *, name: str, password: str | None, progress: PageProgress) -> ParsedDocument:
        """Return the pages in order; raises a `DocumentError` when nothing usable is in the file."""
        ...


class DocumentReader(Protocol):
    """Parses any file in a contained way: a file can end badly, the caller can't."""

    def read(self, request: ReadRequest) -> ParsedDocument:
        """Return the parsed document.

        Raises a `DocumentError` (time and memory limits included), or `JobCancelledError` within
        a few seconds after `is_cancelled` turns true. Once `should_pause` turns true it may raise
        `JobPausedError`: never before it has got ahead, and what was read is not read again by the
        next call for the same file.
        """
        ...

    def read_attachments(
        self, request: ReadRequest, *, limits: AttachmentLimits, folder: Path
    ) -> FoundAttachments:
        """Write what is attached to new files in `folder`, whose names have nothing to do with theirs.

        What is attached to attachments stays in them. Raises like `read`, but never pauses.
        """
        ...


class SourceFiles(Protocol):
    """Keeps uploaded bytes by their SHA-256."""

    def save(self, stream: BinaryIO, *, max_bytes: int) -> StoredFile:
        """Copy the stream to disk in pieces and flush it; the same bytes twice are one file.

        Raises `UploadTooLargeError` beyond `max_bytes`; then nothing is kept.
        """
        ...

    def get_path(self, sha256: str) -> Path:
        """Return where the bytes lie; raises `DamagedFileError` when they are gone."""
        ...

    def delete(self, sha256: str) -> None:
        """Forget the bytes; absent bytes are no error."""
        ...

    def guard(self) -> AbstractContextManager[None]:
        """Keep others, threads and processes, out of their guarded blocks until this one ends.

        Held while bytes and what the catalog says of them change together: a deletion must not take
        away the bytes that somebody has just found to be there. Not to be entered twice by one thread.
        """
        ...


class Passwords(Protocol):
    """Keeps the passwords of documents between upload and ingestion, in memory only."""

    def keep(self, job_id: str, password: str) -> None:
        """Keep the password until `forget`, instead of a former one.

        Raises `PasswordsUnavailableError` when it could not be kept off the disks.
        """
        ...

    def find(self, job_id: str) -> str | None:
        """Return the password of the job, None if there is none (any more)."""
        ...

    def forget(self, job_id: str) -> None:
        """Remove the password; an absent one is no error."""
        ...

    def list_jobs(self) -> list[str]:
        """Return the ids of the jobs with a password, sorted."""
        ...


class Embedder(Protocol):
    """Text to unit vectors. Texts longer than `max_tokens` raise ValueError, never truncate."""

    @property
    def fingerprint(self) -> str:
        """Name of the vector space: model files, prompts and pooling, as a short stable string."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    @property
    def max_tokens(self) -> int:
        """Longest passage in tokens, prompt and special tokens already taken off."""
        ...

    def count_tokens(self, text: str) -> int:
        """Return the tokens of `text` alone, without prompt and special tokens."""
        ...

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return one row per text, in order; float32, shape (len(texts), dimension), unit length."""
        ...

    def embed_query(self, text: str) -> Vectors:
        """Return one vector; float32, shape (dimension,), unit length. Long queries are cut."""
        ...


class VectorStore(Protocol):
    """Nearest neighbours by cosine; raises `VectorStoreUnavailableError`."""

    def ensure_collection(self, collection_id: str, *, dimension: int) -> None:
        """Create the collection's space unless it is there."""
        ...

    def upsert(self, collection_id: str, records: Sequence[VectorRecord]) -> None:
        """Add or replace by chunk id; any number of records."""
        ...

    def query(
        self, collection_id: str, vector: Vectors, *, top_k: int, language: str | None = None
    ) -> list[ScoredId]:
        """Return up to `top_k` chunks, best first, of one `VectorRecord.language` if it is given.

        Score is the cosine, -1..1. An unknown collection gives an empty list.
        """
        ...

    def fetch_vectors(self, collection_id: str, chunk_ids: Sequence[str]) -> dict[str, Vectors]:
        """Return the stored vectors by chunk id; unknown ids are left out."""
        ...

    def delete_document(self, collection_id: str, document_key: str) -> None:
        """Remove every vector with this document key."""
        ...

    def delete_collection(self, collection_id: str) -> None:
        """Remove the collection's space; an unknown one is no error."""
        ...

    def list_chunk_ids(self, collection_id: str, document_key: str) -> set[str]:
        """Return the ids of the chunks stored with this document key; unknown ones give none."""
        ...

    def count(self, collection_id: str, *, document_key: str | None = None) -> int:
        """Return the number of vectors, of one document if a key is given; unknown ones give 0."""
        ...

    def ping(self) -> str:
        """Return the version of the store, or raise."""
        ...


class LexicalIndex(Protocol):
    """BM25 over words, Chinese bigrams and codes; raises `LexicalIndexUnavailableError`."""

    def upsert(self, collection_id: str, entries: Sequence[LexicalEntry]) -> None:
        """Add or replace by chunk id; creates the collection's index if needed."""
        ...

    def query(self, collection_id: str, text: str, *, top_k: int) -> list[ScoredId]:
        """Return up to `top_k` chunks that share a term with `text`, best first; score > 0.

        Any string is a valid query: operators and quotes have no special meaning.
        """
        ...

    def find_code(self, collection_id: str, code: str, *, top_k: int) -> list[ScoredId]:
        """Return chunks in which the canonical `code` (see `kb.codes`) stands, best first."""
        ...

    def list_codes(self, collection_id: str, *, prefix: str = "") -> list[str]:
        """Return the canonical codes that begin so, sorted; also those of documents not visible."""
        ...

    def delete_document(self, collection_id: str, document_key: str) -> None:
        """Remove every entry with this document key."""
        ...

    def delete_collection(self, collection_id: str) -> None:
        """Remove the collection's index; an unknown one is no error."""
        ...

    def list_chunk_ids(self, collection_id: str, document_key: str) -> set[str]:
        """Return the ids of the chunks stored with this document key; unknown ones give none."""
        ...

    def count(self, collection_id: str, *, document_key: str | None = None) -> int:
        """Return the number of entries, of one document if a key is given; unknown ones give 0."""
        ...

    def ping(self) -> str:
        """Return the version of the index, or raise."""
        ...


class Reranker(Protocol):
    """Puts passages in a better order."""

    def rerank(self, query: str, passages: Sequence[Passage]) -> list[Passage]:
        """Return the same passages, best first, with new ranks and a `rerank` entry in `scores`."""
        ...


class PromptCounter(Protocol):
    """Counts tokens as the generator's runtime does."""

    def count_text(self, text: str) -> int:
        """Return the tokens of plain text; markup-like text counts as plain characters."""
        ...

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Return the tokens of the rendered chat template, generation prompt included."""
        ...

    def neutralise(self, text: str) -> str:
        """Return `text` so that no token of it is a special token of the model."""
        ...


class Generator(Protocol):
    """Prompt to text; raises `GeneratorUnavailableError`."""

    @property
    def name(self) -> str:
        """The model's name as shown in answers."""
        ...

    @property
    def mode(self) -> str:
        """`generated` for a model that writes, `extractive` for one that quotes."""
        ...

    def get_context_limit(self) -> int:
        """Return the longest prompt plus answer in tokens."""
        ...

    def stream(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        """Yield deltas, then exactly one `GenerationEnd`. Closing the iterator stops the model."""
        ...

    def ping(self) -> str:
        """Return a line about the runtime, or raise."""
        ...


class IngestQueue(Protocol):
    """Hands jobs to workers; raises `QueueUnavailableError`. Jobs are remembered by the catalog."""

    def submit(self, job_id: str) -> None:
        """Queue the job; submitting it twice is harmless."""
        ...

    def count_waiting(self) -> int:
        """Return how many submitted jobs no worker has taken yet."""
        ...

    def get_live_workers(self) -> int:
        """Return how many workers answered within a second."""
        ...

    def ping(self) -> str:
        """Return a line about the broker, or raise."""
        ...


class KeyStore(Protocol):
    """API keys by the SHA-256 of their secrets; none is ever removed. Raises `CatalogUnavailableError`."""

    def add_key(self, key: ApiKey, *, digest: str) -> None:
        """Store a new key."""
        ...

    def find_key(self, digest: str) -> ApiKey | None:
        """Return the key of a secret, ended or not, or None."""
        ...

    def get_key(self, key_id: str) -> ApiKey:
        """Return a key; raises `KeyNotFoundError`."""
        ...

    def list_keys(self) -> list[ApiKey]:
        """Return all keys, oldest first."""
        ...

    def has_keys(self) -> bool:
        """Return whether a key was ever added."""
        ...

    def end_key(self, key_id: str, *, at: datetime) -> ApiKey:
        """Let a key end at a moment, unless it ends earlier; raises `KeyNotFoundError`."""
        ...


class AuditLog(Protocol):
    """Who did what; only grows. Raises `CatalogUnavailableError`."""

    def record(self, event: AuditEvent) -> None:
        """Append an event; its `sequence` is given here."""
        ...

    def list_events(self, *, after: int = 0, limit: int = 100) -> list[AuditEvent]:
        """Return events in order, from the one after the sequence `after`."""
        ...


class Catalog(Protocol):
    """The truth about collections, documents, pages, chunks, jobs and attempts.

    Every method is one transaction; raises `CatalogUnavailableError`. A document's states follow
    queued → parsing → embedding → ready / ready_with_warnings / failed / cancelled.

    Visibility: chunks of a document generation are retrievable from `activate` until the document
    is replaced or deleted. What `activate`, `begin_delete` and `fail_job` leave to be removed from
    the indexes is listed by `list_garbage` until `forget_garbage`.

    Attachments: files that came attached to a document are documents with a `parent_id`, and a name
    that begins with that of the parent (`kb.filenames.name_attachment`). The same bytes attached to
    several documents are one, named after one of them. An attachment is removed with the last
    document that has it, unless it was uploaded by itself as well.

    A worker that goes on after its job was cancelled, deleted or taken over by another worker
    changes nothing: `report_progress` returns False, `save_parsed` and `save_chunks` raise
    `JobCancelledError`, `activate` returns None, the others do nothing. It should end with
    `finish_cancel`: what it wrote to the indexes meanwhile is then listed as garbage once more.
    """

    # -- collections
    def create_collection(self, name: str, *, now: datetime) -> Collection:
        """Raises `CollectionExistsError`; names are 1-64 characters of any script, trimmed."""
        ...

    def get_collection(self, name: str) -> Collection:
        """Return by name; raises `CollectionNotFoundError`."""
        ...

    def get_collection_by_id(self, collection_id: str) -> Collection:
        """Return by id; raises `CollectionNotFoundError`."""
        ...

    def list_collections(self) -> list[Collection]:
        """Return all, by name, with their counts of documents and visible chunks."""
        ...

    def delete_collection(self, collection_id: str) -> list[str]:
        """Remove the collection and all below it; returns the sha256 no document needs any more."""
        ...

    def claim_fingerprint(self, collection_id: str, *, fingerprint: str, dimension: int) -> None:
        """Set the vector space at the first call; later raises `IndexMismatchError` if it differs."""
        ...

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
        """Record an upload and its job.

        The id comes from the collection and the bytes. Bytes that are there and not failed or
        cancelled are a duplicate: no new job, unless `force`. A document has the name that its bytes
        were last uploaded under, and replaces what had this name. Other bytes under the name of an existing upload become a new document
        that replaces the old one when it is activated. Failed or cancelled bytes are registered
        anew with a new generation. Bytes that were there as an attachment only become an upload with
        this name; they get a job unless they are ready.
        """
        ...

    def get_document(self, collection_id: str, document_id: str) -> Document:
        """Raises `DocumentNotFoundError`."""
        ...

    def list_documents(
        self,
        collection_id: str,
        *,
        state: DocumentState | None = None,
        parent_id: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[Document]:
        """Return documents by name then id; `after` is the id of the last one of the former page.

        With `parent_id` only those that are attached to this document.
        """
        ...

    def measure_attachments(self, collection_id: str, document_id: str) -> AttachmentUse:
        """Return what the upload that this document came with has brought along; see the type."""
        ...

    def get_pages(self, document_id: str, *, first: int = 1, last: int | None = None) -> list[Page]:
        """Return the stored pages of the visible generation, else of the newest parsed one, in order."""
        ...

    def find_laid_out_page(self, document_id: str, page_number: int) -> Page | None:
        """Return the page as `get_pages` does if it has a size, so that places on it have boxes."""
        ...

    def list_chunks(self, document_id: str) -> list[Chunk]:
        """Return the chunks of the visible generation, else of the newest stored one, in order."""
        ...

    def find_visible_chunks(self, chunk_ids: Sequence[str]) -> dict[str, tuple[Chunk, str]]:
        """Return chunk and document name by chunk id, leaving out what is not visible."""
        ...

    def begin_delete(
        self, collection_id: str, document_id: str, *, keep_attached: bool = False
    ) -> str | None:
        """Hide and remove the document, its job and its attachments; index entries become garbage.

        With `keep_attached` it stays as an attachment if another document has it attached. Returns
        the sha256 of its bytes when no other document needs them. Raises `DocumentNotFoundError`.
        """
        ...

    def list_garbage(self, *, limit: int = 100) -> list[tuple[str, str]]:
        """Return (collection_id, document_key) whose index entries must be removed."""
        ...

    def forget_garbage(self, collection_id: str, document_key: str) -> None:
        """Say that the index entries of this key are gone.

        If a worker may still write some, they are listed once more when it has ended or when
        `list_stalled_jobs` finds that its lease ran out.
        """
        ...

    def list_orphaned_files(self, *, limit: int = 100) -> list[str]:
        """Return the sha256 of bytes that no document needs any more, replaced ones included."""
        ...

    def forget_orphaned_file(self, sha256: str) -> None:
        """Say that these bytes are gone."""
        ...

    # -- jobs
    def get_job(self, job_id: str) -> Job:
        """Raises `JobNotFoundError`."""
        ...

    def list_jobs(
        self,
        *,
        collection_id: str | None = None,
        state: JobState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[Job]:
        """Return jobs, newest first; `after` is the id of the last one of the former page."""
        ...

    def start_attempt(
        self, job_id: str, *, worker: str, lease_s: float, max_attempts: int, now: datetime
    ) -> Job | None:
        """Count an attempt and take the lease, before any work is done.

        A paused job goes on with the attempt it has. Attempts that ended because their worker was
        stopped don't count against `max_attempts`.
        Returns None when there is nothing to do: the job ended, was cancelled, or another worker
        holds a live lease. When `max_attempts` were used up, the document is failed with the code
        `attempts_exhausted` and None is returned. Raises `JobNotFoundError`.
        """
        ...

    def find_lease_end(self, job_id: str) -> datetime | None:
        """Return until when a worker holds the job, None if nobody does."""
        ...

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
        """Store progress and renew the lease; returns False once the job should stop.

        `rest_s` is how long this stage will still take, None when nobody can tell.
        """
        ...

    def save_parsed(self, job_id: str, parsed: ParsedDocument, *, now: datetime) -> None:
        """Store pages and metadata of the job's generation, replacing an earlier attempt's.

        Raises `JobCancelledError` if the job is not running any more.
        """
        ...

    def save_chunks(self, job_id: str, chunks: Sequence[Chunk]) -> None:
        """Store the chunks of the job's generation, replacing an earlier attempt's.

        Raises `JobCancelledError` if the job is not running any more.
        """
        ...

    def find_stored_chunks(self, job_id: str, chunks: Sequence[Chunk]) -> StoredChunks:
        """Return whether exactly these chunks are stored for the job's generation, others, or none."""
        ...

    def activate(
        self,
        job_id: str,
        *,
        warnings: Sequence[Problem],
        now: datetime,
        attachments: Sequence[Attachment] = (),
    ) -> Document | None:
        """Make the generation visible and everything it replaces invisible, in one step.

        Replaced: earlier generations of the document, and another upload of the same name. What was
        attached to those and isn't any more is removed; an attachment of which there is a new version
        stays until that is activated. Attachments that are not there yet get a job; so do all, once
        more, if an earlier generation of the document was visible.
        Returns None if the job was cancelled or its document deleted; then nothing changes, and bytes
        of `attachments` that no document needs are listed by `list_orphaned_files`.
        """
        ...

    def fail_job(self, job_id: str, *, problem: Problem, now: datetime) -> None:
        """End the job and its document as failed; an older visible generation stays visible."""
        ...

    def release_job(self, job_id: str, *, problem: Problem, now: datetime) -> None:
        """End the attempt, free the lease and put the job back to queued, for a retry."""
        ...

    def pause_job(self, job_id: str, *, now: datetime) -> None:
        """Free the lease and put the job back to queued; the attempt goes on when it is started again."""
        ...

    def has_waiting_jobs(self, *, besides: str) -> bool:
        """Return whether any other job than `besides` is queued."""
        ...

    def cancel_job(self, job_id: str, *, now: datetime) -> Job:
        """Ask the job to stop; a queued job ends at once, a running one when it notices.

        A job that has ended is returned as it is. Raises `JobNotFoundError`.
        """
        ...

    def finish_cancel(self, job_id: str, *, now: datetime) -> None:
        """End a cancelled job and its document; its index entries become garbage."""
        ...

    def retry_job(self, job_id: str, *, now: datetime) -> Job:
        """Put a failed or cancelled job back to queued with fresh attempts and a new generation.

        Raises `JobStateError` for any other job, and for one that has a successor.
        """
        ...

    def count_documents(self) -> dict[DocumentState, int]:
        """Return how many documents of all collections are in each state; a state without any may lack."""
        ...

    def count_jobs(self) -> dict[JobState, int]:
        """Return how many jobs are in each state; a state without any may lack."""
        ...

    def list_stalled_jobs(self, *, now: datetime, begun_only: bool = False, limit: int = 100) -> list[str]:
        """Return jobs that are queued or running with no live lease and untouched for 30 s.

        With `begun_only` only the running ones: those whose worker is gone.
        """
        ...

    def ping(self) -> str:
        """Return the database and its schema revision, or raise."""
        ...
