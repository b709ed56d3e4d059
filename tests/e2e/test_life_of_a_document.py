"""From upload to deletion, over HTTP, with real processes."""

from __future__ import annotations

import json

import psutil

from tests.e2e.conftest import SAMPLE_NAMES
from tests.service import Service, wait_until

CHECKLIST_V1 = "点检规程\n\n二号线主轴轴承的润滑周期为 500 小时，使用 3 号锂基脂。\n"
CHECKLIST_V2 = "点检规程\n\n二号线主轴轴承的润滑周期为 300 小时，使用 3 号锂基脂。\n"


def create_collection(service: Service, name: str) -> str:
    """Create an empty collection and return its name."""
    response = service.http.post("/v1/collections", json={"name": name})
    assert response.status_code == 201, response.text
    return name


def search_texts(service: Service, collection: str, query: str) -> list[str]:
    """Return the texts of the passages found."""
    response = service.http.post("/v1/search", json={"query": query, "collection": collection})
    assert response.status_code == 200, response.text
    return [passage["text"] for passage in response.json()["passages"]]


def test_every_sample_document_becomes_searchable(service: Service) -> None:
    response = service.http.get("/v1/collections/default/documents")

    documents = {document["name"]: document for document in response.json()["documents"]}

    assert set(documents) == set(SAMPLE_NAMES)
    assert {name: d["state"] for name, d in documents.items()} == {
        name: "ready_with_warnings" if name.startswith("scanned") else "ready" for name in SAMPLE_NAMES
    }
    assert all(document["chunk_count"] > 0 for document in documents.values())


def test_the_ledger_says_that_the_scan_was_read_by_ocr(service: Service) -> None:
    documents = service.http.get("/v1/collections/default/documents").json()["documents"]
    scan = next(document for document in documents if document["name"] == "scanned_notice_zh.pdf")

    detail = service.http.get(f"/v1/collections/default/documents/{scan['id']}").json()

    assert [page["source"] for page in detail["pages"]] == ["ocr"]
    assert detail["warnings"]


def test_the_fault_table_keeps_its_rows_over_the_page_break(service: Service) -> None:
    documents = service.http.get("/v1/collections/default/documents").json()["documents"]
    manual = next(document for document in documents if document["name"] == "press_manual_zh.pdf")

    records = [
        record
        for number in range(1, manual["page_count"] + 1)
        for table in service.http.get(
            f"/v1/collections/default/documents/{manual['id']}/pages/{number}"
        ).json()["tables"]
        for record in table["records"]
        if "故障代码" in record
    ]

    codes = [record["故障代码"] for record in records]
    assert len(codes) == len(set(codes)) >= 20
    assert all(code.startswith("E-") for code in codes)
    assert all(record["处理措施"] for record in records)


def test_the_same_bytes_twice_are_one_document(service: Service) -> None:
    collection = create_collection(service, "duplicates")
    first = service.upload("规程.txt", CHECKLIST_V1.encode(), collection=collection)
    service.wait_for_document(first["document"]["id"], collection=collection)

    second = service.upload("规程-副本.txt", CHECKLIST_V1.encode(), collection=collection)

    assert second["duplicate"]
    assert second["document"]["id"] == first["document"]["id"]
    assert len(service.http.get(f"/v1/collections/{collection}/documents").json()["documents"]) == 1


def test_a_new_version_replaces_the_old_one_and_nothing_of_it_is_found(service: Service) -> None:
    collection = create_collection(service, "versions")
    old = service.upload("点检规程.txt", CHECKLIST_V1.encode(), collection=collection)
    service.wait_for_document(old["document"]["id"], collection=collection)

    new = service.upload("点检规程.txt", CHECKLIST_V2.encode(), collection=collection)
    service.wait_for_document(new["document"]["id"], collection=collection)

    for _ in range(20):
        texts = " ".join(search_texts(service, collection, "润滑周期"))
        assert "300 小时" in texts
        assert "500 小时" not in texts
    names = [d["id"] for d in service.http.get(f"/v1/collections/{collection}/documents").json()["documents"]]
    assert names == [new["document"]["id"]]


def test_a_deleted_document_leaves_no_trace(service: Service) -> None:
    collection = create_collection(service, "deletions")
    content = CHECKLIST_V1 + "本页只在此文档集中。\n"
    result = service.upload("规程.txt", content.encode(), collection=collection)
    document_id = result["document"]["id"]
    service.wait_for_document(document_id, collection=collection)

    response = service.http.delete(f"/v1/collections/{collection}/documents/{document_id}")

    assert response.status_code == 204
    assert search_texts(service, collection, "润滑周期") == []
    assert service.http.get(f"/v1/collections/{collection}/documents/{document_id}").status_code == 404
    sha256 = result["document"]["sha256"]
    assert not list((service.data_dir / "files").rglob(f"*{sha256}*"))


def test_a_file_that_cannot_be_read_fails_with_a_code_and_a_next_step(service: Service) -> None:
    collection = create_collection(service, "broken")
    result = service.upload("kaputt.pdf", b"%PDF-1.7\nnot really a pdf", collection=collection)

    detail = service.wait_for_document(result["document"]["id"], collection=collection)

    assert detail["state"] == "failed"
    assert detail["error"]["code"] == "damaged_file"
    assert detail["error"]["next_step"]


def test_a_killed_worker_loses_no_job(service: Service) -> None:
    collection = create_collection(service, "crash")
    body = "\n\n".join(f"第{n}节\n\n设备{n}的润滑周期为 {n} 小时，检查油位和油温。" for n in range(1, 400))
    result = service.upload("长文档.txt", body.encode(), collection=collection)
    document_id = result["document"]["id"]

    def is_running() -> bool:
        job = service.http.get(f"/v1/jobs/{result['document']['job_id']}").json()
        return bool(job["state"] == "running")

    wait_until(is_running, what="the job running")
    pids = json.loads((service.data_dir / "run" / "state.json").read_text())
    worker = next(p for p in pids["processes"] if p["name"] == "worker")
    for process in [*psutil.Process(worker["pid"]).children(recursive=True), psutil.Process(worker["pid"])]:
        process.kill()

    detail = service.wait_for_document(document_id, collection=collection)

    assert detail["state"] == "ready"
    assert detail["attempt"] >= 2
    texts = " ".join(search_texts(service, collection, "设备387的润滑周期"))
    assert "387 小时" in texts
