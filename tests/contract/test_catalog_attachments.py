"""Every catalog keeps what is attached to what in step with the documents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kb.adapters.sql_catalog import SqlCatalog
from kb.ports import Attachment, AttachmentUse, Catalog, StoredFile
from kb.types import Chunk, Collection, Document, DocumentState, Job, JobState, Problem, Registration, Span
from tests.databases import DATABASES

NOW = datetime(2026, 3, 1, 8, 30, tzinfo=UTC)
BROKEN = Problem("damaged_file", "the file is cut off", "Upload it again.")


@pytest.fixture(params=list(DATABASES))
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    with DATABASES[request.param](tmp_path, request) as url, closing(SqlCatalog(url)) as opened:
        opened.migrate()
        yield opened


@pytest.fixture
def collection(catalog: Catalog) -> Collection:
    return catalog.create_collection("mails", now=NOW)


def stored(content: str) -> StoredFile:
    return StoredFile(sha256=hashlib.sha256(content.encode()).hexdigest(), size_bytes=len(content))


def attachment(content: str, name: str = "report.pdf") -> Attachment:
    return Attachment(name, stored(content))


def upload(
    catalog: Catalog, collection: Collection, content: str, *, name: str = "mail.eml", force: bool = False
) -> Registration:
    return catalog.register_document(
        collection.id, name=name, stored=stored(content), media_type="", now=NOW, force=force
    )


def start(catalog: Catalog, job_id: str, *, now: datetime = NOW) -> Job:
    started = catalog.start_attempt(job_id, worker="w1", lease_s=60, max_attempts=3, now=now)
    assert started is not None
    return started


def finish(catalog: Catalog, job_id: str, attachments: Sequence[Attachment] = ()) -> Document:
    """Ingest one document; `attachments` is what was found in it."""
    job = start(catalog, job_id)
    chunk = Chunk(f"{key(job)}-0", job.document_id, job.generation, 0, "text", (Span(1, 0, 4),))
    catalog.save_chunks(job_id, [chunk])
    document = catalog.activate(job_id, warnings=(), now=NOW, attachments=attachments)
    assert document is not None
    return document


def ingest(
    catalog: Catalog,
    collection: Collection,
    content: str,
    attachments: Sequence[Attachment] = (),
    *,
    name: str = "mail.eml",
    force: bool = False,
) -> Document:
    """Upload and ingest a document; its attachments wait."""
    registration = upload(catalog, collection, content, name=name, force=force)
    return finish(catalog, registration.document.job_id, attachments)


def finish_all(catalog: Catalog, collection: Collection) -> None:
    for document in list_all(catalog, collection):
        if document.state is DocumentState.QUEUED:
            finish(catalog, document.job_id)


def list_all(catalog: Catalog, collection: Collection) -> list[Document]:
    return catalog.list_documents(collection.id)


def names(catalog: Catalog, collection: Collection) -> list[str]:
    return [document.name for document in list_all(catalog, collection)]


def find(catalog: Catalog, collection: Collection, content: str) -> Document | None:
    found = [item for item in list_all(catalog, collection) if item.sha256 == stored(content).sha256]
    return found[0] if found else None


def get(catalog: Catalog, collection: Collection, content: str) -> Document:
    found = find(catalog, collection, content)
    assert found is not None
    return found


def key(job: Job) -> str:
    return f"{job.document_id}-g{job.generation}"


def is_visible(catalog: Catalog, document: Document) -> bool:
    return bool(catalog.find_visible_chunks([f"{document.key}-0"]))


# -- registration


def test_attachments_become_documents_with_jobs_when_their_parent_is_ready(
    catalog: Catalog, collection: Collection
) -> None:
    parent = ingest(catalog, collection, "mail", [attachment("a"), attachment("b", "photo.jpg")])

    attached = catalog.list_documents(collection.id, parent_id=parent.id)

    assert [document.name for document in attached] == ["mail.eml › photo.jpg", "mail.eml › report.pdf"]
    assert {document.parent_id for document in attached} == {parent.id}
    assert {document.state for document in attached} == {DocumentState.QUEUED}
    assert {catalog.get_job(document.job_id).state for document in attached} == {JobState.QUEUED}
    assert (parent.parent_id, len(list_all(catalog, collection))) == (None, 3)
    assert catalog.get_document(collection.id, attached[0].id) == attached[0]


def test_a_job_that_did_not_end_well_leaves_no_attachments(catalog: Catalog, collection: Collection) -> None:
    job_id = upload(catalog, collection, "mail").document.job_id
    start(catalog, job_id)
    catalog.cancel_job(job_id, now=NOW)

    assert catalog.activate(job_id, warnings=(), now=NOW, attachments=[attachment("a")]) is None

    assert names(catalog, collection) == ["mail.eml"]
    assert catalog.list_orphaned_files() == [stored("a").sha256]


def test_bytes_of_a_cancelled_job_that_a_document_needs_are_kept(
    catalog: Catalog, collection: Collection
) -> None:
    ingest(catalog, collection, "a", name="report.pdf")
    job_id = upload(catalog, collection, "mail").document.job_id
    start(catalog, job_id)
    catalog.cancel_job(job_id, now=NOW)

    catalog.activate(job_id, warnings=(), now=NOW, attachments=[attachment("a")])

    assert catalog.list_orphaned_files() == []


def test_activating_twice_registers_nothing_twice(catalog: Catalog, collection: Collection) -> None:
    parent = ingest(catalog, collection, "mail", [attachment("a")])
    child = get(catalog, collection, "a")

    again = catalog.activate(parent.job_id, warnings=(), now=NOW, attachments=[attachment("a")])

    assert again == parent
    assert catalog.list_documents(collection.id, parent_id=parent.id) == [child]
    assert len(catalog.list_jobs()) == 2


def test_the_same_bytes_twice_in_one_parent_are_one_document(
    catalog: Catalog, collection: Collection
) -> None:
    ingest(catalog, collection, "mail", [attachment("a"), attachment("a", "report (2).pdf")])

    assert names(catalog, collection) == ["mail.eml", "mail.eml › report.pdf"]


def test_ingesting_the_parent_again_ingests_its_attachments_again(
    catalog: Catalog, collection: Collection
) -> None:
    ingest(catalog, collection, "mail", [attachment("a")])
    finish_all(catalog, collection)
    before = get(catalog, collection, "a")

    ingest(catalog, collection, "mail", [attachment("a")], force=True)

    child = get(catalog, collection, "a")
    assert (child.id, child.state) == (before.id, DocumentState.QUEUED)
    assert child.generation > before.generation
    assert is_visible(catalog, before)
    finish_all(catalog, collection)
    assert names(catalog, collection) == ["mail.eml", "mail.eml › report.pdf"]
    assert not is_visible(catalog, before)


def test_names_that_no_database_stores_are_replaced(catalog: Catalog, collection: Collection) -> None:
    ingest(catalog, collection, "mail", [attachment("a", "a\x00\ud800.pdf")])

    assert names(catalog, collection) == ["mail.eml", "mail.eml › a\ufffd\ufffd.pdf"]


# -- deletion


def test_attachments_go_with_their_parent_and_leave_only_garbage(
    catalog: Catalog, collection: Collection
) -> None:
    parent = ingest(catalog, collection, "outer", [attachment("inner", "inner.eml")])
    inner = get(catalog, collection, "inner")
    finish(catalog, inner.job_id, [attachment("a")])
    leaf = get(catalog, collection, "a")
    assert leaf.name == "mail.eml › inner.eml › report.pdf"
    running = start(catalog, leaf.job_id)

    catalog.begin_delete(collection.id, parent.id)

    assert list_all(catalog, collection) == []
    assert sorted(item for _, item in catalog.list_garbage()) == sorted([parent.key, inner.key, key(running)])
    assert set(catalog.list_orphaned_files()) == {stored(text).sha256 for text in ("outer", "inner", "a")}
    assert catalog.list_jobs() == []


def test_what_another_mail_still_needs_stays_and_is_named_after_it(
    catalog: Catalog, collection: Collection
) -> None:
    first = ingest(catalog, collection, "mail 1", [attachment("inner", "inner.eml")], name="1.eml")
    finish(catalog, get(catalog, collection, "inner").job_id, [attachment("a")])
    second = ingest(catalog, collection, "mail 2", [attachment("inner", "fwd.eml")], name="2.eml")
    jobs = len(catalog.list_jobs())

    catalog.begin_delete(collection.id, first.id)

    inner = get(catalog, collection, "inner")
    assert names(catalog, collection) == ["2.eml", "2.eml › fwd.eml", "2.eml › fwd.eml › report.pdf"]
    assert (inner.parent_id, is_visible(catalog, inner)) == (second.id, True)
    assert stored("inner").sha256 not in catalog.list_orphaned_files()
    assert len(catalog.list_jobs()) == jobs - 1

    catalog.begin_delete(collection.id, second.id)

    assert list_all(catalog, collection) == []


def test_an_attachment_may_be_deleted_by_itself(catalog: Catalog, collection: Collection) -> None:
    parent = ingest(catalog, collection, "mail", [attachment("a")])

    sha256 = catalog.begin_delete(collection.id, get(catalog, collection, "a").id)

    assert sha256 == stored("a").sha256
    assert list_all(catalog, collection) == [parent]
    assert catalog.list_documents(collection.id, parent_id=parent.id) == []


def test_deleting_the_collection_removes_attachments(catalog: Catalog, collection: Collection) -> None:
    ingest(catalog, collection, "mail", [attachment("a")])

    hashes = catalog.delete_collection(collection.id)

    assert set(hashes) == {stored("mail").sha256, stored("a").sha256}


# -- uploads that are attachments as well


def test_an_upload_that_is_attached_as_well_outlives_the_mail(
    catalog: Catalog, collection: Collection
) -> None:
    document = ingest(catalog, collection, "a", name="report.pdf")
    parent = ingest(catalog, collection, "mail", [attachment("a")])
    assert catalog.list_documents(collection.id, parent_id=parent.id) == [document]

    catalog.begin_delete(collection.id, parent.id)

    assert list_all(catalog, collection) == [document]


def test_an_attachment_that_is_uploaded_becomes_an_upload(catalog: Catalog, collection: Collection) -> None:
    parent = ingest(catalog, collection, "mail", [attachment("a")])
    finish_all(catalog, collection)
    former = ingest(catalog, collection, "older", name="report.pdf")

    registration = upload(catalog, collection, "a", name="report.pdf")

    assert (registration.duplicate, registration.job) == (True, None)
    assert (registration.document.name, registration.document.parent_id) == ("report.pdf", None)
    assert is_visible(catalog, registration.document)
    assert not is_visible(catalog, former)
    catalog.begin_delete(collection.id, parent.id)
    assert names(catalog, collection) == ["report.pdf"]


def test_an_attachment_that_is_uploaded_before_it_is_ready_gets_a_job(
    catalog: Catalog, collection: Collection
) -> None:
    ingest(catalog, collection, "mail", [attachment("a")])
    ingest(catalog, collection, "older", name="report.pdf")

    registration = upload(catalog, collection, "a", name="report.pdf")

    assert registration.job is not None
    finish(catalog, registration.job.id)
    assert names(catalog, collection) == ["mail.eml", "report.pdf"]
    assert get(catalog, collection, "a").parent_id is None


def test_an_upload_that_is_taken_back_stays_where_it_is_attached(
    catalog: Catalog, collection: Collection
) -> None:
    alone = ingest(catalog, collection, "b", name="other.pdf")
    document = ingest(catalog, collection, "a", name="report.pdf")
    parent = ingest(catalog, collection, "mail", [attachment("a", "fwd.pdf")])

    assert catalog.begin_delete(collection.id, document.id, keep_attached=True) is None
    assert catalog.begin_delete(collection.id, alone.id, keep_attached=True) == stored("b").sha256

    kept = get(catalog, collection, "a")
    assert (kept.name, kept.parent_id, is_visible(catalog, kept)) == ("mail.eml › fwd.pdf", parent.id, True)
    assert names(catalog, collection) == ["mail.eml", "mail.eml › fwd.pdf"]


def test_a_replaced_upload_stays_where_it_is_attached(catalog: Catalog, collection: Collection) -> None:
    ingest(catalog, collection, "v1", name="report.pdf")
    ingest(catalog, collection, "mail", [attachment("v1")])

    ingest(catalog, collection, "v2", name="report.pdf")

    assert names(catalog, collection) == ["mail.eml", "mail.eml › report.pdf", "report.pdf"]
    assert is_visible(catalog, get(catalog, collection, "v1"))


def test_attachments_and_uploads_of_one_name_never_replace_each_other(
    catalog: Catalog, collection: Collection
) -> None:
    ingest(catalog, collection, "mine", name="mail.eml › report.pdf")
    ingest(catalog, collection, "mail", [attachment("a")])
    finish_all(catalog, collection)

    ingest(catalog, collection, "mine too", name="mail.eml › report.pdf")

    assert names(catalog, collection) == ["mail.eml", "mail.eml › report.pdf", "mail.eml › report.pdf"]
    assert find(catalog, collection, "mine") is None


# -- new versions of a parent


def test_a_new_version_keeps_what_is_still_attached_and_drops_what_is_gone(
    catalog: Catalog, collection: Collection
) -> None:
    ingest(catalog, collection, "v1", [attachment("same", "same.pdf"), attachment("gone", "gone.pdf")])
    finish_all(catalog, collection)
    same = get(catalog, collection, "same")
    jobs = {job.id for job in catalog.list_jobs()}

    second = ingest(catalog, collection, "v2", [attachment("same", "same.pdf"), attachment("new", "new.pdf")])

    kept, new = get(catalog, collection, "same"), get(catalog, collection, "new")
    assert names(catalog, collection) == ["mail.eml", "mail.eml › new.pdf", "mail.eml › same.pdf"]
    assert (kept.key, kept.parent_id, is_visible(catalog, kept)) == (same.key, second.id, True)
    assert {job.id for job in catalog.list_jobs()} - jobs == {second.job_id, new.job_id}
    assert stored("gone").sha256 in catalog.list_orphaned_files()


def test_a_changed_attachment_is_replaced_when_its_new_version_is_ready(
    catalog: Catalog, collection: Collection
) -> None:
    ingest(catalog, collection, "v1", [attachment("report 1")])
    finish_all(catalog, collection)
    old = get(catalog, collection, "report 1")
    second = ingest(catalog, collection, "v2", [attachment("report 2")])
    new = get(catalog, collection, "report 2")
    assert get(catalog, collection, "report 1").parent_id == second.id
    assert is_visible(catalog, old)

    finish(catalog, new.job_id)

    assert find(catalog, collection, "report 1") is None
    assert not is_visible(catalog, old)
    assert names(catalog, collection) == ["mail.eml", "mail.eml › report.pdf"]


def test_an_old_attachment_whose_new_version_fails_goes_with_the_parent(
    catalog: Catalog, collection: Collection
) -> None:
    ingest(catalog, collection, "v1", [attachment("report 1")])
    finish_all(catalog, collection)
    second = ingest(catalog, collection, "v2", [attachment("report 2")])
    failing = get(catalog, collection, "report 2")
    start(catalog, failing.job_id)
    catalog.fail_job(failing.job_id, problem=BROKEN, now=NOW)
    assert is_visible(catalog, get(catalog, collection, "report 1"))

    catalog.begin_delete(collection.id, second.id)

    assert list_all(catalog, collection) == []


def test_going_back_to_the_old_version_brings_its_attachments_back(
    catalog: Catalog, collection: Collection
) -> None:
    ingest(catalog, collection, "v1", [attachment("report 1")])
    finish_all(catalog, collection)
    ingest(catalog, collection, "v2", [attachment("report 2")])

    first = ingest(catalog, collection, "v1", [attachment("report 1")])

    old = get(catalog, collection, "report 1")
    assert (old.parent_id, is_visible(catalog, old)) == (first.id, True)
    assert names(catalog, collection) == ["mail.eml", "mail.eml › report.pdf"]


def test_a_new_version_may_have_the_old_one_attached(catalog: Catalog, collection: Collection) -> None:
    ingest(catalog, collection, "v1", [attachment("a")])
    finish_all(catalog, collection)

    second = ingest(catalog, collection, "v2", [attachment("v1", "old.eml")])

    old = get(catalog, collection, "v1")
    assert (old.parent_id, is_visible(catalog, old)) == (second.id, True)
    assert names(catalog, collection) == [
        "mail.eml",
        "mail.eml › old.eml",
        "mail.eml › old.eml › report.pdf",
    ]


def test_a_failed_attachment_is_not_tried_again_by_another_mail(
    catalog: Catalog, collection: Collection
) -> None:
    ingest(catalog, collection, "mail 1", [attachment("a")], name="1.eml")
    child = get(catalog, collection, "a")
    start(catalog, child.job_id)
    catalog.fail_job(child.job_id, problem=BROKEN, now=NOW)

    second = ingest(catalog, collection, "mail 2", [attachment("a")], name="2.eml")

    (same,) = catalog.list_documents(collection.id, parent_id=second.id)
    assert (same.job_id, same.state) == (child.job_id, DocumentState.FAILED)
    assert catalog.retry_job(child.job_id, now=NOW + timedelta(seconds=1)).state is JobState.QUEUED


# -- limits


def test_what_an_upload_brought_along_is_measured_from_its_top(
    catalog: Catalog, collection: Collection
) -> None:
    top = ingest(catalog, collection, "top", [attachment("inner", "inner.eml"), attachment("abc")])
    inner = get(catalog, collection, "inner")
    finish(catalog, inner.job_id, [attachment("leaf", "leaf.txt")])
    leaf = get(catalog, collection, "leaf")

    measured = [catalog.measure_attachments(collection.id, item.id) for item in (top, inner, leaf)]

    assert measured == [AttachmentUse(0, 0, 0), AttachmentUse(1, 2, 8), AttachmentUse(2, 3, 12)]
