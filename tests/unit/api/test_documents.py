from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from kb.schemas import DocumentDetailOut, PageOut, UploadOut
from kb.types import (
    Block,
    BlockKind,
    Box,
    DocumentState,
    Line,
    Page,
    PageQuality,
    ParsedDocument,
    Problem,
    TextSource,
)
from tests.unit.api.service import Service

URL = "/v1/collections/default/documents"
BOUNDARY = "limit"


def upload(client: TestClient, *files: tuple[str, bytes], field: str = "files") -> Any:
    return client.post(URL, files=[(field, file) for file in files])


def post_raw(client: TestClient, body: bytes, content_type: str | None = None) -> Any:
    return client.post(
        URL,
        content=body,
        headers={"Content-Type": content_type or f"multipart/form-data; boundary={BOUNDARY}"},
    )


def build_part(disposition: bytes, data: bytes) -> bytes:
    head = f"--{BOUNDARY}\r\n".encode() + b"Content-Disposition: form-data; " + disposition
    return head + b"\r\nContent-Type: application/pdf\r\n\r\n" + data + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()


@pytest.mark.parametrize("field", ["files", "file", "files[]"])
def test_uploads_are_accepted_and_queued(client: TestClient, service: Service, field: str) -> None:
    response = upload(client, ("手册.pdf", b"one"), ("b.txt", b"two"), field=field)

    assert response.status_code == 202
    first, second = UploadOut.model_validate(response.json()).results
    assert first.document is not None
    assert second.document is not None
    assert (first.name, first.document.name, first.document.state) == ("手册.pdf", "手册.pdf", "queued")
    assert first.document.collection == "default"
    assert service.files.kept[second.document.sha256] == b"two"
    assert service.queue.submitted == [first.document.job_id, second.document.job_id]


def test_a_large_upload_arrives_unchanged(client: TestClient, service: Service) -> None:
    data = bytes(range(256)) * 10_000

    response = upload(client, ("big.bin", data))

    assert response.status_code == 202
    assert list(service.files.kept.values()) == [data]


def test_a_password_is_kept_for_the_jobs_of_its_form(client: TestClient, service: Service) -> None:
    response = client.post(
        URL, data={"password": "öffne dich"}, files=[("files", ("a.pdf", b"1")), ("files", ("b.pdf", b"2"))]
    )

    jobs = [result["document"]["job_id"] for result in response.json()["results"]]
    assert response.status_code == 202
    assert [service.passwords.find(job) for job in jobs] == ["öffne dich"] * 2
    assert "öffne" not in response.text


def test_an_empty_password_is_none(client: TestClient, service: Service) -> None:
    assert client.post(URL, data={"password": ""}, files={"files": ("a.pdf", b"1")}).status_code == 202

    assert service.passwords.list_jobs() == []


@pytest.mark.parametrize(
    ("password", "words"),
    [(b"canary" * 200, "more than 1024 bytes"), (b"canary \xff", "not UTF-8")],
)
def test_an_unusable_password_is_refused_and_not_quoted(
    client: TestClient, service: Service, password: bytes, words: str
) -> None:
    body = build_part(b'name="password"', password) + build_part(b'name="files"; filename="a.pdf"', b"1")

    response = post_raw(client, body + END)

    assert response.status_code == 400
    assert words in response.json()["error"]["message"]
    assert "canary" not in response.text
    assert service.files.kept == {}


def test_a_password_after_a_file_is_refused(client: TestClient, service: Service) -> None:
    body = build_part(b'name="files"; filename="a.pdf"', b"1") + build_part(b'name="password"', b"late")

    response = post_raw(client, body + END)

    assert response.status_code == 400
    assert "before the files" in response.json()["error"]["next_step"]
    assert service.passwords.list_jobs() == []


@pytest.mark.parametrize(
    "disposition",
    [
        'name="files"; filename="故障代码.pdf"'.encode(),
        'name="files"; filename="故障代码.pdf"'.encode("gbk"),
        b'name="files"; filename="' + "故障代码.pdf".encode().decode("latin-1").encode() + b'"',
        b'name="files"; filename="x.pdf"; filename*=UTF-8\'\'%E6%95%85%E9%9A%9C%E4%BB%A3%E7%A0%81.pdf',
        b'name="files"; filename="%E6%95%85%E9%9A%9C%E4%BB%A3%E7%A0%81.pdf"',
        'name="files"; filename="C:\\手册\\故障代码.pdf"'.encode(),
        'name="files"; filename="../../故障代码.pdf"'.encode(),
    ],
)
def test_a_chinese_file_name_survives_every_client(client: TestClient, disposition: bytes) -> None:
    response = post_raw(client, build_part(disposition, b"abc") + END)

    assert response.json()["results"][0]["document"]["name"] == "故障代码.pdf"


def test_the_same_bytes_are_reported_as_a_duplicate_unless_forced(client: TestClient) -> None:
    upload(client, ("a.txt", b"abc"))

    again = upload(client, ("a.txt", b"abc")).json()["results"][0]
    forced = client.post(f"{URL}?force=true", files={"files": ("a.txt", b"abc")})

    assert again["duplicate"]
    assert forced.status_code == 202
    assert forced.json()["results"][0]["document"]["job_id"] != again["document"]["job_id"]


def test_one_bad_file_does_not_sink_the_others(client: TestClient, service: Service) -> None:
    too_large = b"x" * (service.max_upload_bytes + 1)

    response = upload(client, ("empty.txt", b""), ("good.txt", b"abc"), ("big.txt", too_large))

    assert response.status_code == 202
    empty, good, big = response.json()["results"]
    assert empty["error"]["code"] == "empty_file"
    assert good["document"]["name"] == "good.txt"
    assert big["error"]["code"] == "too_large"
    assert "'big.txt'" in big["error"]["message"]
    assert list(service.files.kept.values()) == [b"abc"]


@pytest.mark.parametrize(("size", "status", "code"), [(0, 422, "empty_file"), (3_000_001, 413, "too_large")])
def test_if_no_file_was_accepted_the_status_is_that_of_the_error(
    client: TestClient, size: int, status: int, code: str
) -> None:
    response = upload(client, ("a.txt", b"x" * size))

    assert response.status_code == status
    assert response.json()["error"]["code"] == code


def test_with_the_queue_down_an_upload_is_still_accepted(client: TestClient, service: Service) -> None:
    service.queue.down = True

    assert upload(client, ("a.txt", b"abc")).status_code == 202


def test_with_the_catalog_down_an_upload_is_refused(client: TestClient, service: Service) -> None:
    service.catalog.down = True

    response = upload(client, ("a.txt", b"abc"))

    assert response.status_code == 503
    assert response.json()["error"]["code"] == "catalog_unavailable"
    assert response.headers["retry-after"] == "5"


def test_an_upload_to_an_unknown_collection_is_404(client: TestClient) -> None:
    response = client.post("/v1/collections/nope/documents", files={"files": ("a.txt", b"abc")})

    assert response.status_code == 404
    assert response.json()["error"]["code"] == "collection_not_found"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"{}", "application/json"),
        (b"", "multipart/form-data"),
        (b"x", "multipart/form-data; boundary=" + "b" * 400),
        (b"no boundary at all", None),
        (b"", None),
        (END, None),
        (build_part(b'name="text"', b"abc") + END, None),
        (build_part(b'name="other"; filename="a.txt"', b"abc") + END, None),
        (build_part(b'name="files"; filename="a.txt"', b"abc"), None),
        (build_part(b'name="files"; filename="a.txt"', b"abc")[:-5], None),
    ],
)
def test_a_form_without_a_whole_file_is_refused(
    client: TestClient, service: Service, body: bytes, content_type: str | None
) -> None:
    response = post_raw(client, body, content_type)

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "malformed_upload"
    assert service.catalog.documents == {}


def test_too_many_files_are_refused(client: TestClient) -> None:
    part = build_part(b'name="files"; filename="a.txt"', b"abc")

    assert post_raw(client, part * 1001 + END).status_code == 400


def test_documents_are_listed_in_pages_and_by_state(client: TestClient, service: Service) -> None:
    upload(client, *[(f"{name}.txt", name.encode()) for name in "cab"])
    job_id = next(iter(service.catalog.jobs))
    service.catalog.activate(job_id, warnings=(), now=service.clock())

    first = client.get(URL, params={"limit": 2}).json()
    second = client.get(URL, params={"limit": 2, "after": first["next_after"]}).json()
    ready = client.get(URL, params={"state": "ready"}).json()

    assert [d["name"] for d in first["documents"]] == ["a.txt", "b.txt"]
    assert [d["name"] for d in second["documents"]] == ["c.txt"]
    assert second["next_after"] is None
    assert [d["name"] for d in ready["documents"]] == ["c.txt"]


def test_exactly_one_page_has_no_next_page(client: TestClient) -> None:
    upload(client, ("a.txt", b"a"), ("b.txt", b"b"))

    assert client.get(URL, params={"limit": 2}).json()["next_after"] is None


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "state=nope"])
def test_wrong_parameters_are_422_and_named(client: TestClient, query: str) -> None:
    response = client.get(f"{URL}?{query}")

    assert response.status_code == 422
    assert response.json()["error"]["param"] == query.split("=", maxsplit=1)[0]


def test_a_document_shows_how_well_its_pages_were_read(client: TestClient, service: Service) -> None:
    document = upload(client, ("a.pdf", b"abc")).json()["results"][0]["document"]
    quality = PageQuality(undecodable_share=0.1, word_count=2, ocr_confidence=0.8, warnings=("tilted",))
    page = Page(1, "故障 E-0132", source=TextSource.OCR, quality=quality)
    service.catalog.save_parsed(document["job_id"], ParsedDocument((page,), "x"), now=service.clock())
    problem = Problem("no_text_found", "nothing", "scan again")
    service.catalog.fail_job(document["job_id"], problem=problem, now=service.clock())

    response = client.get(f"{URL}/{document['id']}")

    detail = DocumentDetailOut.model_validate(response.json())
    assert detail.state == DocumentState.FAILED
    assert detail.error is not None
    assert detail.error.next_step == "scan again"
    assert detail.pages[0].model_dump() == {
        "page_number": 1,
        "source": "ocr",
        "char_count": 9,
        "word_count": 2,
        "table_count": 0,
        "undecodable_share": 0.1,
        "ocr_confidence": 0.8,
        "warnings": ["tilted"],
    }


def test_a_page_shows_text_lines_and_tables(client: TestClient, service: Service) -> None:
    document = upload(client, ("a.pdf", b"abc")).json()["results"][0]["document"]
    text = "E-1 pump\nE-2 valve"
    page = Page(
        2,
        text,
        label="ii",
        width=595.0,
        height=842.0,
        blocks=(
            Block(BlockKind.TABLE_HEADER, 0, 0),
            Block(BlockKind.TABLE_ROW, 0, 8, record={"code": "E-1", "part": "pump"}, table_index=4),
            Block(BlockKind.TABLE_ROW, 9, 18, record={"code": "E-2", "part": "valve"}, table_index=4),
        ),
        lines=(Line(0, 8, Box(1, 2, 3, 4)), Line(9, 18)),
    )
    service.catalog.save_parsed(document["job_id"], ParsedDocument((page,), "x"), now=service.clock())

    shown = PageOut.model_validate(client.get(f"{URL}/{document['id']}/pages/2").json())

    assert shown.text == text
    assert [line.text for line in shown.lines] == ["E-1 pump", "E-2 valve"]
    assert shown.lines[0].box is not None
    assert shown.lines[0].box.y1 == 4
    assert shown.lines[1].box is None
    assert [table.model_dump() for table in shown.tables] == [
        {"table_index": 4, "records": [{"code": "E-1", "part": "pump"}, {"code": "E-2", "part": "valve"}]}
    ]


def test_a_page_that_is_not_there_is_404(client: TestClient) -> None:
    document = upload(client, ("a.pdf", b"abc")).json()["results"][0]["document"]

    response = client.get(f"{URL}/{document['id']}/pages/9")

    assert response.status_code == 404
    assert response.json()["error"]["code"] == "page_not_found"
    assert client.get(f"{URL}/{document['id']}/pages/0").status_code == 422


def test_attachments_say_what_they_came_with_and_are_listed_by_it(
    client: TestClient, service: Service
) -> None:
    upload(client, ("mail.eml", b"mail"), ("a.pdf", b"attached"))
    mail = next(item for item in service.catalog.documents.values() if item.name == "mail.eml")
    attached = next(item for item in service.catalog.documents.values() if item.name == "a.pdf")
    service.catalog.documents[attached.id] = replace(attached, parent_id=mail.id)

    listed = client.get(URL, params={"parent_id": mail.id}).json()["documents"]

    assert [(item["id"], item["parent_id"]) for item in listed] == [(attached.id, mail.id)]
    assert client.get(f"{URL}/{mail.id}").json()["parent_id"] is None
    assert client.get(f"{URL}/{attached.id}").json()["parent_id"] == mail.id


def test_a_document_may_be_kept_where_it_is_attached(client: TestClient, service: Service) -> None:
    document = upload(client, ("a.pdf", b"attached")).json()["results"][0]["document"]
    service.catalog.attached.add(document["id"])

    kept = client.delete(f"{URL}/{document['id']}", params={"keep_attached": "true"})

    assert kept.status_code == 204
    assert client.get(f"{URL}/{document['id']}").status_code == 200
    assert client.delete(f"{URL}/{document['id']}").status_code == 204
    assert client.get(f"{URL}/{document['id']}").status_code == 404


def test_a_deleted_document_is_gone(client: TestClient, service: Service) -> None:
    document = upload(client, ("a.pdf", b"abc")).json()["results"][0]["document"]

    response = client.delete(f"{URL}/{document['id']}")

    assert response.status_code == 204
    assert response.content == b""
    assert client.get(f"{URL}/{document['id']}").status_code == 404
    assert client.delete(f"{URL}/{document['id']}").status_code == 404
    assert service.files.kept == {}


def test_a_document_of_another_collection_is_not_shown(client: TestClient) -> None:
    document = upload(client, ("a.pdf", b"abc")).json()["results"][0]["document"]
    client.post("/v1/collections", json={"name": "second"})

    assert client.get(f"/v1/collections/second/documents/{document['id']}").status_code == 404


def test_collections_are_created_shown_and_deleted(client: TestClient) -> None:
    created = client.post("/v1/collections", json={"name": " 液压 "})
    again = client.post("/v1/collections", json={"name": "液压"})
    bad = client.post("/v1/collections", json={"name": "a/b"})

    assert created.status_code == 201
    assert created.json()["name"] == "液压"
    assert again.status_code == 409
    assert again.json()["error"]["code"] == "collection_exists"
    assert bad.status_code == 400
    assert client.get("/v1/collections/液压").json() == created.json()
    names = [c["name"] for c in client.get("/v1/collections").json()["collections"]]
    assert names == ["default", "液压"]
    assert client.delete("/v1/collections/液压").status_code == 204
    assert client.get("/v1/collections/液压").status_code == 404


def test_jobs_are_listed_cancelled_and_retried(client: TestClient, service: Service) -> None:
    job_id = upload(client, ("a.pdf", b"abc")).json()["results"][0]["document"]["job_id"]
    client.post("/v1/collections", json={"name": "second"})

    listed = client.get("/v1/jobs", params={"collection": "default", "state": "queued"}).json()
    elsewhere = client.get("/v1/jobs", params={"collection": "second"}).json()
    cancelled = client.post(f"/v1/jobs/{job_id}/cancel")
    again = client.post(f"/v1/jobs/{job_id}/cancel")
    retried = client.post(f"/v1/jobs/{job_id}/retry")
    retry_again = client.post(f"/v1/jobs/{job_id}/retry")

    assert [job["id"] for job in listed["jobs"]] == [job_id]
    assert listed["jobs"][0]["document_name"] == "a.pdf"
    assert elsewhere == {"jobs": [], "next_after": None}
    assert cancelled.json()["state"] == "cancelled"
    assert again.json()["state"] == "cancelled"
    assert retry_again.status_code == 409
    assert retried.json()["state"] == "queued"
    assert service.queue.submitted == [job_id, job_id]


def test_a_job_says_why_it_does_not_start(client: TestClient, service: Service) -> None:
    job_id = upload(client, ("a.pdf", b"abc")).json()["results"][0]["document"]["job_id"]
    service.queue.workers = 0
    assert client.get(f"/v1/jobs/{job_id}").json()["stalled_reason"] is None

    service.clock.advance(11)

    assert client.get(f"/v1/jobs/{job_id}").json()["stalled_reason"] == "no_live_worker"


def test_an_unknown_job_is_404(client: TestClient) -> None:
    response = client.get("/v1/jobs/nope")

    assert response.status_code == 404
    assert re.search("job_not_found", response.text)


def test_a_job_whose_document_was_just_deleted_is_left_out(client: TestClient, service: Service) -> None:
    job_id = upload(client, ("a.pdf", b"abc")).json()["results"][0]["document"]["job_id"]
    service.catalog.documents.clear()

    assert client.get("/v1/jobs").json()["jobs"] == []
    assert client.get(f"/v1/jobs/{job_id}").status_code == 404
