from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from structlog.testing import capture_logs

from ingest.attachments import AttachmentIntake
from ingest.chunking import Chunker
from ingest.pipeline import IngestPipeline
from kb.adapters.memory_passwords import MemoryPasswords
from kb.adapters.sql_catalog import SqlCatalog
from kb.errors import (
    BackendError,
    CatalogUnavailableError,
    DamagedFileError,
    DocumentError,
    JobCancelledError,
    JobPausedError,
    LexicalIndexUnavailableError,
    VectorStoreUnavailableError,
)
from kb.ports import (
    Attachment,
    AttachmentLimits,
    FoundAttachments,
    LeaveReason,
    LeftOut,
    LexicalEntry,
    ReadRequest,
    StoredFile,
    VectorRecord,
    Vectors,
)
from kb.types import (
    Collection,
    Document,
    DocumentState,
    Job,
    JobState,
    Page,
    PageQuality,
    ParsedDocument,
    Problem,
    ScoredId,
    TextSource,
)
from tests.service import wait_until
from tests.unit.fakes import FakeQueue

TEXT = "\n\n".join(f"Step {n}: " + "check the pump. " * n for n in range(1, 9))
SECRET = "the formula is 42"


def now() -> datetime:
    return datetime.now(UTC)


class FakeFiles:
    """Nothing is on disk: the path is the hash."""

    def __init__(self) -> None:
        self.kept: set[str] = set()
        self.lost: set[str] = set()

    def save(self, stream: BinaryIO, *, max_bytes: int) -> StoredFile:
        content = stream.read(max_bytes)
        sha256 = hashlib.sha256(content).hexdigest()
        self.kept.add(sha256)
        return StoredFile(sha256, len(content))

    def get_path(self, sha256: str) -> Path:
        if sha256 in self.lost:
            self.lost.remove(sha256)
            raise DamagedFileError("the bytes are gone")
        return Path(sha256)

    def delete(self, sha256: str) -> None: ...

    def guard(self) -> AbstractContextManager[None]:
        return nullcontext()


class FakeReader:
    """Returns `parsed` after `during`, which may raise."""

    def __init__(self) -> None:
        self.parsed = ParsedDocument((Page(1, TEXT), Page(2, "The end.")), "text/plain", title="Pump")
        self.during: Callable[[Callable[[], bool]], None] = lambda is_cancelled: None
        self.reads: list[tuple[Path, str]] = []
        self.passwords: list[str | None] = []
        self.pauses = 0
        self.attached: dict[str, bytes] | DocumentError = {}
        self.left_out: tuple[LeftOut, ...] = ()
        self.skipped: tuple[LeftOut, ...] = ()
        self.limits: list[AttachmentLimits] = []

    def read(self, request: ReadRequest) -> ParsedDocument:
        self.reads.append((request.path, request.name))
        self.passwords.append(request.password)
        request.progress(1, 2)
        self.during(request.is_cancelled)
        if self.pauses and request.should_pause():
            self.pauses -= 1
            raise JobPausedError("later")
        if request.is_cancelled():
            raise JobCancelledError("told to stop")
        request.progress(2, 2)
        return self.parsed

    def read_attachments(
        self, request: ReadRequest, *, limits: AttachmentLimits, folder: Path
    ) -> FoundAttachments:
        self.limits.append(limits)
        if isinstance(self.attached, DocumentError):
            raise self.attached
        for index, content in enumerate(self.attached.values()):
            (folder / str(index)).write_bytes(content)
        files = tuple((own, folder / str(index)) for index, own in enumerate(self.attached))
        return FoundAttachments(files, left_out=self.left_out, skipped=self.skipped)


class FakeEmbedder:
    """The vector of a text is drawn from its hash."""

    fingerprint = "fake"
    dimension = 8
    max_tokens = 60

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.during: Callable[[], None] = lambda: None

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(list(texts))
        self.during()
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> Vectors:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        vector = np.random.default_rng(seed).normal(size=self.dimension).astype(np.float32)
        return vector / np.float32(np.linalg.norm(vector))


class FakeVectors:
    """Rows by chunk id, in one collection."""

    def __init__(self) -> None:
        self.rows: dict[str, VectorRecord] = {}
        self.fails = 0

    def ensure_collection(self, collection_id: str, *, dimension: int) -> None: ...

    def upsert(self, collection_id: str, records: Sequence[VectorRecord]) -> None:
        self.rows.update({record.chunk_id: record for record in records})
        if self.fails:
            self.fails -= 1
            raise VectorStoreUnavailableError("not now")

    def query(
        self, collection_id: str, vector: Vectors, *, top_k: int, language: str | None = None
    ) -> list[ScoredId]:
        return []

    def fetch_vectors(self, collection_id: str, chunk_ids: Sequence[str]) -> dict[str, Vectors]:
        return {item: self.rows[item].vector for item in chunk_ids if item in self.rows}

    def delete_document(self, collection_id: str, document_key: str) -> None:
        self.rows = {i: row for i, row in self.rows.items() if row.document_key != document_key}

    def delete_collection(self, collection_id: str) -> None: ...

    def list_chunk_ids(self, collection_id: str, document_key: str) -> set[str]:
        return {i for i, row in self.rows.items() if row.document_key == document_key}

    def count(self, collection_id: str, *, document_key: str | None = None) -> int:
        return sum(document_key in (None, row.document_key) for row in self.rows.values())

    def ping(self) -> str:
        return "fake"


class FakeLexical:
    """Entries by chunk id, in one collection."""

    def __init__(self) -> None:
        self.rows: dict[str, LexicalEntry] = {}
        self.delete_fails = False

    def upsert(self, collection_id: str, entries: Sequence[LexicalEntry]) -> None:
        self.rows.update({entry.chunk_id: entry for entry in entries})

    def query(self, collection_id: str, text: str, *, top_k: int) -> list[ScoredId]:
        return []

    def find_code(self, collection_id: str, code: str, *, top_k: int) -> list[ScoredId]:
        return []

    def list_codes(self, collection_id: str, *, prefix: str = "") -> list[str]:
        return []

    def delete_document(self, collection_id: str, document_key: str) -> None:
        if self.delete_fails:
            raise LexicalIndexUnavailableError("not now")
        self.rows = {i: row for i, row in self.rows.items() if row.document_key != document_key}

    def delete_collection(self, collection_id: str) -> None: ...

    def list_chunk_ids(self, collection_id: str, document_key: str) -> set[str]:
        return {i for i, row in self.rows.items() if row.document_key == document_key}

    def count(self, collection_id: str, *, document_key: str | None = None) -> int:
        return sum(document_key in (None, row.document_key) for row in self.rows.values())

    def ping(self) -> str:
        return "fake"


class ForgetfulLexical(FakeLexical):
    """Says that it has written, and has not."""

    def upsert(self, collection_id: str, entries: Sequence[LexicalEntry]) -> None: ...


class FailingCatalog(SqlCatalog):
    """The real catalog, but something happens before the next call of some methods."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.outages: dict[str, int] = {}
        self.before: dict[str, Callable[[], object]] = {}
        self.stages: list[str] = []

    def _fail(self, method: str) -> None:
        self.before.pop(method, lambda: None)()
        if self.outages.get(method, 0):
            self.outages[method] -= 1
            raise CatalogUnavailableError("not now")

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
        self._fail("report_progress")
        if stage not in self.stages:
            self.stages.append(stage)
        return super().report_progress(
            job_id,
            state=state,
            stage=stage,
            pages_done=pages_done,
            page_count=page_count,
            rest_s=rest_s,
            lease_s=lease_s,
            now=now,
        )

    def get_document(self, collection_id: str, document_id: str) -> Document:
        self._fail("get_document")
        return super().get_document(collection_id, document_id)

    def activate(
        self,
        job_id: str,
        *,
        warnings: Sequence[Problem],
        now: datetime,
        attachments: Sequence[Attachment] = (),
    ) -> Document | None:
        self._fail("activate")
        return super().activate(job_id, warnings=warnings, now=now, attachments=attachments)

    def save_parsed(self, job_id: str, parsed: ParsedDocument, *, now: datetime) -> None:
        self._fail("save_parsed")
        super().save_parsed(job_id, parsed, now=now)

    def has_waiting_jobs(self, *, besides: str) -> bool:
        self._fail("has_waiting_jobs")
        return super().has_waiting_jobs(besides=besides)

    def release_job(self, job_id: str, *, problem: Problem, now: datetime) -> None:
        self._fail("release_job")
        super().release_job(job_id, problem=problem, now=now)


@dataclass
class Workbench:
    catalog: FailingCatalog
    collection: Collection
    files: FakeFiles = field(default_factory=FakeFiles)
    reader: FakeReader = field(default_factory=FakeReader)
    embedder: FakeEmbedder = field(default_factory=FakeEmbedder)
    vectors: FakeVectors = field(default_factory=FakeVectors)
    lexical: FakeLexical = field(default_factory=FakeLexical)
    passwords: MemoryPasswords = field(default_factory=MemoryPasswords)
    queue: FakeQueue = field(default_factory=FakeQueue)

    def register(self, name: str = "pump.txt", content: bytes = b"pump") -> Job:
        stored = self.files.save(io.BytesIO(content), max_bytes=100)
        registration = self.catalog.register_document(
            self.collection.id, name=name, stored=stored, media_type="text/plain", now=now()
        )
        assert registration.job is not None
        return registration.job

    def run(
        self,
        job: Job,
        *,
        lease_s: float = 30,
        max_attempts: int = 3,
        should_stop: Callable[[], bool] = lambda: False,
        pause_after_s: float = 60,
    ) -> None:
        chunker = Chunker(
            count_tokens=self.embedder.count_tokens, max_tokens=self.embedder.max_tokens, overlap_tokens=5
        )
        pipeline = IngestPipeline(
            catalog=self.catalog,
            files=self.files,
            reader=self.reader,
            embedder=self.embedder,
            vectors=self.vectors,
            lexical=self.lexical,
            chunker=chunker,
            intake=AttachmentIntake(
                catalog=self.catalog,
                files=self.files,
                reader=self.reader,
                limits=AttachmentLimits(max_count=5, max_bytes=50, max_total_bytes=100),
                max_depth=2,
            ),
            queue=self.queue,
            passwords=self.passwords,
            lease_s=lease_s,
            max_attempts=max_attempts,
            batch_size=2,
            clock=now,
            pause_after_s=pause_after_s,
        )
        pipeline.run(job.id, worker="w1", should_stop=should_stop)

    def delete(self, job: Job) -> None:
        self.catalog.begin_delete(job.collection_id, job.document_id)

    def list_attached(self, job: Job) -> list[Document]:
        return self.catalog.list_documents(self.collection.id, parent_id=job.document_id)

    def get(self, job: Job) -> Document:
        return self.catalog.get_document(job.collection_id, job.document_id)


@pytest.fixture(scope="session")
def empty_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database of the newest schema, made once and copied for each test."""
    path = tmp_path_factory.mktemp("catalog") / "empty.sqlite"
    with closing(SqlCatalog(f"sqlite:///{path}")) as catalog:
        catalog.migrate()
    return path


@pytest.fixture
def bench(empty_catalog: Path, tmp_path: Path) -> Iterator[Workbench]:
    path = tmp_path / "catalog.sqlite"
    shutil.copy(empty_catalog, path)
    with closing(FailingCatalog(f"sqlite:///{path}")) as catalog:
        yield Workbench(catalog, catalog.create_collection("manuals", now=now()))


def test_a_document_becomes_searchable(bench: Workbench) -> None:
    job = bench.register()

    bench.run(job)

    document = bench.get(job)
    chunks = bench.catalog.list_chunks(job.document_id)
    assert (document.state, document.attempt, document.title) == (DocumentState.READY, 1, "Pump")
    assert (document.page_count, document.pages_done, document.chunk_count) == (2, 2, len(chunks))
    assert bench.reader.reads == [(Path(document.sha256), "pump.txt")]
    assert set(bench.catalog.find_visible_chunks([c.id for c in chunks])) == {c.id for c in chunks}
    assert [p.text for p in bench.catalog.get_pages(job.document_id)] == [TEXT, "The end."]
    assert bench.catalog.get_collection("manuals").fingerprint == "fake"
    assert bench.catalog.stages == ["parsing", "embedding"]
    assert bench.catalog.get_job(job.id).state is JobState.SUCCEEDED


def test_each_chunk_has_its_own_vector_though_batches_are_sorted_by_length(bench: Workbench) -> None:
    job = bench.register()

    bench.run(job)

    chunks = bench.catalog.list_chunks(job.document_id)
    key = bench.get(job).key
    assert set(bench.vectors.rows) == set(bench.lexical.rows) == {c.id for c in chunks}
    for chunk in chunks:
        row = bench.vectors.rows[chunk.id]
        np.testing.assert_array_equal(row.vector, bench.embedder.embed_query(chunk.indexed_text))
        assert (row.document_key, row.language) == (key, "en")
        assert bench.lexical.rows[chunk.id].text == chunk.indexed_text
    lengths = [len(text.split()) for batch in bench.embedder.batches for text in batch]
    assert lengths == sorted(lengths, reverse=True)
    assert max(map(len, bench.embedder.batches)) == 2


def test_a_job_that_ended_is_not_run_again(bench: Workbench) -> None:
    job = bench.register()
    bench.run(job)

    bench.run(job)

    assert len(bench.reader.reads) == 1
    assert bench.get(job).attempt == 1


def test_a_job_in_other_hands_is_left_alone(bench: Workbench) -> None:
    job = bench.register()
    bench.catalog.start_attempt(job.id, worker="w2", lease_s=60, max_attempts=3, now=now())

    bench.run(job)

    assert bench.reader.reads == []


def test_an_unknown_job_is_no_error(bench: Workbench) -> None:
    job = bench.register()
    bench.catalog.begin_delete(job.collection_id, job.document_id)

    bench.run(job)

    assert bench.reader.reads == []


def test_a_file_that_cannot_be_read_fails_with_its_code(bench: Workbench) -> None:
    def fail(is_cancelled: Callable[[], bool]) -> None:
        raise DamagedFileError("the file is cut off")

    bench.reader.during = fail
    job = bench.register()

    bench.run(job)

    document = bench.get(job)
    assert document.state is DocumentState.FAILED
    assert document.error is not None
    assert (document.error.code, document.error.message) == ("damaged_file", "the file is cut off")
    assert document.error.next_step


@pytest.mark.parametrize("pages", [(), (Page(1, " \n "),)])
def test_a_document_without_text_fails(bench: Workbench, pages: tuple[Page, ...]) -> None:
    bench.reader.parsed = ParsedDocument(pages, "text/plain")
    job = bench.register()

    bench.run(job)

    error = bench.get(job).error
    assert error is not None
    assert error.code == "no_text_found"


def test_another_vector_space_fails_the_document(bench: Workbench) -> None:
    bench.catalog.claim_fingerprint(bench.collection.id, fingerprint="other", dimension=8)
    job = bench.register()

    bench.run(job)

    error = bench.get(job).error
    assert error is not None
    assert error.code == "index_mismatch"
    assert bench.vectors.rows == {}


def test_an_outage_puts_the_job_back_and_the_next_run_leaves_nothing_of_the_first(bench: Workbench) -> None:
    bench.vectors.fails = 1
    job = bench.register()

    with pytest.raises(VectorStoreUnavailableError):
        bench.run(job)
    after_outage = bench.get(job).state
    bench.reader.parsed = ParsedDocument((Page(1, "Only this."),), "text/plain")
    bench.run(job)

    assert after_outage is DocumentState.QUEUED
    assert (bench.get(job).state, bench.get(job).attempt) == (DocumentState.READY, 2)
    assert len(bench.vectors.rows) == len(bench.lexical.rows) == 1
    first, second = bench.catalog.get_job(job.id).attempts
    assert first.error is not None
    assert first.error.code == "vector_store_unavailable"
    assert second.error is None


def test_outages_are_bounded_by_the_attempts(bench: Workbench) -> None:
    bench.vectors.fails = 10
    job = bench.register()

    for _ in range(2):
        with pytest.raises(BackendError):
            bench.run(job, max_attempts=2)
    bench.run(job, max_attempts=2)

    error = bench.get(job).error
    assert error is not None
    assert error.code == "attempts_exhausted"


def test_a_catalog_that_is_down_twice_still_shows_the_first_error(bench: Workbench) -> None:
    bench.catalog.outages = {"save_parsed": 1, "release_job": 1}
    job = bench.register()

    with pytest.raises(CatalogUnavailableError):
        bench.run(job)

    assert bench.catalog.get_job(job.id).state is JobState.RUNNING


def test_a_job_cancelled_while_parsing_ends_cancelled(bench: Workbench) -> None:
    job = bench.register()

    def cancel(is_cancelled: Callable[[], bool]) -> None:
        bench.catalog.cancel_job(job.id, now=now())
        wait_until(is_cancelled, what="the reader is told")

    bench.reader.during = cancel

    bench.run(job, lease_s=0.3)

    assert bench.get(job).state is DocumentState.CANCELLED
    assert bench.embedder.batches == []


def test_a_job_cancelled_while_embedding_leaves_nothing(bench: Workbench) -> None:
    job = bench.register()

    def cancel() -> None:
        bench.catalog.cancel_job(job.id, now=now())

    bench.embedder.during = cancel

    bench.run(job)

    assert bench.get(job).state is DocumentState.CANCELLED
    assert (bench.vectors.rows, bench.lexical.rows) == ({}, {})
    assert bench.catalog.list_garbage() == []


def test_a_job_cancelled_in_the_last_moment_leaves_nothing(bench: Workbench) -> None:
    job = bench.register()
    bench.catalog.before["activate"] = lambda: bench.catalog.cancel_job(job.id, now=now())

    bench.run(job)

    assert bench.get(job).state is DocumentState.CANCELLED
    assert (bench.vectors.rows, bench.lexical.rows) == ({}, {})


def test_a_document_deleted_when_its_job_starts_is_no_error(bench: Workbench) -> None:
    job = bench.register()
    bench.catalog.before["get_document"] = lambda: bench.catalog.begin_delete(
        job.collection_id, job.document_id
    )

    bench.run(job)

    assert bench.reader.reads == []
    assert bench.catalog.list_garbage() == []


def test_a_document_deleted_while_it_is_ingested_leaves_nothing(bench: Workbench) -> None:
    job = bench.register()

    def delete() -> None:
        if len(bench.embedder.batches) == 1:
            bench.catalog.begin_delete(job.collection_id, job.document_id)

    bench.embedder.during = delete

    bench.run(job)

    assert (bench.vectors.rows, bench.lexical.rows) == ({}, {})
    assert bench.catalog.list_documents(job.collection_id) == []


def test_a_document_deleted_while_it_is_parsed_is_no_error(bench: Workbench) -> None:
    job = bench.register()

    def delete(is_cancelled: Callable[[], bool]) -> None:
        bench.catalog.begin_delete(job.collection_id, job.document_id)

    bench.reader.during = delete

    bench.run(job)

    assert bench.vectors.rows == {}
    assert bench.catalog.list_documents(job.collection_id) == []


def test_a_stopping_worker_puts_its_job_back_and_another_ends_it(bench: Workbench) -> None:
    job = bench.register()

    bench.run(job, should_stop=lambda: bool(bench.embedder.batches))
    stopped = bench.catalog.get_job(job.id)
    bench.run(job)

    assert stopped.state is JobState.QUEUED
    assert stopped.attempts[0].error is not None
    assert stopped.attempts[0].error.code == "worker_stopped"
    assert bench.get(job).state is DocumentState.READY


def test_the_lease_is_renewed_during_a_long_parse(bench: Workbench) -> None:
    job = bench.register()

    def parse_long(is_cancelled: Callable[[], bool]) -> None:
        first = bench.catalog.find_lease_end(job.id)
        assert first is not None
        wait_until(lambda: (bench.catalog.find_lease_end(job.id) or first) > first, what="a renewal")
        wait_until(lambda: bench.get(job).pages_done == 1, what="progress is stored")

    bench.reader.during = parse_long

    bench.run(job, lease_s=0.6)

    assert bench.get(job).state is DocumentState.READY


def test_a_document_of_one_page_tells_how_long_its_embedding_still_takes(bench: Workbench) -> None:
    job = bench.register()
    bench.reader.parsed = ParsedDocument((Page(1, TEXT),), "text/plain")

    def embed_long() -> None:
        if len(bench.embedder.batches) == 2:
            wait_until(lambda: bench.catalog.get_job(job.id).attempts[-1].rest_s is not None, what="a rest")

    bench.embedder.during = embed_long

    bench.run(job, lease_s=0.6)

    assert bench.get(job).state is DocumentState.READY


def test_a_short_outage_of_the_catalog_does_not_end_a_long_parse(bench: Workbench) -> None:
    job = bench.register()

    def parse_long(is_cancelled: Callable[[], bool]) -> None:
        bench.catalog.outages["report_progress"] = 1
        wait_until(lambda: bench.catalog.outages["report_progress"] == 0, what="the outage is met")

    bench.reader.during = parse_long

    bench.run(job, lease_s=5)

    assert bench.get(job).state is DocumentState.READY


def test_an_unexpected_error_fails_the_job_and_tells_no_text(bench: Workbench) -> None:
    def fail(is_cancelled: Callable[[], bool]) -> None:
        raise ValueError(SECRET)

    bench.reader.during = fail
    job = bench.register()

    with capture_logs() as logs:
        bench.run(job)

    error = bench.get(job).error
    assert error is not None
    assert error.code == "internal_error"
    assert "ValueError" in error.message
    assert [entry["code"] for entry in logs if entry["log_level"] == "error"] == ["internal_error"]
    assert SECRET not in f"{error} {logs}"


def test_warnings_make_the_document_ready_with_warnings(bench: Workbench) -> None:
    bench.reader.parsed = ParsedDocument(
        (
            Page(1, "One.", source=TextSource.OCR, quality=PageQuality(warnings=("low_contrast: pale",))),
            Page(2, "", source=TextSource.NONE),
            Page(3, "Three.", source=TextSource.OCR),
        ),
        "application/pdf",
    )
    job = bench.register()

    bench.run(job)

    document = bench.get(job)
    assert document.state is DocumentState.READY_WITH_WARNINGS
    assert [w.code for w in document.warnings] == ["low_contrast", "ocr_used", "page_without_text"]


def test_a_new_version_replaces_the_old_one_in_both_indexes(bench: Workbench) -> None:
    old = bench.register(content=b"old")
    bench.run(old)

    new = bench.register(content=b"new")
    bench.run(new)

    key = bench.get(new).key
    assert {row.document_key for row in bench.vectors.rows.values()} == {key}
    assert {row.document_key for row in bench.lexical.rows.values()} == {key}
    assert bench.catalog.list_garbage() == []


def test_what_cannot_be_removed_now_is_left_for_later(bench: Workbench) -> None:
    bench.run(bench.register(content=b"old"))
    bench.lexical.delete_fails = True

    new = bench.register(content=b"new")
    bench.run(new)

    assert bench.get(new).state is DocumentState.READY
    assert len(bench.catalog.list_garbage()) == 1


def test_the_password_opens_the_file_and_is_forgotten_at_the_end(bench: Workbench) -> None:
    job = bench.register()
    bench.passwords.keep(job.id, "secret")

    bench.run(job)

    assert bench.reader.passwords == ["secret"]
    assert bench.passwords.list_jobs() == []


def test_a_job_that_will_be_tried_again_keeps_its_password(bench: Workbench) -> None:
    job = bench.register()
    bench.passwords.keep(job.id, "secret")
    bench.vectors.fails = 1

    with pytest.raises(VectorStoreUnavailableError):
        bench.run(job)
    assert bench.passwords.list_jobs() == [job.id]
    bench.run(job)

    assert bench.reader.passwords == ["secret", "secret"]
    assert bench.passwords.list_jobs() == []


def test_a_document_deleted_meanwhile_takes_its_password_with_it(bench: Workbench) -> None:
    job = bench.register()
    bench.passwords.keep(job.id, "secret")
    bench.reader.during = lambda _is_cancelled: bench.delete(job)

    bench.run(job)

    assert bench.passwords.list_jobs() == []


def run_until_it_ends(bench: Workbench, job: Job) -> int:
    """Run the job as a worker does; return how often it let others go first."""
    pauses = 0
    while bench.catalog.get_job(job.id).state is not JobState.SUCCEEDED:
        try:
            bench.run(job, pause_after_s=0)
        except JobPausedError:
            pauses += 1
        assert pauses < 50
    return pauses


def start_and_pause(bench: Workbench) -> Job:
    """Return a job that paused after its first batch, because another one waits."""
    job = bench.register()
    bench.register("small.txt", b"small")
    with pytest.raises(JobPausedError):
        bench.run(job, pause_after_s=0)
    return job


def test_nobody_waits_so_nothing_pauses(bench: Workbench) -> None:
    bench.reader.pauses = 1
    job = bench.register()

    assert run_until_it_ends(bench, job) == 0


def test_a_job_lets_others_go_first_and_embeds_no_chunk_twice(bench: Workbench) -> None:
    job = bench.register()
    bench.register("small.txt", b"small")
    bench.reader.pauses = 2

    pauses = run_until_it_ends(bench, job)

    chunks = bench.catalog.list_chunks(job.document_id)
    batches = (len(chunks) + 1) // 2
    assert pauses == 2 + batches - 1
    assert len(bench.reader.reads) == pauses + 1
    assert sorted(text for batch in bench.embedder.batches for text in batch) == sorted(
        chunk.indexed_text for chunk in chunks
    )
    assert set(bench.vectors.rows) == set(bench.lexical.rows) == {chunk.id for chunk in chunks}
    attempts = bench.catalog.get_job(job.id).attempts
    assert [(attempt.number, attempt.error) for attempt in attempts] == [(1, None)]
    assert bench.get(job).attempt == 1


def test_a_paused_job_shows_how_far_it_is(bench: Workbench) -> None:
    job = start_and_pause(bench)

    document = bench.get(job)

    assert (document.state, document.stage) == (DocumentState.EMBEDDING, "paused")
    assert bench.catalog.get_job(job.id).state is JobState.QUEUED


def test_a_paused_job_that_is_cancelled_leaves_nothing(bench: Workbench) -> None:
    job = start_and_pause(bench)

    bench.catalog.cancel_job(job.id, now=now())

    assert bench.get(job).state is DocumentState.CANCELLED
    assert bench.catalog.list_garbage() == [(job.collection_id, bench.get(job).key)]


def test_rows_that_got_lost_are_written_again(bench: Workbench) -> None:
    job = start_and_pause(bench)
    bench.lexical.rows.clear()

    run_until_it_ends(bench, job)

    assert set(bench.lexical.rows) == set(bench.vectors.rows) != set()


def test_rows_of_another_cut_are_removed_when_a_paused_job_goes_on(bench: Workbench) -> None:
    job = start_and_pause(bench)
    bench.reader.parsed = ParsedDocument((Page(1, "Only this."),), "text/plain")

    run_until_it_ends(bench, job)

    assert [entry.text for entry in bench.lexical.rows.values()] == ["Only this."]
    assert len(bench.vectors.rows) == 1


def test_planned_stops_of_the_worker_are_not_counted_against_the_job(bench: Workbench) -> None:
    job = bench.register()
    for _ in range(5):
        bench.run(job, should_stop=lambda: True, max_attempts=2)

    bench.run(job, max_attempts=2)

    assert bench.get(job).state is DocumentState.READY


def test_an_index_that_keeps_nothing_is_an_outage(bench: Workbench) -> None:
    job = start_and_pause(bench)
    bench.lexical = ForgetfulLexical()

    with pytest.raises(BackendError):
        bench.run(job)


def test_a_catalog_that_cannot_say_who_waits_does_not_end_the_work(bench: Workbench) -> None:
    job = bench.register()
    bench.catalog.outages = {"has_waiting_jobs": 100}

    bench.run(job, pause_after_s=0)

    assert bench.get(job).state is DocumentState.READY


# -- what came attached


def with_attachments(bench: Workbench, **contents: bytes) -> Job:
    """Register a mail in which these files are found."""
    bench.reader.parsed = replace(bench.reader.parsed, attachment_count=len(contents))
    bench.reader.attached = {f"{name}.txt": content for name, content in contents.items()}
    return bench.register("mail.eml")


def test_what_came_attached_is_registered_and_queued(bench: Workbench) -> None:
    job = with_attachments(bench, a=b"first", b=b"second")

    bench.run(job)

    attached = bench.list_attached(job)
    assert [item.name for item in attached] == ["mail.eml › a.txt", "mail.eml › b.txt"]
    assert bench.queue.submitted == [item.job_id for item in attached]
    assert {item.sha256 for item in attached} <= bench.files.kept
    assert bench.get(job).state is DocumentState.READY


def test_with_the_queue_down_attachments_wait_for_a_sweep(bench: Workbench) -> None:
    job = with_attachments(bench, a=b"first")
    bench.queue.down = True

    bench.run(job)

    (attached,) = bench.list_attached(job)
    assert bench.get(job).state is DocumentState.READY
    later = now() + timedelta(minutes=1)
    assert bench.catalog.list_stalled_jobs(now=later) == [attached.job_id]


def test_a_job_that_fails_before_its_end_registers_its_attachments_once(bench: Workbench) -> None:
    job = with_attachments(bench, a=b"first")
    bench.catalog.outages["activate"] = 1
    with pytest.raises(CatalogUnavailableError):
        bench.run(job)
    assert bench.list_attached(job) == []

    bench.run(job)
    bench.run(job)

    assert len(bench.list_attached(job)) == 1
    assert len(bench.queue.submitted) == 1


def test_bytes_that_a_deletion_took_away_are_stored_again(bench: Workbench) -> None:
    job = with_attachments(bench, a=b"first")
    bench.files.lost.add(hashlib.sha256(b"first").hexdigest())
    with pytest.raises(BackendError):
        bench.run(job)
    assert bench.list_attached(job) == []

    bench.run(job)

    assert len(bench.list_attached(job)) == 1


def test_a_cancelled_job_leaves_the_bytes_of_its_attachments_to_be_removed(bench: Workbench) -> None:
    job = with_attachments(bench, a=b"first")
    bench.catalog.before["activate"] = lambda: bench.catalog.cancel_job(job.id, now=now())

    bench.run(job)

    assert bench.get(job).state is DocumentState.CANCELLED
    assert bench.catalog.list_orphaned_files() == [hashlib.sha256(b"first").hexdigest()]


def test_what_is_not_taken_is_named_in_warnings(bench: Workbench) -> None:
    job = with_attachments(bench, a=b"first")
    bench.reader.left_out = (
        LeftOut("big.zip", LeaveReason.TOO_LARGE),
        LeftOut("one.pdf", LeaveReason.TOO_MANY),
        LeftOut("huge.zip", LeaveReason.TOO_LARGE),
    )
    bench.reader.skipped = (LeftOut("logo.png", LeaveReason.SMALL_PICTURE),)

    bench.run(job)

    warnings = {warning.code: warning.message for warning in bench.get(job).warnings}
    assert warnings == {
        "attachments_not_read": "not read: big.zip, huge.zip (too large); one.pdf (too many)",
        "attachments_skipped": "not taken for documents: logo.png (small picture in the text)",
    }
    assert len(bench.list_attached(job)) == 1


def test_many_names_are_not_all_listed(bench: Workbench) -> None:
    job = with_attachments(bench, a=b"first")
    bench.reader.left_out = tuple(LeftOut(f"{n}.pdf", LeaveReason.TOO_MANY) for n in range(30))

    bench.run(job)

    (warning,) = bench.get(job).warnings
    assert warning.message.endswith("19.pdf and 10 more (too many)")


def test_a_document_is_ready_even_if_nothing_can_be_taken_out_of_it(bench: Workbench) -> None:
    job = with_attachments(bench, a=b"first")
    bench.reader.attached = DamagedFileError("it ended its process")

    bench.run(job)

    document = bench.get(job)
    assert document.state is DocumentState.READY_WITH_WARNINGS
    assert [warning.code for warning in document.warnings] == ["attachments_not_read"]
    assert "it ended its process" in document.warnings[0].message


def test_limits_hold_for_all_that_an_upload_brings_along(bench: Workbench) -> None:
    top = with_attachments(bench, inner=b"a mail", a=b"first")
    bench.run(top)
    inner = next(item for item in bench.list_attached(top) if "inner" in item.name)
    bench.reader.attached = {"leaf.txt": b"leaf"}

    bench.run(bench.catalog.get_job(inner.job_id))

    (leaf,) = bench.list_attached(bench.catalog.get_job(inner.job_id))
    assert leaf.name == "mail.eml › inner.txt › leaf.txt"
    assert bench.reader.limits == [AttachmentLimits(5, 50, 100), AttachmentLimits(3, 50, 100 - 11)]


def test_what_is_attached_too_deep_is_only_named(bench: Workbench) -> None:
    job = with_attachments(bench, inner=b"one")
    bench.run(job)
    for content in (b"two", b"three"):
        (inner,) = bench.list_attached(job)
        bench.reader.attached = {"inner.txt": content}
        job = bench.catalog.get_job(inner.job_id)
        if content == b"three":
            bench.reader.attached = {}
            bench.reader.left_out = (LeftOut("deep.pdf", LeaveReason.TOO_MANY),)
        bench.run(job)

    assert bench.reader.limits[-1] == AttachmentLimits(0, 0, 0)
    (warning,) = bench.get(job).warnings
    assert warning.message == "not read: deep.pdf (attached to attachments, too deep)"


def test_a_document_without_text_is_ready_if_something_is_attached(bench: Workbench) -> None:
    job = with_attachments(bench, a=b"first")
    bench.reader.parsed = ParsedDocument((Page(1, ""),), "application/pdf", attachment_count=1)

    bench.run(job)

    document = bench.get(job)
    assert (document.state, document.chunk_count) == (DocumentState.READY, 0)
    assert len(bench.list_attached(job)) == 1


def test_a_document_without_text_fails_if_nothing_of_its_attachments_is_taken(bench: Workbench) -> None:
    job = with_attachments(bench, a=b"first")
    bench.reader.parsed = ParsedDocument((Page(1, ""),), "application/pdf", attachment_count=1)
    bench.reader.attached = {}

    bench.run(job)

    error = bench.get(job).error
    assert error is not None
    assert error.code == "no_text_found"
