"""Faults that users of other services have reported, tried on this one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.shared_material import EVAL_DIR, load_reports
from tests.service import Service, start_service, wait_until
from tests.stores import count_index_entries, deliver_again

REPORTS = load_reports()

pytestmark = pytest.mark.skipif(not REPORTS, reason=f"no bug reports in {EVAL_DIR}")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield an empty service with two worker processes."""
    data_dir = tmp_path_factory.mktemp("bug_reports") / "data"
    with start_service(data_dir, KB_WORKER_CONCURRENCY="2") as running:
        yield running


def create_collection(service: Service, name: str) -> str:
    """Create an empty collection and return its name."""
    response = service.http.post("/v1/collections", json={"name": name})
    assert response.status_code == 201, response.text
    return name


def find_input(report: str, name: str | None = None) -> Path:
    """Return the file of a report; `name` picks one where it lists several."""
    return EVAL_DIR / "bugs" / (name or REPORTS[report]["input"])


def ingest(service: Service, collection: str, path: Path, *, name: str | None = None) -> dict[str, Any]:
    """Upload a file and return its document at the end."""
    result = service.upload(name or path.name, path.read_bytes(), collection=collection)
    return service.wait_for_document(result["document"]["id"], collection=collection)


def read_text(service: Service, document: dict[str, Any]) -> str:
    """Return the stored text of all pages."""
    address = f"/v1/collections/{document['collection']}/documents/{document['id']}"
    numbers = [page["page_number"] for page in document["pages"]]
    return "\n".join(service.http.get(f"{address}/pages/{number}").json()["text"] for number in numbers)


def search(service: Service, collection: str, query: str) -> list[dict[str, Any]]:
    """Return the passages found."""
    response = service.http.post("/v1/search", json={"query": query, "collection": collection})
    assert response.status_code == 200, response.text
    passages: list[dict[str, Any]] = response.json()["passages"]
    return passages


def ask(service: Service, collection: str, question: str) -> dict[str, Any]:
    """Return the answer."""
    response = service.http.post("/v1/ask", json={"question": question, "collection": collection})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def squeeze(text: str) -> str:
    """Return the text without white space."""
    return "".join(text.split())


def test_ob1_chinese_in_a_predefined_encoding_without_a_map_is_read(service: Service) -> None:
    document = ingest(service, create_collection(service, "ob1"), find_input("OB1"))

    text = squeeze(read_text(service, document))

    assert document["state"].startswith("ready")
    assert all(line in text for line in REPORTS["OB1"]["contains"])
    assert "\ufffd" not in text


def test_ob2_a_nul_in_the_metadata_keeps_no_document_out(service: Service) -> None:
    collection = create_collection(service, "ob2")

    document = ingest(service, collection, find_input("OB2"))

    (words,) = REPORTS["OB2"]["contains"]
    assert document["state"].startswith("ready")
    assert "\0" not in str(document)
    assert words in search(service, collection, words)[0]["text"]


def test_ob3_a_part_number_among_many_like_it_is_found_or_refused(service: Service) -> None:
    collection = create_collection(service, "ob3")
    ingest(service, collection, find_input("OB3"))

    for query, place in REPORTS["OB3"]["queries"]:
        answer = ask(service, collection, query)
        if place is None:
            assert answer["refused"], answer["answer"]
            assert answer["citations"] == []
            continue
        number = query.split()[0]
        first = search(service, collection, query)[0]
        assert number in first["text"]
        assert place in first["text"]
        assert not answer["refused"]
        assert place in answer["answer"]
        assert any(number in citation["quote"] for citation in answer["citations"])


def test_ob4_a_scan_is_read_or_said_to_be_without_text(service: Service) -> None:
    path = EVAL_DIR / "bugs" / REPORTS["OB4"]["input"]

    document = ingest(service, create_collection(service, "ob4"), path.resolve())

    if document["state"] == "failed":
        assert document["error"]["code"] == "no_text_found"
    else:
        assert document["state"] == "ready_with_warnings"
        assert document["chunk_count"] > 0
        assert "ocr_used" in [warning["code"] for warning in document["warnings"]]


def test_ob5_a_replaced_document_is_never_found_again(service: Service) -> None:
    collection = create_collection(service, "ob5")
    old, new = REPORTS["OB5"]["input"].split(", ")
    ingest(service, collection, find_input("OB5", old), name="点检规程.txt")

    ingest(service, collection, find_input("OB5", new), name="点检规程.txt")

    for _ in range(20):
        texts = " ".join(passage["text"] for passage in search(service, collection, "润滑周期"))
        assert "300 小时" in texts
        assert "500 小时" not in texts
    answer = ask(service, collection, "润滑周期是多少？")
    assert not answer["refused"]
    assert "300" in answer["answer"]
    assert "500" not in answer["answer"]


def test_ob6_a_name_without_ascii_letters_stays_whole(service: Service) -> None:
    collection = create_collection(service, "ob6")
    name = REPORTS["OB6"]["input"]

    ingest(service, collection, find_input("OB6"))

    listed = service.http.get(f"/v1/collections/{collection}/documents").json()["documents"]
    answer = ask(service, collection, "E07 怎么处理？")
    assert [document["name"] for document in listed] == [name]
    assert not answer["refused"]
    assert "检查接线端子X3" in squeeze(answer["answer"])
    assert {citation["document_name"] for citation in answer["citations"]} == {name}


def test_ob7_a_job_delivered_several_times_at_once_is_done_once(service: Service) -> None:
    body = "\n\n".join(
        f"第 {n} 节\n\n设备 {n} 的润滑周期为 {n} 小时，每次停机后检查油位和油温。" for n in range(1, 500)
    )
    once, often = create_collection(service, "ob7-once"), create_collection(service, "ob7-often")
    result = service.upload("手册.txt", body.encode(), collection=once)
    expected = service.wait_for_document(result["document"]["id"], collection=once)
    result = service.upload("手册.txt", body.encode(), collection=often)
    job_id = result["document"]["job_id"]

    def is_running() -> bool:
        return bool(service.http.get(f"/v1/jobs/{job_id}").json()["state"] == "running")

    wait_until(is_running, what="the job running")
    deliver_again(service, job_id, times=3)
    document = service.wait_for_document(result["document"]["id"], collection=often)
    deliver_again(service, job_id, times=2)

    job = service.http.get(f"/v1/jobs/{job_id}").json()
    listed = service.http.get(f"/v1/collections/{often}/documents").json()["documents"]
    assert document["state"] == "ready"
    assert document["chunk_count"] == expected["chunk_count"] > 20
    assert len(job["attempts"]) == 1
    assert [item["id"] for item in listed] == [document["id"]]
    assert count_index_entries(service, often) == count_index_entries(service, once)
    assert count_index_entries(service, often) == (document["chunk_count"],) * 2
