"""Weightless parts that keep the promises of the ports, with switches to let them fail."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from kb.adapters.memory_lexical import MemoryLexicalIndex
from kb.errors import (
    BackendError,
    CatalogUnavailableError,
    CollectionExistsError,
    CollectionNotFoundError,
    DamagedFileError,
    DocumentNotFoundError,
    GeneratorUnavailableError,
    JobNotFoundError,
    JobStateError,
    LexicalIndexUnavailableError,
    QueueUnavailableError,
    UploadTooLargeError,
    VectorStoreUnavailableError,
)
from kb.ports import Attachment, AttachmentUse, LexicalEntry, StoredChunks, StoredFile, VectorRecord, Vectors
from kb.types import (
    Chunk,
    Collection,
    Document,
    DocumentState,
    GenerationDelta,
    GenerationEnd,
    GenerationEvent,
    GenerationRequest,
    Job,
    JobState,
    Page,
    ParsedDocument,
    Problem,
    Registration,
    ScoredId,
)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 2, 8, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Switch:
    """Raises the given error while `down` is true."""

    error: type[BackendError] = BackendError

    def __init__(self) -> None:
        self.down = False

    def check(self) -> None:
        if self.down:
            raise self.error("the fake is switched off")


class FakeCatalog(Switch):
    """Collections, documents and jobs in dictionaries."""

    error = CatalogUnavailableError

    def __init__(self) -> None:
        super().__init__()
        self.collections: dict[str, Collection] = {}
        self.documents: dict[str, Document] = {}
        self.jobs: dict[str, Job] = {}
        self.pages: dict[str, tuple[Page, ...]] = {}
        self.chunks: dict[str, tuple[Chunk, ...]] = {}
        self.garbage: list[tuple[str, str]] = []
        self.orphaned: set[str] = set()
        self.attached: set[str] = set()

    # -- collections
    def create_collection(self, name: str, *, now: datetime) -> Collection:
        self.check()
        if any(c.name == name for c in self.collections.values()):
            raise CollectionExistsError(name)
        collection = Collection(id=f"c{len(self.collections) + 1}", name=name, created_at=now)
        self.collections[collection.id] = collection
        return collection

    def get_collection(self, name: str) -> Collection:
        self.check()
        for collection in self.list_collections():
            if collection.name == name:
                return collection
        raise CollectionNotFoundError(name)

    def get_collection_by_id(self, collection_id: str) -> Collection:
        self.check()
        if collection_id not in self.collections:
            raise CollectionNotFoundError(collection_id)
        return self.collections[collection_id]

    def list_collections(self) -> list[Collection]:
        self.check()
        return sorted(
            (
                replace(
                    c,
                    document_count=sum(d.collection_id == c.id for d in self.documents.values()),
                    chunk_count=sum(
                        d.chunk_count for d in self.documents.values() if d.collection_id == c.id
                    ),
                )
                for c in self.collections.values()
            ),
            key=lambda c: c.name,
        )

    def delete_collection(self, collection_id: str) -> list[str]:
        self.check()
        gone = [d for d in self.documents.values() if d.collection_id == collection_id]
        for document in gone:
            self._drop(document)
        del self.collections[collection_id]
        return [sha256 for document in gone if (sha256 := self._orphan(document.sha256))]

    def claim_fingerprint(self, collection_id: str, *, fingerprint: str, dimension: int) -> None:
        self.collections[collection_id] = replace(
            self.collections[collection_id], fingerprint=fingerprint, dimension=dimension
        )

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
        self.check()
        document_id = hashlib.sha256(f"{collection_id}{stored.sha256}".encode()).hexdigest()[:16]
        known = self.documents.get(document_id)
        dead = (DocumentState.FAILED, DocumentState.CANCELLED)
        if known is not None and known.state not in dead and not force:
            return Registration(known, None, duplicate=True)
        generation = known.generation + 1 if known else 1
        job = Job(
            id=f"j-{document_id}-{generation}",
            collection_id=collection_id,
            document_id=document_id,
            generation=generation,
            state=JobState.QUEUED,
            created_at=now,
            updated_at=now,
        )
        document = Document(
            id=document_id,
            collection_id=collection_id,
            name=known.name if known else name,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
            generation=generation,
            state=DocumentState.QUEUED,
            created_at=now,
            updated_at=now,
            media_type=media_type,
            job_id=job.id,
        )
        self.documents[document_id] = document
        self.jobs[job.id] = job
        self.orphaned.discard(stored.sha256)
        return Registration(document, job, duplicate=known is not None)

    def get_document(self, collection_id: str, document_id: str) -> Document:
        self.check()
        document = self.documents.get(document_id)
        if document is None or document.collection_id != collection_id:
            raise DocumentNotFoundError(document_id)
        return document

    def list_documents(
        self,
        collection_id: str,
        *,
        state: DocumentState | None = None,
        parent_id: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[Document]:
        self.check()
        found = sorted(
            (d for d in self.documents.values() if d.collection_id == collection_id),
            key=lambda d: (d.name, d.id),
        )
        found = [d for d in found if parent_id in (None, d.parent_id)]
        found = [d for d in found if state is None or d.state is state]
        ids = [d.id for d in found]
        first = ids.index(after) + 1 if after in ids else 0
        return found[first : first + limit]

    def get_pages(self, document_id: str, *, first: int = 1, last: int | None = None) -> list[Page]:
        self.check()
        pages = self.pages.get(document_id, ())
        return [p for p in pages if p.page_number >= first and (last is None or p.page_number <= last)]

    def find_laid_out_page(self, document_id: str, page_number: int) -> Page | None:
        pages = self.get_pages(document_id, first=page_number, last=page_number)
        return next((page for page in pages if page.width is not None), None)

    def list_chunks(self, document_id: str) -> list[Chunk]:
        return list(self.chunks.get(document_id, ()))

    def find_visible_chunks(self, chunk_ids: Sequence[str]) -> dict[str, tuple[Chunk, str]]:
        return {
            chunk.id: (chunk, self.documents[chunk.document_id].name)
            for chunks in self.chunks.values()
            for chunk in chunks
            if chunk.id in chunk_ids
        }

    def measure_attachments(self, collection_id: str, document_id: str) -> AttachmentUse:
        raise NotImplementedError

    def begin_delete(
        self, collection_id: str, document_id: str, *, keep_attached: bool = False
    ) -> str | None:
        document = self.get_document(collection_id, document_id)
        if keep_attached and document_id in self.attached:
            return None
        self._drop(document)
        self.garbage.append((collection_id, document.key))
        return self._orphan(document.sha256)

    def list_garbage(self, *, limit: int = 100) -> list[tuple[str, str]]:
        self.check()
        return self.garbage[:limit]

    def list_orphaned_files(self, *, limit: int = 100) -> list[str]:
        self.check()
        return sorted(self.orphaned)[:limit]

    def forget_orphaned_file(self, sha256: str) -> None:
        self.orphaned.discard(sha256)

    def forget_garbage(self, collection_id: str, document_key: str) -> None:
        self.garbage.remove((collection_id, document_key))

    # -- jobs
    def get_job(self, job_id: str) -> Job:
        self.check()
        if job_id not in self.jobs:
            raise JobNotFoundError(job_id)
        return self.jobs[job_id]

    def list_jobs(
        self,
        *,
        collection_id: str | None = None,
        state: JobState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[Job]:
        self.check()
        found = [
            j
            for j in reversed(self.jobs.values())
            if (collection_id is None or j.collection_id == collection_id)
            and (state is None or j.state is state)
        ]
        ids = [j.id for j in found]
        first = ids.index(after) + 1 if after in ids else 0
        return found[first : first + limit]

    def start_attempt(
        self, job_id: str, *, worker: str, lease_s: float, max_attempts: int, now: datetime
    ) -> Job | None:
        raise NotImplementedError

    def find_lease_end(self, job_id: str) -> datetime | None:
        return None

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
        raise NotImplementedError

    def save_parsed(self, job_id: str, parsed: ParsedDocument, *, now: datetime) -> None:
        self.pages[self.jobs[job_id].document_id] = parsed.pages

    def save_chunks(self, job_id: str, chunks: Sequence[Chunk]) -> None:
        self.chunks[self.jobs[job_id].document_id] = tuple(chunks)

    def activate(
        self,
        job_id: str,
        *,
        warnings: Sequence[Problem],
        now: datetime,
        attachments: Sequence[Attachment] = (),
    ) -> Document | None:
        job = self._end(job_id, JobState.SUCCEEDED, DocumentState.READY)
        return self.documents[job.document_id]

    def fail_job(self, job_id: str, *, problem: Problem, now: datetime) -> None:
        job = self._end(job_id, JobState.FAILED, DocumentState.FAILED)
        self.documents[job.document_id] = replace(self.documents[job.document_id], error=problem)

    def release_job(self, job_id: str, *, problem: Problem, now: datetime) -> None:
        raise NotImplementedError

    def pause_job(self, job_id: str, *, now: datetime) -> None:
        raise NotImplementedError

    def has_waiting_jobs(self, *, besides: str) -> bool:
        raise NotImplementedError

    def find_stored_chunks(self, job_id: str, chunks: Sequence[Chunk]) -> StoredChunks:
        raise NotImplementedError

    def cancel_job(self, job_id: str, *, now: datetime) -> Job:
        job = self.get_job(job_id)
        if job.state.is_terminal:
            return job
        return self._end(job_id, JobState.CANCELLED, DocumentState.CANCELLED)

    def finish_cancel(self, job_id: str, *, now: datetime) -> None:
        raise NotImplementedError

    def retry_job(self, job_id: str, *, now: datetime) -> Job:
        if self.get_job(job_id).state not in (JobState.FAILED, JobState.CANCELLED):
            raise JobStateError(f"job {job_id!r} is not failed or cancelled")
        return self._end(job_id, JobState.QUEUED, DocumentState.QUEUED)

    def count_documents(self) -> dict[DocumentState, int]:
        self.check()
        return dict(Counter(document.state for document in self.documents.values()))

    def count_jobs(self) -> dict[JobState, int]:
        self.check()
        return dict(Counter(job.state for job in self.jobs.values()))

    def list_stalled_jobs(self, *, now: datetime, begun_only: bool = False, limit: int = 100) -> list[str]:
        self.check()
        states = [JobState.RUNNING] if begun_only else [JobState.QUEUED, JobState.RUNNING]
        old = now - timedelta(seconds=30)
        return [j.id for j in self.jobs.values() if j.state in states and j.updated_at < old][:limit]

    def ping(self) -> str:
        self.check()
        return "fake catalog"

    def _orphan(self, sha256: str) -> str | None:
        if any(d.sha256 == sha256 for d in self.documents.values()):
            return None
        self.orphaned.add(sha256)
        return sha256

    def _drop(self, document: Document) -> None:
        del self.documents[document.id]
        for job in [j for j in self.jobs.values() if j.document_id == document.id]:
            del self.jobs[job.id]

    def _end(self, job_id: str, job_state: JobState, document_state: DocumentState) -> Job:
        job = replace(self.jobs[job_id], state=job_state)
        self.jobs[job_id] = job
        document = replace(self.documents[job.document_id], state=document_state)
        self.documents[job.document_id] = document
        return job


class FakeFiles:
    """Bytes in a dictionary."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def save(self, stream: BinaryIO, *, max_bytes: int) -> StoredFile:
        data = stream.read()
        if len(data) > max_bytes:
            raise UploadTooLargeError("upload", limit_bytes=max_bytes)
        sha256 = hashlib.sha256(data).hexdigest()
        self.kept[sha256] = data
        return StoredFile(sha256, len(data))

    def get_path(self, sha256: str) -> Path:
        if sha256 not in self.kept:
            raise DamagedFileError(f"the bytes {sha256!r} are gone")
        return Path(sha256)

    def delete(self, sha256: str) -> None:
        self.kept.pop(sha256, None)

    def guard(self) -> AbstractContextManager[None]:
        return nullcontext()


class FakeQueue(Switch):
    """Remembers what was submitted; `waiting` and `workers` are what it says when asked."""

    error = QueueUnavailableError

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[str] = []
        self.waiting = 0
        self.workers = 1
        self.worker_probes = 0

    def submit(self, job_id: str) -> None:
        self.check()
        self.submitted.append(job_id)

    def count_waiting(self) -> int:
        self.check()
        return self.waiting

    def get_live_workers(self) -> int:
        self.worker_probes += 1
        self.check()
        return self.workers

    def ping(self) -> str:
        self.check()
        return "fake queue"


class FakeVectors(Switch):
    """Remembers which keys were removed."""

    error = VectorStoreUnavailableError

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []

    def ensure_collection(self, collection_id: str, *, dimension: int) -> None: ...

    def upsert(self, collection_id: str, records: Sequence[VectorRecord]) -> None: ...

    def query(
        self, collection_id: str, vector: Vectors, *, top_k: int, language: str | None = None
    ) -> list[ScoredId]:
        return []

    def fetch_vectors(self, collection_id: str, chunk_ids: Sequence[str]) -> dict[str, Vectors]:
        return {}

    def delete_document(self, collection_id: str, document_key: str) -> None:
        self.check()
        self.deleted.append(document_key)

    def delete_collection(self, collection_id: str) -> None:
        self.check()
        self.deleted.append(collection_id)

    def list_chunk_ids(self, collection_id: str, document_key: str) -> set[str]:
        return set()

    def count(self, collection_id: str, *, document_key: str | None = None) -> int:
        return 0

    def ping(self) -> str:
        self.check()
        return "fake vectors"


class FakeLexical(Switch):
    """Remembers which keys were removed, and finds what was put into `index`."""

    error = LexicalIndexUnavailableError

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []
        self.index = MemoryLexicalIndex()

    def upsert(self, collection_id: str, entries: Sequence[LexicalEntry]) -> None: ...

    def query(self, collection_id: str, text: str, *, top_k: int) -> list[ScoredId]:
        return self.index.query(collection_id, text, top_k=top_k)

    def find_code(self, collection_id: str, code: str, *, top_k: int) -> list[ScoredId]:
        return self.index.find_code(collection_id, code, top_k=top_k)

    def list_codes(self, collection_id: str, *, prefix: str = "") -> list[str]:
        return self.index.list_codes(collection_id, prefix=prefix)

    def delete_document(self, collection_id: str, document_key: str) -> None:
        self.check()
        self.deleted.append(document_key)

    def delete_collection(self, collection_id: str) -> None:
        self.check()
        self.deleted.append(collection_id)

    def list_chunk_ids(self, collection_id: str, document_key: str) -> set[str]:
        return set()

    def count(self, collection_id: str, *, document_key: str | None = None) -> int:
        return 0

    def ping(self) -> str:
        self.check()
        return "fake lexical"


class FakeGenerator(Switch):
    """Writes the words of `text`."""

    error = GeneratorUnavailableError
    name = "fake-generator"
    mode = "generated"
    text = "one two"

    def get_context_limit(self) -> int:
        return 2048

    def stream(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        self.check()
        for word in self.text.split():
            yield GenerationDelta(word)
        yield GenerationEnd("stop", prompt_tokens=5, completion_tokens=2)

    def ping(self) -> str:
        self.check()
        return "fake generator"
