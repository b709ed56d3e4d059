"""Every catalog keeps the promises of `kb.ports.Catalog`."""

from __future__ import annotations

import hashlib
import multiprocessing
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kb.adapters.sql_catalog import SqlCatalog
from kb.errors import (
    AnswerNotFoundError,
    CollectionExistsError,
    CollectionNotFoundError,
    DocumentNotFoundError,
    IndexMismatchError,
    InvalidNameError,
    JobCancelledError,
    JobNotFoundError,
    JobStateError,
)
from kb.ports import Catalog, StoredChunks, StoredFile
from kb.types import (
    Block,
    BlockKind,
    Box,
    Calibration,
    Chunk,
    Collection,
    Document,
    DocumentState,
    IndexParts,
    Job,
    JobState,
    Line,
    Page,
    PageQuality,
    ParsedDocument,
    Problem,
    Registration,
    Scope,
    Span,
    TextSource,
)
from tests.databases import DATABASES
from tests.unit.kb.stand_ins import make_receipt

NOW = datetime(2026, 3, 1, 8, 30, 15, 123456, tzinfo=UTC)
LEASE_S = 60.0
MAX_ATTEMPTS = 3
BROKEN = Problem("damaged_file", "the file is cut off", "Upload it again.")


@pytest.fixture(params=list(DATABASES))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with DATABASES[request.param](tmp_path, request) as opened:
        yield opened


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    with closing(SqlCatalog(url)) as opened:
        opened.migrate()
        yield opened


@pytest.fixture
def collection(catalog: Catalog) -> Collection:
    return catalog.create_collection("manuals", now=NOW)


# -- what the tests do again and again


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def stored(content: str) -> StoredFile:
    return StoredFile(sha256=hashlib.sha256(content.encode()).hexdigest(), size_bytes=len(content))


def register(
    catalog: Catalog,
    collection: Collection,
    content: str = "v1",
    *,
    name: str = "press.pdf",
    now: datetime = NOW,
    force: bool = False,
) -> Registration:
    return catalog.register_document(
        collection.id, name=name, stored=stored(content), media_type="application/pdf", now=now, force=force
    )


def get_job(registration: Registration) -> Job:
    assert registration.job is not None
    return registration.job


def start(catalog: Catalog, job: Job, *, worker: str = "w1", now: datetime = NOW) -> Job | None:
    return catalog.start_attempt(job.id, worker=worker, lease_s=LEASE_S, max_attempts=MAX_ATTEMPTS, now=now)


def progress(
    catalog: Catalog,
    job: Job,
    *,
    now: datetime = NOW,
    pages_done: int = 1,
    stage: str = "reading",
    rest_s: float | None = None,
) -> bool:
    return catalog.report_progress(
        job.id,
        state=DocumentState.PARSING,
        stage=stage,
        pages_done=pages_done,
        page_count=2,
        rest_s=rest_s,
        lease_s=LEASE_S,
        now=now,
    )


def parsed(text: str = "Press manual") -> ParsedDocument:
    return ParsedDocument(
        pages=(Page(1, text), Page(2, f"{text} 2")), media_type="application/pdf", title="Press"
    )


def build_chunks(job: Job, texts: Sequence[str] = ("one", "two")) -> list[Chunk]:
    return [
        Chunk(
            id=f"{job.document_id}-g{job.generation}-{index:05d}",
            document_id=job.document_id,
            generation=job.generation,
            index=index,
            text=text,
            spans=(Span(1, 0, len(text)),),
        )
        for index, text in enumerate(texts)
    ]


def ingest(
    catalog: Catalog, job: Job, *, texts: Sequence[str] = ("one", "two"), now: datetime = NOW
) -> Document:
    assert start(catalog, job, now=now) is not None
    catalog.save_parsed(job.id, parsed(), now=now)
    catalog.save_chunks(job.id, build_chunks(job, texts))
    document = catalog.activate(job.id, warnings=(), now=now)
    assert document is not None
    return document


def visible_texts(catalog: Catalog, *jobs: Job, count: int = 2) -> list[str]:
    ids = [f"{job.document_id}-g{job.generation}-{index:05d}" for job in jobs for index in range(count)]
    return sorted(chunk.text for chunk, _ in catalog.find_visible_chunks(ids).values())


def key(job: Job) -> str:
    return f"{job.document_id}-g{job.generation}"


def garbage_keys(catalog: Catalog) -> list[str]:
    return [document_key for _, document_key in catalog.list_garbage()]


def sweep(catalog: Catalog) -> None:
    for collection_id, document_key in catalog.list_garbage():
        catalog.forget_garbage(collection_id, document_key)


# -- collections


def test_a_collection_is_found_by_name_and_by_id(catalog: Catalog) -> None:
    created = catalog.create_collection("  设备 手册 🛠 ", now=NOW)

    assert created.name == "设备 手册 🛠"
    assert created.id.startswith("col_")
    assert created.created_at == NOW
    assert catalog.get_collection("设备 手册 🛠") == created
    assert catalog.get_collection_by_id(created.id) == created


def test_a_collection_name_is_the_same_however_its_accents_are_written(catalog: Catalog) -> None:
    created = catalog.create_collection("Mu\u0308hle", now=NOW)

    assert catalog.get_collection("M\u00fchle") == created
    with pytest.raises(CollectionExistsError):
        catalog.create_collection("M\u00fchle", now=NOW)


@pytest.mark.parametrize("name", ["", "   ", "x" * 65, "two\nlines", "nul\x00", "\ud800"])
def test_a_collection_needs_a_usable_name(catalog: Catalog, name: str) -> None:
    with pytest.raises(InvalidNameError):
        catalog.create_collection(name, now=NOW)


def test_a_collection_name_may_have_64_characters(catalog: Catalog) -> None:
    assert catalog.create_collection("机" * 64, now=NOW).name == "机" * 64


@pytest.mark.parametrize("name", ["unknown", "", "nul\x00", "\ud800"])
def test_unknown_collections_raise(catalog: Catalog, name: str) -> None:
    with pytest.raises(CollectionNotFoundError):
        catalog.get_collection(name)
    with pytest.raises(CollectionNotFoundError):
        catalog.get_collection_by_id(name)
    with pytest.raises(CollectionNotFoundError):
        catalog.delete_collection(name)
    with pytest.raises(CollectionNotFoundError):
        catalog.claim_fingerprint(name, fingerprint="e5", dimension=8)
    with pytest.raises(CollectionNotFoundError):
        catalog.register_document(name, name="a", stored=stored("a"), media_type="", now=NOW)


def test_collections_are_listed_by_name_with_their_counts(catalog: Catalog) -> None:
    names = ["zeta", "Alpha", "压机", "alpha"]
    by_name = {name: catalog.create_collection(name, now=NOW) for name in names}
    ingest(catalog, get_job(register(catalog, by_name["压机"], "a", name="a")), texts=["1", "2", "3"])
    register(catalog, by_name["压机"], "b", name="b")

    listed = catalog.list_collections()

    assert [item.name for item in listed] == ["Alpha", "alpha", "zeta", "压机"]
    assert [(item.document_count, item.chunk_count) for item in listed] == [(0, 0)] * 3 + [(2, 3)]


def test_the_first_fingerprint_stays(catalog: Catalog, collection: Collection) -> None:
    catalog.claim_fingerprint(collection.id, fingerprint="e5", dimension=384)
    catalog.claim_fingerprint(collection.id, fingerprint="e5", dimension=384)

    found = catalog.get_collection("manuals")
    assert (found.fingerprint, found.dimension) == ("e5", 384)
    with pytest.raises(IndexMismatchError) as caught:
        catalog.claim_fingerprint(collection.id, fingerprint="bge", dimension=384)
    assert (caught.value.expected, caught.value.actual) == ("e5", "bge")


def test_deleting_a_collection_removes_all_below_it(catalog: Catalog, collection: Collection) -> None:
    other = catalog.create_collection("other", now=NOW)
    register(catalog, other, "shared")
    job = get_job(register(catalog, collection, "own"))
    ingest(catalog, job)
    register(catalog, collection, "shared", name="b")

    hashes = catalog.delete_collection(collection.id)

    assert hashes == [stored("own").sha256]
    assert catalog.list_orphaned_files() == [stored("own").sha256]
    assert [item.name for item in catalog.list_collections()] == ["other"]
    assert visible_texts(catalog, job) == []
    assert catalog.get_pages(job.document_id) == []
    with pytest.raises(JobNotFoundError):
        catalog.get_job(job.id)


def test_what_a_worker_writes_after_its_collection_was_deleted_is_garbage(
    catalog: Catalog, collection: Collection
) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)

    catalog.delete_collection(collection.id)

    assert catalog.list_garbage() == [(collection.id, key(job))]
    sweep(catalog)
    assert not progress(catalog, job)
    catalog.finish_cancel(job.id, now=NOW)
    assert catalog.list_garbage() == [(collection.id, key(job))]
    sweep(catalog)
    assert catalog.list_garbage() == []


# -- registration


def test_a_registered_document_waits_for_a_worker(catalog: Catalog, collection: Collection) -> None:
    registration = register(catalog, collection)

    document, job = registration.document, get_job(registration)
    assert not registration.duplicate
    assert document.id.startswith("doc_")
    assert (document.name, document.media_type, document.size_bytes) == ("press.pdf", "application/pdf", 2)
    assert (document.state, document.generation, document.job_id) == (DocumentState.QUEUED, 1, job.id)
    assert (document.created_at, document.updated_at, document.finished_at) == (NOW, NOW, None)
    assert (job.state, job.document_id, job.generation) == (JobState.QUEUED, document.id, 1)
    assert catalog.get_document(collection.id, document.id) == document
    assert catalog.get_job(job.id) == job


def test_the_same_bytes_are_one_document_under_their_last_name(
    catalog: Catalog, collection: Collection
) -> None:
    first = register(catalog, collection)

    again = register(catalog, collection, name="new name.pdf", now=after(5))

    renamed = replace(first.document, name="new name.pdf")
    assert again == Registration(document=renamed, job=None, duplicate=True)
    ingest(catalog, get_job(first))
    third = register(catalog, collection, name="third name.pdf")
    assert (third.duplicate, third.job) == (True, None)
    assert [item.name for item in catalog.list_documents(collection.id)] == ["third name.pdf"]
    assert catalog.list_garbage() == []


@pytest.mark.parametrize("is_ready", [True, False])
def test_bytes_under_the_name_of_others_replace_them(
    catalog: Catalog, collection: Collection, is_ready: bool
) -> None:
    first = register(catalog, collection, name="old.pdf")
    if is_ready:
        ingest(catalog, get_job(first))
    other = register(catalog, collection, name="manual.pdf", content="v2")
    ingest(catalog, get_job(other))

    again = register(catalog, collection, name="manual.pdf", now=after(5))
    if again.job is not None:
        ingest(catalog, again.job)

    assert again.duplicate
    assert (again.job is None) == is_ready
    (left,) = catalog.list_documents(collection.id)
    assert (left.id, left.name, left.state) == (first.document.id, "manual.pdf", DocumentState.READY)


def test_what_replaces_a_name_spares_bytes_that_got_another(catalog: Catalog, collection: Collection) -> None:
    first = register(catalog, collection, name="manual.pdf")
    ingest(catalog, get_job(first))
    newer = register(catalog, collection, name="manual.pdf", content="v2")

    register(catalog, collection, name="manual 2025.pdf")
    ingest(catalog, get_job(newer))

    listed = catalog.list_documents(collection.id)
    assert [(item.name, item.state) for item in listed] == [
        ("manual 2025.pdf", DocumentState.READY),
        ("manual.pdf", DocumentState.READY),
    ]


def test_the_same_bytes_in_two_collections_are_two_documents(
    catalog: Catalog, collection: Collection
) -> None:
    other = catalog.create_collection("other", now=NOW)

    first, second = register(catalog, collection), register(catalog, other)

    assert first.document.id != second.document.id
    assert not second.duplicate
    assert catalog.begin_delete(collection.id, first.document.id) is None
    assert catalog.begin_delete(other.id, second.document.id) == stored("v1").sha256


def test_ids_come_from_the_content(catalog: Catalog, collection: Collection) -> None:
    first = register(catalog, collection)
    catalog.begin_delete(collection.id, first.document.id)

    again = register(catalog, collection)

    assert again.document.id == first.document.id
    assert again.document.generation > first.document.generation


def test_force_makes_a_new_generation_while_the_old_one_stays_visible(
    catalog: Catalog, collection: Collection
) -> None:
    first = get_job(register(catalog, collection))
    ingest(catalog, first)

    again = register(catalog, collection, name="other name.pdf", force=True)

    second = get_job(again)
    assert again.duplicate
    assert again.document.name == "other name.pdf"
    assert second.id != first.id
    assert second.generation > first.generation
    assert visible_texts(catalog, first, second) == ["one", "two"]
    ingest(catalog, second, texts=["new"])
    assert visible_texts(catalog, first, second) == ["new"]
    assert garbage_keys(catalog) == [key(first)]


def test_failed_bytes_are_registered_anew(catalog: Catalog, collection: Collection) -> None:
    first = get_job(register(catalog, collection))
    start(catalog, first)
    catalog.fail_job(first.id, problem=BROKEN, now=NOW)

    again = register(catalog, collection, name="better name.pdf")

    second = get_job(again)
    assert not again.duplicate
    assert again.document.id == first.document_id
    assert again.document.name == "better name.pdf"
    assert (again.document.state, again.document.error) == (DocumentState.QUEUED, None)
    assert key(second) not in garbage_keys(catalog)
    ingest(catalog, second)
    assert visible_texts(catalog, second) == ["one", "two"]
    assert garbage_keys(catalog) == [key(first)]


def test_forced_registration_stops_the_job_that_is_at_work(catalog: Catalog, collection: Collection) -> None:
    first = get_job(register(catalog, collection))
    start(catalog, first)

    second = get_job(register(catalog, collection, force=True))

    assert not progress(catalog, first)
    assert catalog.activate(first.id, warnings=(), now=NOW) is None
    catalog.finish_cancel(first.id, now=NOW)
    assert catalog.get_job(first.id).state is JobState.CANCELLED
    assert catalog.get_document(collection.id, first.document_id).state is DocumentState.QUEUED
    assert garbage_keys(catalog) == [key(first)]
    ingest(catalog, second)
    assert visible_texts(catalog, second) == ["one", "two"]


def test_forced_registration_ends_a_waiting_job_at_once(catalog: Catalog, collection: Collection) -> None:
    first = get_job(register(catalog, collection))

    register(catalog, collection, force=True)

    assert catalog.get_job(first.id).state is JobState.CANCELLED
    with pytest.raises(JobStateError):
        catalog.retry_job(first.id, now=NOW)


def test_threads_that_register_the_same_bytes_make_one_document(
    catalog: Catalog, collection: Collection
) -> None:
    barrier = threading.Barrier(4)

    def upload() -> Registration:
        barrier.wait()
        return register(catalog, collection)

    with ThreadPoolExecutor(4) as pool:
        results = [future.result() for future in [pool.submit(upload) for _ in range(4)]]

    assert sorted(result.duplicate for result in results) == [False, True, True, True]
    assert len(catalog.list_documents(collection.id)) == 1
    assert len(catalog.list_jobs()) == 1


def register_in_process(url: str, collection: Collection) -> None:
    with closing(SqlCatalog(url)) as catalog:
        catalog.migrate()
        for number in range(5):
            register(catalog, collection, f"content {number}", name=f"{number}.pdf")


def test_processes_that_register_the_same_bytes_make_one_document(
    catalog: Catalog, collection: Collection, url: str
) -> None:
    context = multiprocessing.get_context("spawn")
    uploaders = [context.Process(target=register_in_process, args=(url, collection)) for _ in range(3)]

    for uploader in uploaders:
        uploader.start()
    for uploader in uploaders:
        uploader.join()

    assert [uploader.exitcode for uploader in uploaders] == [0, 0, 0]
    documents = catalog.list_documents(collection.id)
    assert len(documents) == len(catalog.list_jobs()) == 5
    assert sorted(document.generation for document in documents) == [1, 2, 3, 4, 5]


# -- replacement


def test_a_new_version_replaces_the_old_one_when_it_is_ready(
    catalog: Catalog, collection: Collection
) -> None:
    old = get_job(register(catalog, collection, "v1"))
    ingest(catalog, old, texts=["old"])
    new = get_job(register(catalog, collection, "v2"))
    start(catalog, new)
    catalog.save_chunks(new.id, build_chunks(new, ["new"]))

    assert visible_texts(catalog, old, new) == ["old"]
    catalog.activate(new.id, warnings=(), now=NOW)

    assert visible_texts(catalog, old, new) == ["new"]
    assert [document.id for document in catalog.list_documents(collection.id)] == [new.document_id]
    assert garbage_keys(catalog) == [key(old)]
    assert catalog.list_orphaned_files() == [stored("v1").sha256]
    catalog.forget_orphaned_file(stored("v1").sha256)
    assert catalog.list_orphaned_files() == []


def test_a_new_version_that_fails_leaves_the_old_one(catalog: Catalog, collection: Collection) -> None:
    old = get_job(register(catalog, collection, "v1"))
    ingest(catalog, old)
    new = get_job(register(catalog, collection, "v2"))
    start(catalog, new)
    catalog.save_chunks(new.id, build_chunks(new, ["new"]))

    catalog.fail_job(new.id, problem=BROKEN, now=NOW)

    assert visible_texts(catalog, old, new) == ["one", "two"]
    assert garbage_keys(catalog) == [key(new)]
    assert len(catalog.list_documents(collection.id)) == 2


def test_an_older_version_that_is_ready_later_never_replaces_a_newer_one(
    catalog: Catalog, collection: Collection
) -> None:
    old = get_job(register(catalog, collection, "v1"))
    new = get_job(register(catalog, collection, "v2"))
    start(catalog, old)

    ingest(catalog, new, texts=["new"])

    assert not progress(catalog, old)
    with pytest.raises(JobCancelledError):
        catalog.save_chunks(old.id, build_chunks(old))
    assert catalog.activate(old.id, warnings=(), now=NOW) is None
    assert visible_texts(catalog, old, new) == ["new"]
    assert key(old) in garbage_keys(catalog)


def test_versions_that_are_ready_in_order_replace_each_other(
    catalog: Catalog, collection: Collection
) -> None:
    old = get_job(register(catalog, collection, "v1"))
    new = get_job(register(catalog, collection, "v2"))

    ingest(catalog, old, texts=["old"])
    assert visible_texts(catalog, old, new) == ["old"]
    ingest(catalog, new, texts=["new"])

    assert visible_texts(catalog, old, new) == ["new"]


def test_going_back_to_the_old_bytes_wins_over_a_version_in_work(
    catalog: Catalog, collection: Collection
) -> None:
    old = get_job(register(catalog, collection, "v1"))
    ingest(catalog, old, texts=["old"])
    new = get_job(register(catalog, collection, "v2"))

    back = get_job(register(catalog, collection, "v1"))

    ingest(catalog, new, texts=["new"])
    assert visible_texts(catalog, old, new, back) == ["new"]
    assert key(old) in garbage_keys(catalog)
    ingest(catalog, back, texts=["old again"])
    assert visible_texts(catalog, old, new, back) == ["old again"]
    assert [document.id for document in catalog.list_documents(collection.id)] == [old.document_id]


def test_documents_of_other_names_and_collections_are_never_replaced(
    catalog: Catalog, collection: Collection
) -> None:
    other = catalog.create_collection("other", now=NOW)
    beside = get_job(register(catalog, collection, "a", name="Press.pdf"))
    elsewhere = get_job(register(catalog, other, "b"))
    ingest(catalog, beside)
    ingest(catalog, elsewhere)

    ingest(catalog, get_job(register(catalog, collection, "c")))

    assert len(visible_texts(catalog, beside, elsewhere)) == 4


# -- contents


def test_pages_come_back_as_they_were_parsed(catalog: Catalog, collection: Collection) -> None:
    box = Box(1.5, 2.25, 100.0, 12.125)
    full = Page(
        page_number=1,
        text="报警 E-0471\tcause 🛠 𠀀",
        source=TextSource.OCR,
        label="iv",
        width=595.3,
        height=841.9,
        blocks=(
            Block(BlockKind.HEADING, 0, 2, level=2, box=box),
            Block(BlockKind.TABLE_ROW, 3, 9, record={"代码": "E-0471", "cause": ""}, table_index=0),
        ),
        lines=(Line(0, 9, box), Line(10, 15)),
        quality=PageQuality(0.125, 3, 1, 0.93, ("low contrast",)),
    )
    job = get_job(register(catalog, collection))
    start(catalog, job)

    document = ParsedDocument((full, Page(2, "")), "text/html", title="标题", metadata={"author": "me"})
    catalog.save_parsed(job.id, document, now=NOW)

    assert catalog.get_pages(job.document_id) == [full, Page(2, "")]
    found = catalog.get_document(collection.id, job.document_id)
    assert (found.title, found.media_type, found.page_count) == ("标题", "text/html", 2)


def test_chunks_come_back_as_they_were_made(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    full = Chunk(
        id=f"{key(job)}-00000",
        document_id=job.document_id,
        generation=job.generation,
        index=0,
        text="代码 | 原因\nE-0471 | 压力",
        spans=(Span(1, 3, 9), Span(2, 0, 5)),
        context="故障 > 代码",
        heading_path=("故障", "代码"),
        records=({"代码": "E-0471"}, {}),
        language="zh",
        token_count=17,
    )
    start(catalog, job)
    catalog.save_chunks(job.id, [full])
    catalog.activate(job.id, warnings=(), now=NOW)

    assert catalog.list_chunks(job.document_id) == [full]
    assert catalog.find_visible_chunks([full.id, "unknown", full.id]) == {full.id: (full, "press.pdf")}


def test_characters_that_no_database_stores_are_replaced_without_moving_the_others(
    catalog: Catalog, collection: Collection
) -> None:
    registration = catalog.register_document(
        collection.id, name="a\x00b.pdf", stored=stored("x"), media_type="", now=NOW
    )
    job = get_job(registration)
    page = Page(1, "a\x00b\ud800c", blocks=(Block(BlockKind.TABLE_ROW, 0, 3, record={"\x00": "\udfff"}),))
    chunk = Chunk(f"{key(job)}-00000", job.document_id, job.generation, 0, "a\x00b", (Span(1, 0, 3),))
    start(catalog, job)
    title = ParsedDocument((page,), "text/plain", title="t\x00", metadata={"k": "v\x00"})
    catalog.save_parsed(job.id, title, now=NOW)
    catalog.save_chunks(job.id, [chunk])
    catalog.activate(job.id, warnings=[Problem("w", "bad \x00")], now=NOW)

    (found,) = catalog.get_pages(job.document_id)
    assert found.text == "a\ufffdb\ufffdc"
    assert found.blocks[0].record == {"\ufffd": "\ufffd"}
    assert catalog.list_chunks(job.document_id)[0].text == "a\ufffdb"
    assert catalog.get_document(collection.id, job.document_id).name == "a\ufffdb.pdf"


def test_pages_may_be_taken_by_range(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    pages = tuple(Page(number, f"page {number}") for number in range(1, 31))
    catalog.save_parsed(job.id, ParsedDocument(pages, "application/pdf"), now=NOW)

    assert [page.page_number for page in catalog.get_pages(job.document_id, first=9, last=11)] == [9, 10, 11]
    assert [page.page_number for page in catalog.get_pages(job.document_id, first=30)] == [30]
    assert catalog.get_pages(job.document_id, first=31) == []
    assert catalog.get_pages("unknown\x00") == []


def test_only_a_page_with_a_size_is_laid_out(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    drawn = Page(2, "E-0471 low", width=595.0, height=842.0, blocks=(Block(BlockKind.PARAGRAPH, 0, 10),))
    catalog.save_parsed(job.id, ParsedDocument((Page(1, "cover"), drawn), "application/pdf"), now=NOW)

    assert catalog.find_laid_out_page(job.document_id, 2) == drawn
    assert catalog.find_laid_out_page(job.document_id, 1) is None
    assert catalog.find_laid_out_page(job.document_id, 3) is None
    assert catalog.find_laid_out_page("unknown\x00", 2) is None


def test_saving_again_replaces_what_an_earlier_attempt_saved(
    catalog: Catalog, collection: Collection
) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    for _ in range(2):
        catalog.save_parsed(job.id, parsed(), now=NOW)
        catalog.save_chunks(job.id, build_chunks(job, ["one", "two", "three"]))

    catalog.save_parsed(job.id, ParsedDocument((Page(1, "only"),), "application/pdf"), now=NOW)
    catalog.save_chunks(job.id, build_chunks(job, ["only"]))

    assert [page.text for page in catalog.get_pages(job.document_id)] == ["only"]
    assert [chunk.text for chunk in catalog.list_chunks(job.document_id)] == ["only"]


def test_pages_and_chunks_belong_together_while_a_new_generation_is_made(
    catalog: Catalog, collection: Collection
) -> None:
    ingest(catalog, get_job(register(catalog, collection)))
    again = get_job(register(catalog, collection, force=True))
    start(catalog, again)
    catalog.save_parsed(again.id, parsed("New reading"), now=NOW)
    catalog.save_chunks(again.id, build_chunks(again, ["new"]))

    assert catalog.get_pages(again.document_id)[0].text == "Press manual"
    assert [chunk.text for chunk in catalog.list_chunks(again.document_id)] == ["one", "two"]
    catalog.activate(again.id, warnings=(), now=NOW)
    assert catalog.get_pages(again.document_id)[0].text == "New reading"
    assert [chunk.text for chunk in catalog.list_chunks(again.document_id)] == ["new"]


def test_nothing_parsed_is_stored_as_nothing(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    catalog.save_parsed(job.id, ParsedDocument((), "text/plain"), now=NOW)
    catalog.save_chunks(job.id, [])

    document = catalog.activate(job.id, warnings=(), now=NOW)

    assert document is not None
    assert (document.page_count, document.chunk_count) == (0, 0)
    assert catalog.find_visible_chunks([]) == {}


def test_chunks_are_not_visible_before_activation(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    catalog.save_chunks(job.id, build_chunks(job))

    assert visible_texts(catalog, job) == []
    assert [chunk.text for chunk in catalog.list_chunks(job.document_id)] == ["one", "two"]


# -- listing


def test_documents_are_listed_page_by_page_by_name(catalog: Catalog, collection: Collection) -> None:
    names = ["b.pdf", "a.pdf", "压.pdf", "B.pdf", "a.pdf"]
    for number, name in enumerate(names):
        register(catalog, collection, f"content {number}", name=name)

    listed: list[Document] = []
    while page := catalog.list_documents(collection.id, limit=2, after=listed[-1].id if listed else None):
        listed += page

    assert [document.name for document in listed] == ["B.pdf", "a.pdf", "a.pdf", "b.pdf", "压.pdf"]
    assert len({document.id for document in listed}) == 5
    assert catalog.list_documents("col_unknown") == []
    with pytest.raises(DocumentNotFoundError):
        catalog.list_documents(collection.id, after="doc_unknown")


def test_documents_are_listed_by_state(catalog: Catalog, collection: Collection) -> None:
    ready = get_job(register(catalog, collection, "a", name="a"))
    ingest(catalog, ready)
    register(catalog, collection, "b", name="b")

    listed = catalog.list_documents(collection.id, state=DocumentState.READY)

    assert [document.id for document in listed] == [ready.document_id]


def test_a_document_is_found_in_its_own_collection_only(catalog: Catalog, collection: Collection) -> None:
    other = catalog.create_collection("other", now=NOW)
    document = register(catalog, collection).document

    for collection_id, document_id in [(other.id, document.id), (collection.id, "doc_\x00")]:
        with pytest.raises(DocumentNotFoundError):
            catalog.get_document(collection_id, document_id)
        with pytest.raises(DocumentNotFoundError):
            catalog.begin_delete(collection_id, document_id)


def test_jobs_are_listed_page_by_page_newest_first(catalog: Catalog, collection: Collection) -> None:
    other = catalog.create_collection("other", now=NOW)
    jobs = [
        get_job(register(catalog, collection, f"content {number}", name=f"{number}", now=after(number // 2)))
        for number in range(5)
    ]
    register(catalog, other, "elsewhere", now=after(100))
    ingest(catalog, jobs[0])

    listed: list[Job] = []
    while page := catalog.list_jobs(
        collection_id=collection.id, limit=2, after=listed[-1].id if listed else None
    ):
        listed += page

    assert [job.id for job in listed] == [job.id for job in reversed(jobs)]
    assert len(catalog.list_jobs()) == 6
    assert [job.id for job in catalog.list_jobs(state=JobState.SUCCEEDED)] == [jobs[0].id]
    with pytest.raises(JobNotFoundError):
        catalog.list_jobs(after="job_unknown")


# -- the life of a job


def test_an_attempt_is_counted_before_any_work(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))

    started = start(catalog, job, now=after(1))

    assert started is not None
    assert started.state is JobState.RUNNING
    (attempt,) = started.attempts
    assert (attempt.number, attempt.worker, attempt.started_at) == (1, "w1", after(1))
    assert catalog.find_lease_end(job.id) == after(1 + LEASE_S)
    document = catalog.get_document(collection.id, job.document_id)
    assert (document.state, document.attempt) == (DocumentState.PARSING, 1)


def test_progress_is_shown_and_renews_the_lease(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)

    assert progress(catalog, job, now=after(50))

    document = catalog.get_document(collection.id, job.document_id)
    assert (document.stage, document.pages_done, document.page_count) == ("reading", 1, 2)
    assert document.updated_at == after(50)
    assert catalog.find_lease_end(job.id) == after(50 + LEASE_S)


def test_an_attempt_remembers_how_long_its_stage_still_takes(
    catalog: Catalog, collection: Collection
) -> None:
    job = get_job(register(catalog, collection))
    started = start(catalog, job)
    assert started is not None

    progress(catalog, job, now=after(9), rest_s=12.5)
    told = catalog.get_job(job.id).attempts[-1].rest_s
    progress(catalog, job, now=after(12), stage="embedding")

    assert started.attempts[-1].rest_s is None
    assert told == 12.5
    assert catalog.get_job(job.id).attempts[-1].rest_s is None


def test_a_finished_document_is_ready_with_its_counts(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))

    document = ingest(catalog, job, now=after(9))

    assert document == catalog.get_document(collection.id, job.document_id)
    assert document.state is DocumentState.READY
    assert (document.pages_done, document.page_count, document.chunk_count) == (2, 2, 2)
    assert document.finished_at == after(9)
    done = catalog.get_job(job.id)
    assert done.state is JobState.SUCCEEDED
    assert done.attempts[0].finished_at == after(9)
    assert catalog.find_lease_end(job.id) is None
    assert catalog.list_garbage() == []


def test_warnings_are_kept_with_the_document(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    warning = Problem("page_unreadable", "page 3 could not be read", "Scan it again.")

    document = catalog.activate(job.id, warnings=[warning], now=NOW)

    assert document is not None
    assert (document.state, document.warnings) == (DocumentState.READY_WITH_WARNINGS, (warning,))


def test_activation_may_be_repeated(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    document = ingest(catalog, job)

    assert catalog.activate(job.id, warnings=(), now=after(5)) == document
    assert visible_texts(catalog, job) == ["one", "two"]
    assert catalog.list_garbage() == []


def test_a_finished_job_is_not_started_again(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    ingest(catalog, job)

    assert start(catalog, job, now=after(1000)) is None
    assert not progress(catalog, job)
    catalog.fail_job(job.id, problem=BROKEN, now=NOW)
    catalog.release_job(job.id, problem=BROKEN, now=NOW)
    catalog.finish_cancel(job.id, now=NOW)
    assert catalog.cancel_job(job.id, now=NOW).state is JobState.SUCCEEDED
    assert catalog.get_document(collection.id, job.document_id).state is DocumentState.READY
    assert catalog.list_garbage() == []
    with pytest.raises(JobStateError):
        catalog.retry_job(job.id, now=NOW)


def test_a_live_lease_keeps_other_workers_away(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)

    assert start(catalog, job, worker="w2", now=after(LEASE_S - 1)) is None

    taken = start(catalog, job, worker="w2", now=after(LEASE_S))
    assert taken is not None
    assert [attempt.worker for attempt in taken.attempts] == ["w1", "w2"]
    assert taken.attempts[0].error is not None
    assert taken.attempts[0].error.code == "worker_lost"


def test_only_one_of_many_workers_gets_a_job(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    barrier = threading.Barrier(4)

    def compete(worker: str) -> Job | None:
        barrier.wait()
        return start(catalog, job, worker=worker)

    with ThreadPoolExecutor(4) as pool:
        started = [result for result in pool.map(compete, "abcd") if result is not None]

    assert len(started) == 1
    assert len(catalog.get_job(job.id).attempts) == 1


def test_a_job_that_kills_its_workers_is_failed(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    for number in range(MAX_ATTEMPTS):
        assert start(catalog, job, now=after(100 * number)) is not None

    assert start(catalog, job, now=after(1000)) is None

    document = catalog.get_document(collection.id, job.document_id)
    assert document.state is DocumentState.FAILED
    assert document.error is not None
    assert document.error.code == "attempts_exhausted"
    assert catalog.get_job(job.id).state is JobState.FAILED
    assert garbage_keys(catalog) == [key(job)]


def test_failure_ends_job_and_document_with_the_reason(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    catalog.save_parsed(job.id, parsed(), now=NOW)

    catalog.fail_job(job.id, problem=BROKEN, now=after(3))

    document = catalog.get_document(collection.id, job.document_id)
    assert (document.state, document.error) == (DocumentState.FAILED, BROKEN)
    assert document.finished_at == after(3)
    failed = catalog.get_job(job.id)
    assert (failed.state, failed.attempts[0].error) == (JobState.FAILED, BROKEN)
    assert garbage_keys(catalog) == [key(job)]
    assert catalog.get_pages(job.document_id) == []


def test_a_released_job_waits_for_its_next_attempt(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)

    catalog.release_job(job.id, problem=BROKEN, now=after(2))

    assert catalog.find_lease_end(job.id) is None
    assert catalog.get_document(collection.id, job.document_id).state is DocumentState.QUEUED
    assert catalog.list_garbage() == []
    again = start(catalog, job, worker="w2", now=after(3))
    assert again is not None
    assert again.attempts[0].error == BROKEN
    assert again.attempts[0].finished_at == after(2)
    assert again.attempts[1].number == 2


def test_a_paused_job_goes_on_with_the_attempt_it_has(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    progress(catalog, job)
    for number in range(2 * MAX_ATTEMPTS):
        catalog.pause_job(job.id, now=after(number))
        paused = catalog.get_document(collection.id, job.document_id)
        assert (paused.state, paused.stage, paused.pages_done) == (DocumentState.PARSING, "paused", 1)
        assert catalog.find_lease_end(job.id) is None
        assert start(catalog, job, worker=f"w{number}", now=after(number)) is not None

    running = catalog.get_job(job.id)

    assert running.state is JobState.RUNNING
    assert [(a.number, a.worker, a.error) for a in running.attempts] == [(1, "w5", None)]
    assert catalog.get_document(collection.id, job.document_id).pages_done == 1


def test_a_paused_job_that_then_kills_its_workers_is_failed(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    catalog.pause_job(job.id, now=NOW)
    for number in range(MAX_ATTEMPTS):
        assert start(catalog, job, now=after(100 * number)) is not None

    assert start(catalog, job, now=after(1000)) is None


def test_a_job_that_is_cancelled_while_it_pauses_ends_at_once(
    catalog: Catalog, collection: Collection
) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    catalog.pause_job(job.id, now=NOW)

    assert catalog.cancel_job(job.id, now=NOW).state is JobState.CANCELLED


def test_a_job_that_pauses_when_it_was_cancelled_ends(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    catalog.cancel_job(job.id, now=NOW)

    catalog.pause_job(job.id, now=NOW)

    assert catalog.get_job(job.id).state is JobState.CANCELLED


def test_planned_stops_of_a_worker_do_not_count(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    stopped = Problem("worker_stopped", "the worker was stopped")
    for number in range(2 * MAX_ATTEMPTS):
        assert start(catalog, job, now=after(number)) is not None
        catalog.release_job(job.id, problem=stopped, now=after(number))

    for number in range(MAX_ATTEMPTS):
        assert start(catalog, job, now=after(100 + number)) is not None
        catalog.release_job(job.id, problem=BROKEN, now=after(100 + number))

    assert start(catalog, job, now=after(200)) is None


def test_only_other_jobs_that_are_queued_wait(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    assert not catalog.has_waiting_jobs(besides=job.id)
    other = get_job(register(catalog, collection, "other", name="other.pdf"))

    assert catalog.has_waiting_jobs(besides=job.id)
    start(catalog, other)
    assert not catalog.has_waiting_jobs(besides=job.id)
    assert catalog.has_waiting_jobs(besides=other.id)


def test_stored_chunks_are_compared(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    chunks = build_chunks(job, ["one \x00", "two \ud800"])
    assert catalog.find_stored_chunks(job.id, chunks) is StoredChunks.NONE

    catalog.save_chunks(job.id, chunks)

    assert catalog.find_stored_chunks(job.id, chunks) is StoredChunks.SAME
    assert catalog.find_stored_chunks(job.id, chunks[:1]) is StoredChunks.OTHER
    assert catalog.find_stored_chunks(job.id, build_chunks(job, ["one", "two"])) is StoredChunks.OTHER
    assert catalog.find_stored_chunks("job_x", chunks) is StoredChunks.NONE


def test_unknown_jobs_raise_or_do_nothing(catalog: Catalog) -> None:
    with pytest.raises(JobNotFoundError):
        catalog.get_job("job_\x00")
    with pytest.raises(JobNotFoundError):
        catalog.start_attempt("job_x", worker="w", lease_s=1, max_attempts=1, now=NOW)
    with pytest.raises(JobNotFoundError):
        catalog.cancel_job("job_x", now=NOW)
    with pytest.raises(JobNotFoundError):
        catalog.retry_job("job_x", now=NOW)
    with pytest.raises(JobCancelledError):
        catalog.save_parsed("job_x", parsed(), now=NOW)
    assert catalog.find_lease_end("job_x") is None
    assert catalog.activate("job_x", warnings=(), now=NOW) is None
    catalog.fail_job("job_x", problem=BROKEN, now=NOW)
    catalog.release_job("job_x", problem=BROKEN, now=NOW)
    catalog.finish_cancel("job_x", now=NOW)
    assert catalog.list_garbage() == []


def test_stalled_jobs_are_those_that_nobody_holds_or_touched(
    catalog: Catalog, collection: Collection
) -> None:
    waiting, running, dead = (
        get_job(register(catalog, collection, name, name=name)) for name in ("waiting", "running", "dead")
    )
    done = get_job(register(catalog, collection, "done", name="done"))
    ingest(catalog, done)
    start(catalog, dead)
    start(catalog, running)
    progress(catalog, running, now=after(30))

    assert catalog.list_stalled_jobs(now=after(29)) == []
    assert catalog.list_stalled_jobs(now=after(30)) == [waiting.id]
    assert sorted(catalog.list_stalled_jobs(now=after(LEASE_S))) == sorted([waiting.id, dead.id])
    assert len(catalog.list_stalled_jobs(now=after(1000), limit=2)) == 2
    assert catalog.list_stalled_jobs(now=after(LEASE_S), begun_only=True) == [dead.id]


def test_documents_and_jobs_are_counted_by_state(catalog: Catalog, collection: Collection) -> None:
    assert catalog.count_documents() == {}
    assert catalog.count_jobs() == {}
    for name in ("one", "two", "three"):
        register(catalog, collection, name, name=name)
    ingest(catalog, get_job(register(catalog, collection, "done", name="done")))

    assert catalog.count_documents() == {DocumentState.QUEUED: 3, DocumentState.READY: 1}
    assert catalog.count_jobs() == {JobState.QUEUED: 3, JobState.SUCCEEDED: 1}


# -- cancelling


def test_a_waiting_job_is_cancelled_at_once(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))

    cancelled = catalog.cancel_job(job.id, now=after(1))

    assert (cancelled.state, cancelled.cancel_requested) == (JobState.CANCELLED, True)
    document = catalog.get_document(collection.id, job.document_id)
    assert (document.state, document.finished_at) == (DocumentState.CANCELLED, after(1))
    assert start(catalog, job) is None
    assert catalog.cancel_job(job.id, now=after(2)) == cancelled


def test_a_running_job_is_cancelled_when_its_worker_notices(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)

    asked = catalog.cancel_job(job.id, now=after(1))

    assert (asked.state, asked.cancel_requested) == (JobState.RUNNING, True)
    assert not progress(catalog, job)
    with pytest.raises(JobCancelledError):
        catalog.save_parsed(job.id, parsed(), now=NOW)
    with pytest.raises(JobCancelledError):
        catalog.save_chunks(job.id, build_chunks(job))
    assert catalog.activate(job.id, warnings=(), now=NOW) is None
    assert catalog.get_job(job.id).state is JobState.RUNNING
    catalog.finish_cancel(job.id, now=after(2))
    catalog.finish_cancel(job.id, now=after(3))
    assert catalog.get_job(job.id).state is JobState.CANCELLED
    assert catalog.get_document(collection.id, job.document_id).state is DocumentState.CANCELLED
    assert garbage_keys(catalog) == [key(job)]


def test_a_job_whose_worker_is_gone_is_cancelled_at_once(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)

    assert catalog.cancel_job(job.id, now=after(LEASE_S)).state is JobState.CANCELLED
    assert garbage_keys(catalog) == [key(job)]


def test_a_cancelled_job_whose_worker_dies_ends_when_it_is_picked_up(
    catalog: Catalog, collection: Collection
) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    catalog.cancel_job(job.id, now=after(1))

    assert catalog.list_stalled_jobs(now=after(LEASE_S)) == [job.id]
    assert start(catalog, job, worker="w2", now=after(LEASE_S)) is None

    assert catalog.get_job(job.id).state is JobState.CANCELLED


@pytest.mark.parametrize("end", ["fail", "release"])
def test_a_cancelled_job_that_ends_in_another_way_is_cancelled(
    catalog: Catalog, collection: Collection, end: str
) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    catalog.cancel_job(job.id, now=after(1))

    if end == "fail":
        catalog.fail_job(job.id, problem=BROKEN, now=after(2))
    else:
        catalog.release_job(job.id, problem=BROKEN, now=after(2))

    assert catalog.get_job(job.id).state is JobState.CANCELLED
    document = catalog.get_document(collection.id, job.document_id)
    assert (document.state, document.error) == (DocumentState.CANCELLED, None)


def test_a_job_that_nobody_cancelled_does_not_end_as_cancelled(
    catalog: Catalog, collection: Collection
) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)

    catalog.finish_cancel(job.id, now=NOW)

    assert catalog.get_job(job.id).state is JobState.RUNNING
    assert catalog.list_garbage() == []


# -- trying again


def test_a_retried_job_starts_afresh_and_shares_nothing_with_its_garbage(
    catalog: Catalog, collection: Collection
) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    catalog.fail_job(job.id, problem=BROKEN, now=NOW)

    retried = catalog.retry_job(job.id, now=after(5))

    assert (retried.id, retried.state, retried.attempts) == (job.id, JobState.QUEUED, ())
    assert retried.generation > job.generation
    document = catalog.get_document(collection.id, job.document_id)
    assert (document.state, document.error, document.finished_at) == (DocumentState.QUEUED, None, None)
    assert document.generation == retried.generation
    assert garbage_keys(catalog) == [key(job)]
    ingest(catalog, retried)
    assert visible_texts(catalog, retried) == ["one", "two"]
    assert garbage_keys(catalog) == [key(job)]


def test_a_cancelled_job_may_be_tried_again(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    catalog.cancel_job(job.id, now=NOW)

    retried = catalog.retry_job(job.id, now=after(5))

    assert not retried.cancel_requested
    assert start(catalog, retried) is not None
    with pytest.raises(JobStateError):
        catalog.retry_job(job.id, now=NOW)


def test_only_the_newest_job_of_a_document_may_be_tried_again(
    catalog: Catalog, collection: Collection
) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    catalog.fail_job(job.id, problem=BROKEN, now=NOW)
    register(catalog, collection)

    with pytest.raises(JobStateError):
        catalog.retry_job(job.id, now=NOW)


def test_retrying_a_failed_reindex_keeps_the_old_generation_visible(
    catalog: Catalog, collection: Collection
) -> None:
    first = get_job(register(catalog, collection))
    ingest(catalog, first)
    second = get_job(register(catalog, collection, force=True))
    start(catalog, second)
    catalog.fail_job(second.id, problem=BROKEN, now=NOW)

    assert visible_texts(catalog, first) == ["one", "two"]
    assert catalog.get_document(collection.id, first.document_id).chunk_count == 2
    retried = catalog.retry_job(second.id, now=NOW)
    ingest(catalog, retried, texts=["new"])
    assert visible_texts(catalog, first, second, retried) == ["new"]


# -- deleting


def test_a_deleted_document_is_hidden_at_once_and_leaves_garbage(
    catalog: Catalog, collection: Collection
) -> None:
    job = get_job(register(catalog, collection))
    ingest(catalog, job)

    sha256 = catalog.begin_delete(collection.id, job.document_id)

    assert sha256 == stored("v1").sha256
    assert visible_texts(catalog, job) == []
    assert catalog.get_pages(job.document_id) == []
    assert catalog.list_documents(collection.id) == []
    assert catalog.list_garbage() == [(collection.id, key(job))]
    with pytest.raises(JobNotFoundError):
        catalog.get_job(job.id)
    catalog.forget_garbage(collection.id, key(job))
    catalog.forget_garbage(collection.id, key(job))
    assert catalog.list_garbage() == []


def test_bytes_are_wanted_again_once_they_are_registered_again(
    catalog: Catalog, collection: Collection
) -> None:
    document = register(catalog, collection).document
    catalog.begin_delete(collection.id, document.id)
    assert catalog.list_orphaned_files() == [document.sha256]

    register(catalog, collection)

    assert catalog.list_orphaned_files() == []


def test_a_job_never_resurrects_its_deleted_document(catalog: Catalog, collection: Collection) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    catalog.save_parsed(job.id, parsed(), now=NOW)

    catalog.begin_delete(collection.id, job.document_id)

    assert not progress(catalog, job)
    with pytest.raises(JobCancelledError):
        catalog.save_parsed(job.id, parsed(), now=NOW)
    with pytest.raises(JobCancelledError):
        catalog.save_chunks(job.id, build_chunks(job))
    assert catalog.activate(job.id, warnings=(), now=NOW) is None
    assert catalog.list_documents(collection.id) == []


@pytest.mark.parametrize("end", ["finish_cancel", "activate", "fail_job", "release_job"])
def test_what_a_worker_wrote_after_the_sweep_is_listed_once_more(
    catalog: Catalog, collection: Collection, end: str
) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    catalog.begin_delete(collection.id, job.document_id)
    sweep(catalog)
    assert catalog.list_garbage() == []

    match end:
        case "finish_cancel":
            catalog.finish_cancel(job.id, now=NOW)
        case "activate":
            catalog.activate(job.id, warnings=(), now=NOW)
        case "fail_job":
            catalog.fail_job(job.id, problem=BROKEN, now=NOW)
        case _:
            catalog.release_job(job.id, problem=BROKEN, now=NOW)

    assert garbage_keys(catalog) == [key(job)]
    catalog.finish_cancel(job.id, now=NOW)
    sweep(catalog)
    assert catalog.list_garbage() == []


def test_what_a_dying_worker_may_have_written_is_listed_when_its_lease_ends(
    catalog: Catalog, collection: Collection
) -> None:
    job = get_job(register(catalog, collection))
    start(catalog, job)
    catalog.begin_delete(collection.id, job.document_id)
    sweep(catalog)

    catalog.list_stalled_jobs(now=after(LEASE_S - 1))
    assert catalog.list_garbage() == []
    catalog.list_stalled_jobs(now=after(LEASE_S))

    assert garbage_keys(catalog) == [key(job)]
    sweep(catalog)
    assert catalog.list_garbage() == []


def test_deleting_during_a_reindex_leaves_both_generations_to_be_removed(
    catalog: Catalog, collection: Collection
) -> None:
    first = get_job(register(catalog, collection))
    ingest(catalog, first)
    second = get_job(register(catalog, collection, force=True))
    start(catalog, second)

    catalog.begin_delete(collection.id, first.document_id)

    assert sorted(garbage_keys(catalog)) == sorted([key(first), key(second)])


def test_garbage_is_listed_up_to_the_limit(catalog: Catalog, collection: Collection) -> None:
    for number in range(3):
        document = register(catalog, collection, f"{number}", name=f"{number}").document
        catalog.begin_delete(collection.id, document.id)

    assert len(catalog.list_garbage(limit=2)) == 2
    assert len(catalog.list_orphaned_files(limit=2)) == 2


# -- a worker that comes back from the dead (each process has a catalog object of its own)


def test_a_worker_that_lost_its_job_to_another_can_no_longer_change_it(catalog: Catalog, url: str) -> None:
    collection = catalog.create_collection("manuals", now=NOW)
    job = get_job(register(catalog, collection))
    with closing(SqlCatalog(url)) as other:
        start(catalog, job)
        assert start(other, job, worker="w2", now=after(LEASE_S)) is not None

        assert not progress(catalog, job)
        with pytest.raises(JobCancelledError):
            catalog.save_chunks(job.id, build_chunks(job))
        assert catalog.activate(job.id, warnings=(), now=after(70)) is None
        other.cancel_job(job.id, now=after(70))
        catalog.finish_cancel(job.id, now=after(70))
        assert catalog.get_job(job.id).state is JobState.RUNNING
        assert catalog.list_garbage() == []
        other.finish_cancel(job.id, now=after(80))
        assert catalog.get_job(job.id).state is JobState.CANCELLED


@pytest.mark.parametrize("end", ["finish_cancel", "fail_job", "release_job"])
def test_a_worker_that_slept_through_a_retry_only_leaves_garbage(
    catalog: Catalog, url: str, end: str
) -> None:
    collection = catalog.create_collection("manuals", now=NOW)
    job = get_job(register(catalog, collection))
    with closing(SqlCatalog(url)) as other:
        start(catalog, job)
        other.cancel_job(job.id, now=after(LEASE_S))
        sweep(other)
        retried = other.retry_job(job.id, now=after(70))
        assert start(other, retried, worker="w2", now=after(71)) is not None

        match end:
            case "finish_cancel":
                catalog.finish_cancel(job.id, now=after(72))
            case "fail_job":
                catalog.fail_job(job.id, problem=BROKEN, now=after(72))
            case _:
                catalog.release_job(job.id, problem=BROKEN, now=after(72))

        assert garbage_keys(catalog) == [key(job)]
        assert catalog.get_job(job.id).state is JobState.RUNNING
        other.save_chunks(job.id, build_chunks(retried))
        with pytest.raises(JobCancelledError):
            other.save_chunks(job.id, build_chunks(job))
        assert other.activate(job.id, warnings=(), now=after(80)) is not None
        assert visible_texts(catalog, retried) == ["one", "two"]


# -- many at once


def test_readers_never_see_half_of_a_replacement(catalog: Catalog, collection: Collection) -> None:
    jobs = [get_job(register(catalog, collection, f"v{number}")) for number in range(6)]
    ingest(catalog, jobs[0], texts=["v0", "v0"])
    stop = threading.Event()

    def read() -> list[list[str]]:
        seen = []
        while not stop.is_set():
            seen.append(visible_texts(catalog, *jobs))
        return seen

    with ThreadPoolExecutor(2) as pool:
        reader = pool.submit(read)
        for number, job in enumerate(jobs[1:], start=1):
            ingest(catalog, job, texts=[f"v{number}"] * 2)
        stop.set()
        seen = reader.result()

    assert all(len(texts) == 2 and texts[0] == texts[1] for texts in seen)
    assert visible_texts(catalog, *jobs) == ["v5", "v5"]


def read_in_fork(catalog: Catalog, collection: Collection) -> None:
    assert catalog.get_collection("manuals") == collection
    catalog.create_collection("from the child", now=NOW)


def test_an_open_catalog_may_be_used_on_both_sides_of_a_fork(
    catalog: Catalog, collection: Collection
) -> None:
    child = multiprocessing.get_context("fork").Process(target=read_in_fork, args=(catalog, collection))
    child.start()
    child.join()

    assert child.exitcode == 0
    assert [item.name for item in catalog.list_collections()] == ["from the child", "manuals"]


def test_ping_names_the_database_and_its_schema(catalog: Catalog) -> None:
    assert "schema 0005" in catalog.ping()


# -- what a search is limited to


def test_a_scope_selects_visible_documents_by_name_tag_and_time(
    catalog: Catalog, collection: Collection
) -> None:
    press = register(catalog, collection, "v1", name="press.pdf", now=NOW)
    lathe = register(catalog, collection, "v2", name="lathe.pdf", now=after(60))
    waiting = register(catalog, collection, "v3", name="mill.pdf", now=NOW)
    for registration in (press, lathe):
        ingest(catalog, get_job(registration))
    catalog.set_tags(collection.id, press.document.id, ["press", "line 2", "press"])
    tagged = catalog.set_tags(collection.id, lathe.document.id, ["车床", "line 2"])
    keys = {name: item.document.key for name, item in (("press", press), ("lathe", lathe))}

    def find(**conditions: Any) -> list[str]:
        return catalog.list_visible_keys(collection.id, Scope(**conditions))

    assert tagged.tags == ("车床", "line 2")
    assert find() == sorted(keys.values())
    assert find(documents=("press.pdf",)) == [keys["press"]]
    assert find(documents=(lathe.document.id, "absent")) == [keys["lathe"]]
    assert find(documents=(waiting.document.id,)) == []
    assert find(tags=("line 2",)) == sorted(keys.values())
    assert find(tags=("line 2", "车床")) == [keys["lathe"]]
    assert find(uploaded_from=after(60)) == [keys["lathe"]]
    assert find(uploaded_before=after(60)) == [keys["press"]]
    assert catalog.list_visible_keys("absent", Scope()) == []


def test_tags_stay_and_are_replaced_as_a_whole(catalog: Catalog, collection: Collection) -> None:
    registration = register(catalog, collection)
    assert registration.document.tags == ()
    catalog.set_tags(collection.id, registration.document.id, ["a"])
    ingest(catalog, get_job(registration))

    catalog.set_tags(collection.id, registration.document.id, ["b", "c"])

    assert catalog.get_document(collection.id, registration.document.id).tags == ("b", "c")
    assert register(catalog, collection).document.tags == ("b", "c")
    with pytest.raises(DocumentNotFoundError):
        catalog.set_tags(collection.id, "absent", [])


def test_a_calibration_is_kept_and_forgotten(catalog: Catalog, collection: Collection) -> None:
    calibration = Calibration(0.62, 0.05, 0.04, 0.1, 40, 25, IndexParts("st-1", "", "1-320-48"), NOW)

    catalog.save_calibration(collection.id, calibration)
    kept = catalog.get_collection("manuals").calibration
    catalog.save_calibration(collection.id, None)

    assert kept == calibration
    assert catalog.list_collections()[0].calibration is None
    with pytest.raises(CollectionNotFoundError):
        catalog.save_calibration("absent", calibration)


# -- receipts
def test_a_receipt_comes_back_as_it_was_saved(catalog: Catalog, collection: Collection) -> None:
    receipt = make_receipt(collection)

    catalog.save_receipt(receipt)
    catalog.save_receipt(replace(receipt, text="other"))

    found = catalog.get_receipt("ans_1")
    assert replace(found, citations=()) == replace(receipt, citations=())
    assert found.citations[0].quote.startswith("补充氮气")


def test_receipts_are_deleted_one_by_one_by_age_and_with_their_collection(
    catalog: Catalog, collection: Collection
) -> None:
    for number, seconds in enumerate((0, 10, 20, 30)):
        catalog.save_receipt(make_receipt(collection, answer_id=f"ans_{number}", now=after(seconds)))

    assert catalog.delete_receipts(before=after(10)) == 1
    catalog.delete_receipt("ans_1")
    for missing in ("ans_0", "ans_1"):
        with pytest.raises(AnswerNotFoundError):
            catalog.get_receipt(missing)
    with pytest.raises(AnswerNotFoundError):
        catalog.delete_receipt("ans_1")
    assert catalog.get_receipt("ans_2").created_at == after(20)
    catalog.delete_collection(collection.id)
    with pytest.raises(AnswerNotFoundError):
        catalog.get_receipt("ans_2")
