from __future__ import annotations

import io
from dataclasses import dataclass, field, replace

import pytest

from kb.adapters.memory_passwords import MemoryPasswords
from kb.errors import (
    CollectionNotFoundError,
    DocumentNotFoundError,
    EmptyFileError,
    InvalidNameError,
    JobStateError,
    PasswordsUnavailableError,
    QueueUnavailableError,
    UploadTooLargeError,
    VectorStoreUnavailableError,
)
from kb.library import Library
from kb.ports import StoredFile
from kb.types import Attempt, Collection, JobState, Registration
from tests.unit.fakes import Clock, FakeCatalog, FakeFiles, FakeLexical, FakeQueue, FakeVectors


@dataclass
class Parts:
    catalog: FakeCatalog = field(default_factory=FakeCatalog)
    files: FakeFiles = field(default_factory=FakeFiles)
    queue: FakeQueue = field(default_factory=FakeQueue)
    vectors: FakeVectors = field(default_factory=FakeVectors)
    lexical: FakeLexical = field(default_factory=FakeLexical)
    passwords: MemoryPasswords = field(default_factory=MemoryPasswords)
    clock: Clock = field(default_factory=Clock)

    def open(self) -> Library:
        library = Library(
            catalog=self.catalog,
            files=self.files,
            queue=self.queue,
            vectors=self.vectors,
            lexical=self.lexical,
            passwords=self.passwords,
            max_upload_bytes=1000,
            clock=self.clock,
        )
        library.ensure_default_collection()
        return library


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def library(parts: Parts) -> Library:
    return parts.open()


def test_the_default_collection_is_created_once(parts: Parts, library: Library) -> None:
    again = library.ensure_default_collection()

    assert [c.name for c in parts.catalog.list_collections()] == ["default"]
    assert again.name == "default"


def test_two_processes_may_create_the_default_collection_at_once(parts: Parts, library: Library) -> None:
    class ListsTooEarly(FakeCatalog):
        calls = 0

        def list_collections(self) -> list[Collection]:
            self.calls += 1
            return [] if self.calls == 1 else super().list_collections()

    late = ListsTooEarly()
    late.collections = parts.catalog.collections
    parts.catalog = late

    assert parts.open().ensure_default_collection().name == "default"


def test_an_upload_is_kept_registered_and_queued(parts: Parts, library: Library) -> None:
    outcome = library.upload("default", name="..\\dir/故障代码.pdf", stream=io.BytesIO(b"abc"))

    assert outcome.document.name == "故障代码.pdf"
    assert parts.files.kept[outcome.document.sha256] == b"abc"
    assert outcome.job is not None
    assert parts.queue.submitted == [outcome.job.id]


def test_the_same_bytes_are_a_duplicate_without_a_job(parts: Parts, library: Library) -> None:
    first = library.upload("default", name="a.txt", stream=io.BytesIO(b"abc"))

    second = library.upload("default", name="b.txt", stream=io.BytesIO(b"abc"))

    assert second.duplicate
    assert second.job is None
    assert second.document.id == first.document.id
    assert len(parts.queue.submitted) == 1


def test_force_ingests_the_same_bytes_again(parts: Parts, library: Library) -> None:
    library.upload("default", name="a.txt", stream=io.BytesIO(b"abc"))

    second = library.upload("default", name="a.txt", stream=io.BytesIO(b"abc"), force=True)

    assert second.job is not None
    assert len(parts.queue.submitted) == 2


def test_an_empty_file_is_refused_and_not_kept(parts: Parts, library: Library) -> None:
    with pytest.raises(EmptyFileError, match=r"empty\.txt"):
        library.upload("default", name="empty.txt", stream=io.BytesIO(b""))

    assert parts.files.kept == {}
    assert parts.catalog.documents == {}


def test_a_file_over_the_limit_is_refused_by_its_name(library: Library) -> None:
    with pytest.raises(UploadTooLargeError, match=r"big\.pdf.*1000"):
        library.upload("default", name="big.pdf", stream=io.BytesIO(b"x" * 1001))


def test_an_upload_to_an_unknown_collection_keeps_nothing(parts: Parts, library: Library) -> None:
    with pytest.raises(CollectionNotFoundError):
        library.upload("other", name="a.txt", stream=io.BytesIO(b"abc"))

    assert parts.files.kept == {}


def test_with_the_queue_down_the_upload_is_accepted_and_submitted_by_a_later_sweep(
    parts: Parts, library: Library
) -> None:
    parts.queue.down = True
    outcome = library.upload("default", name="a.txt", stream=io.BytesIO(b"abc"))
    assert outcome.job is not None
    assert parts.queue.submitted == []

    parts.queue.down = False
    parts.clock.advance(31)
    library.sweep()

    assert parts.queue.submitted == [outcome.job.id]


def test_a_sweep_submits_no_job_again_that_waits_behind_others(parts: Parts, library: Library) -> None:
    outcome = library.upload("default", name="a.txt", stream=io.BytesIO(b"abc"))
    assert outcome.job is not None
    parts.clock.advance(31)
    parts.queue.waiting = 1

    library.sweep()
    assert parts.queue.submitted == [outcome.job.id]

    parts.queue.waiting = 0
    library.sweep()
    assert parts.queue.submitted == [outcome.job.id, outcome.job.id]


def test_bytes_removed_between_saving_and_registering_are_saved_again(parts: Parts) -> None:
    class LosesFirstSave(FakeFiles):
        saves = 0

        def save(self, stream: io.BufferedIOBase, *, max_bytes: int) -> StoredFile:  # type: ignore[override]  # narrower stream in a test
            stored = super().save(stream, max_bytes=max_bytes)  # type: ignore[arg-type]  # as above
            self.saves += 1
            if self.saves == 1:
                self.delete(stored.sha256)
            return stored

    parts.files = LosesFirstSave()

    outcome = parts.open().upload("default", name="a.txt", stream=io.BytesIO(b"abc"))

    assert parts.files.kept == {outcome.document.sha256: b"abc"}


def test_deleting_a_document_removes_every_trace(parts: Parts, library: Library) -> None:
    document = library.upload("default", name="a.txt", stream=io.BytesIO(b"abc")).document

    library.delete_document("default", document.id)

    assert parts.catalog.documents == {}
    assert parts.catalog.jobs == {}
    assert parts.files.kept == {}
    assert parts.vectors.deleted == parts.lexical.deleted == [document.key]
    assert parts.catalog.garbage == []


def test_bytes_that_another_collection_needs_survive_a_deletion(parts: Parts, library: Library) -> None:
    library.create_collection("second")
    first = library.upload("default", name="a.txt", stream=io.BytesIO(b"abc")).document
    library.upload("second", name="a.txt", stream=io.BytesIO(b"abc"))

    library.delete_document("default", first.id)

    assert first.sha256 in parts.files.kept


def test_an_upload_may_be_taken_back_from_where_it_is_attached_as_well(
    parts: Parts, library: Library
) -> None:
    document = library.upload("default", name="a.txt", stream=io.BytesIO(b"abc")).document
    parts.catalog.attached.add(document.id)

    library.delete_document("default", document.id, keep_attached=True)

    assert document.id in parts.catalog.documents
    assert parts.files.kept == {document.sha256: b"abc"}


def test_the_bytes_of_a_replaced_document_are_removed_by_the_sweep(parts: Parts, library: Library) -> None:
    sha256 = library.upload("default", name="a.txt", stream=io.BytesIO(b"abc")).document.sha256
    parts.catalog.orphaned.add(sha256)

    library.sweep()

    assert parts.files.kept == {}
    assert parts.catalog.orphaned == set()


def test_with_an_index_down_a_deletion_leaves_garbage_for_the_sweep(parts: Parts, library: Library) -> None:
    document = library.upload("default", name="a.txt", stream=io.BytesIO(b"abc")).document
    parts.lexical.down = True

    library.delete_document("default", document.id)
    assert parts.catalog.documents == {}
    assert parts.catalog.garbage == [(document.collection_id, document.key)]

    parts.lexical.down = False
    library.sweep()
    assert parts.lexical.deleted == [document.key]
    assert parts.catalog.garbage == []


def test_deleting_an_unknown_document_says_so(library: Library) -> None:
    with pytest.raises(DocumentNotFoundError):
        library.delete_document("default", "nothing")


def test_the_sweep_does_its_second_half_when_the_first_fails(parts: Parts, library: Library) -> None:
    first = library.upload("default", name="a.txt", stream=io.BytesIO(b"abc")).document
    second = library.upload("default", name="b.txt", stream=io.BytesIO(b"abcd"))
    parts.vectors.down = True
    library.delete_document("default", first.id)
    parts.clock.advance(31)

    with pytest.raises(VectorStoreUnavailableError):
        library.sweep()

    assert second.job is not None
    assert parts.queue.submitted[-1] == second.job.id
    assert len(parts.queue.submitted) == 3


def test_the_sweep_reports_a_queue_that_is_down(parts: Parts, library: Library) -> None:
    library.upload("default", name="a.txt", stream=io.BytesIO(b"abc"))
    parts.queue.down = True
    parts.clock.advance(31)

    with pytest.raises(QueueUnavailableError):
        library.sweep()


def test_deleting_a_collection_removes_documents_bytes_and_index(parts: Parts, library: Library) -> None:
    library.upload("default", name="a.txt", stream=io.BytesIO(b"abc"))
    collection = parts.catalog.get_collection("default")

    library.delete_collection("default")

    assert parts.catalog.collections == {}
    assert parts.files.kept == {}
    assert collection.id in parts.vectors.deleted
    assert collection.id in parts.lexical.deleted


def test_a_collection_survives_while_an_index_is_down(parts: Parts, library: Library) -> None:
    parts.lexical.down = True

    with pytest.raises(Exception, match="switched off"):
        library.delete_collection("default")

    assert parts.catalog.get_collection("default").name == "default"


def test_an_index_that_fails_after_the_catalog_let_go_is_only_logged(parts: Parts) -> None:
    class FailsLater(FakeVectors):
        def delete_collection(self, collection_id: str) -> None:
            super().delete_collection(collection_id)
            self.down = True

    parts.vectors = FailsLater()
    library = parts.open()

    library.delete_collection("default")

    assert parts.catalog.collections == {}


@pytest.mark.parametrize("name", ["", "   ", "a/b", "a\\b", "..", ".", "a\x00b", "a\u202eb", "x" * 65])
def test_a_collection_name_that_does_not_fit_a_path_is_refused(library: Library, name: str) -> None:
    with pytest.raises(InvalidNameError):
        library.create_collection(name)


def test_a_collection_name_may_be_of_any_script(library: Library) -> None:
    assert library.create_collection(" 液压 维修-2 ").name == "液压 维修-2"


def test_a_cancelled_job_can_be_retried(parts: Parts, library: Library) -> None:
    job = library.upload("default", name="a.txt", stream=io.BytesIO(b"abc")).job
    assert job is not None

    assert library.cancel_job(job.id).state is JobState.CANCELLED
    assert library.retry_job(job.id).state is JobState.QUEUED

    assert parts.queue.submitted == [job.id, job.id]
    with pytest.raises(JobStateError):
        library.retry_job(job.id)


def test_a_queued_job_is_stalled_only_after_ten_seconds_without_a_worker(
    parts: Parts, library: Library
) -> None:
    job = library.upload("default", name="a.txt", stream=io.BytesIO(b"abc")).job
    assert job is not None
    parts.queue.workers = 0
    assert library.find_stalled_reason(job) is None

    parts.clock.advance(11)
    assert library.find_stalled_reason(job) == "no_live_worker"
    assert library.find_stalled_reason(job) == "no_live_worker"
    assert parts.queue.worker_probes == 1

    parts.clock.advance(6)
    parts.queue.workers = 1
    assert library.find_stalled_reason(job) is None

    parts.clock.advance(6)
    parts.queue.down = True
    assert library.find_stalled_reason(job) == "queue_unavailable"


def test_a_running_job_is_stalled_once_its_worker_is_silent(parts: Parts, library: Library) -> None:
    job = library.upload("default", name="a.txt", stream=io.BytesIO(b"abc")).job
    assert job is not None
    parts.queue.workers = 0
    parts.clock.advance(60)
    silent = replace(job, state=JobState.RUNNING)

    assert library.find_stalled_reason(silent) == "no_live_worker"
    assert library.find_stalled_reason(replace(silent, updated_at=parts.clock())) is None
    assert library.find_stalled_reason(replace(job, state=JobState.FAILED)) is None


def test_the_rest_of_a_job_is_estimated_by_the_clock(parts: Parts, library: Library) -> None:
    registration = library.upload("default", name="a.txt", stream=io.BytesIO(b"abc"))
    assert registration.job is not None
    start = parts.clock()
    attempt = Attempt(1, "w1", start, rest_s=30.0)
    job = replace(registration.job, state=JobState.RUNNING, attempts=(attempt,), updated_at=start)
    parts.clock.advance(10)

    assert library.estimate_rest_s(job, registration.document) == 20


class NoPasswords(MemoryPasswords):
    def keep(self, job_id: str, password: str) -> None:
        raise PasswordsUnavailableError("the folder is on ext4")


def upload_locked(library: Library, content: bytes = b"locked") -> Registration:
    return library.upload("default", name="a.pdf", stream=io.BytesIO(content), password="secret")


def test_a_password_waits_for_the_job_and_for_one_that_waits_already(parts: Parts, library: Library) -> None:
    queued = library.upload("default", name="a.pdf", stream=io.BytesIO(b"locked"))

    again = upload_locked(library)

    assert again.duplicate
    assert parts.passwords.find(queued.document.job_id) == "secret"


def test_a_ready_document_needs_no_password(parts: Parts, library: Library) -> None:
    first = library.upload("default", name="a.pdf", stream=io.BytesIO(b"locked"))
    parts.catalog.activate(first.document.job_id, warnings=(), now=parts.clock())

    assert upload_locked(library).duplicate

    assert parts.passwords.list_jobs() == []


def test_without_a_place_for_passwords_the_upload_says_so_and_the_job_is_queued(parts: Parts) -> None:
    parts.passwords = NoPasswords()
    library = parts.open()

    with pytest.raises(PasswordsUnavailableError):
        upload_locked(library)

    assert len(parts.queue.submitted) == 1


def test_a_cancelled_job_has_no_password_any_more(parts: Parts, library: Library) -> None:
    registration = upload_locked(library)

    library.cancel_job(registration.document.job_id)

    assert parts.passwords.list_jobs() == []


def test_the_sweep_forgets_passwords_of_jobs_that_have_ended_or_are_gone(
    parts: Parts, library: Library
) -> None:
    waiting, ended = upload_locked(library, b"1"), upload_locked(library, b"2")
    parts.catalog.activate(ended.document.job_id, warnings=(), now=parts.clock())
    parts.passwords.keep("j-gone", "secret")

    library.sweep()

    assert parts.passwords.list_jobs() == [waiting.document.job_id]
