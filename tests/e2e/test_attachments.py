"""Mails and PDFs with files in them, over HTTP, with real processes."""

from __future__ import annotations

import io
import json
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import psutil
from pypdf import PdfWriter

from tests.service import SAMPLES, Service, wait_until

OPERATORS = "点检规程\n\n二号线主轴轴承的润滑周期为 500 小时，使用 3 号锂基脂。\n"
COOLANT = "Coolant\n\nThe coolant of mill M7 is replaced every 1200 operating hours.\n"
TORQUE = "Torque\n\nTighten the clamp bolts of mill M7 with 85 Nm in two steps.\n"
READY = ("ready", "ready_with_warnings")


def build_mail(subject: str, *, text: str = "Please see what is attached.") -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = subject
    message["From"] = "Wang <wang@plant.example>"
    message.set_content(text)
    return message


def attach(message: EmailMessage, name: str, content: str) -> None:
    message.add_attachment(content.encode(), "text", "plain", filename=name)


def build_nested() -> bytes:
    """A mail with a text, a mail with a text, a calendar entry and a file that nothing reads."""
    inner = build_mail("Inner note", text="The inner mail.")
    attach(inner, "torque.txt", TORQUE)
    message = build_mail("Maintenance of line 2")
    attach(message, "规程.txt", OPERATORS)
    message.add_attachment(inner)
    message.add_attachment("BEGIN:VCALENDAR", subtype="calendar", filename="invite.ics")
    message.add_attachment(bytes(range(256)) * 9, "application", "octet-stream", filename="firmware.bin")
    return message.as_bytes()


def create_collection(service: Service, name: str) -> str:
    response = service.http.post("/v1/collections", json={"name": name})
    assert response.status_code == 201, response.text
    return name


def list_documents(service: Service, collection: str) -> dict[str, dict[str, Any]]:
    response = service.http.get(f"/v1/collections/{collection}/documents", params={"limit": 500})
    return {document["name"]: document for document in response.json()["documents"]}


def settle(service: Service, collection: str, count: int) -> dict[str, dict[str, Any]]:
    """Return the documents by name once there are `count` and none will change by itself."""

    def is_settled() -> bool:
        found = list_documents(service, collection).values()
        return len(found) == count and all(item["state"] in (*READY, "failed") for item in found)

    wait_until(is_settled, limit_s=240, what=f"{count} documents at an end")
    return list_documents(service, collection)


def find_texts(service: Service, collection: str, query: str) -> str:
    response = service.http.post("/v1/search", json={"query": query, "collection": collection})
    assert response.status_code == 200, response.text
    return " ".join(passage["text"] for passage in response.json()["passages"])


def test_what_is_attached_can_be_searched_and_goes_with_its_mail(service: Service) -> None:
    collection = create_collection(service, "attached")
    mail = service.upload("mail.eml", build_nested(), collection=collection)["document"]

    documents = settle(service, collection, 5)

    inner = documents["mail.eml › Inner note.eml"]
    assert {name: item["parent_id"] for name, item in documents.items()} == {
        "mail.eml": None,
        "mail.eml › Inner note.eml": mail["id"],
        "mail.eml › Inner note.eml › torque.txt": inner["id"],
        "mail.eml › firmware.bin": mail["id"],
        "mail.eml › 规程.txt": mail["id"],
    }
    assert [item["name"] for item in documents.values() if item["state"] == "failed"] == [
        "mail.eml › firmware.bin"
    ]
    assert documents["mail.eml › firmware.bin"]["error"]["code"] == "unsupported_format"
    assert [item["code"] for item in documents["mail.eml"]["warnings"]] == ["attachments_skipped"]
    assert "500 小时" in find_texts(service, collection, "主轴轴承的润滑周期")
    assert "85 Nm" in find_texts(service, collection, "torque of the clamp bolts of M7")
    shown = service.run_kb("documents", "show", mail["id"], "-c", collection).stdout
    assert "mail.eml › 规程.txt" in shown

    hashes = [item["sha256"] for item in documents.values()]
    assert service.http.delete(f"/v1/collections/{collection}/documents/{mail['id']}").status_code == 204

    assert list_documents(service, collection) == {}
    assert find_texts(service, collection, "主轴轴承的润滑周期") == ""
    assert [path for sha256 in hashes for path in (service.data_dir / "files").rglob(f"*{sha256}*")] == []


def test_two_mails_share_an_attachment_and_a_new_version_replaces_its_own(service: Service) -> None:
    collection = create_collection(service, "shared")
    first, second = build_mail("First"), build_mail("Second")
    attach(first, "coolant.txt", COOLANT)
    attach(first, "old.txt", TORQUE)
    attach(second, "fwd.txt", COOLANT)
    service.upload("1.eml", first.as_bytes(), collection=collection)
    settle(service, collection, 3)
    service.upload("2.eml", second.as_bytes(), collection=collection)
    before = settle(service, collection, 4)
    changed = build_mail("First, corrected")
    attach(changed, "new.txt", OPERATORS)
    attach(changed, "coolant.txt", COOLANT)

    service.upload("1.eml", changed.as_bytes(), collection=collection)
    wait_until(
        lambda: "1.eml › new.txt" in list_documents(service, collection), limit_s=120, what="the new version"
    )

    after = settle(service, collection, 4)
    assert set(after) == {"1.eml", "1.eml › coolant.txt", "1.eml › new.txt", "2.eml"}
    assert after["1.eml › coolant.txt"]["job_id"] == before["1.eml › coolant.txt"]["job_id"]
    assert "85 Nm" not in find_texts(service, collection, "torque of the clamp bolts")
    document_id = after["1.eml"]["id"]
    service.http.delete(f"/v1/collections/{collection}/documents/{document_id}")
    assert set(list_documents(service, collection)) == {"2.eml", "2.eml › fwd.txt"}
    assert "1200 operating hours" in find_texts(service, collection, "when is the coolant replaced")


def test_a_file_embedded_in_a_pdf_is_a_document(service: Service) -> None:
    collection = create_collection(service, "portfolio")
    writer = PdfWriter(clone_from=SAMPLES / "press_manual_zh.pdf")
    writer.add_attachment("coolant.txt", COOLANT.encode())
    buffer = io.BytesIO()
    writer.write(buffer)

    service.upload("manual.pdf", buffer.getvalue(), collection=collection)

    documents = settle(service, collection, 2)
    assert {name: item["state"] for name, item in documents.items()} == {
        "manual.pdf": "ready",
        "manual.pdf › coolant.txt": "ready",
    }


def test_a_killed_worker_registers_nothing_twice(service: Service) -> None:
    collection = create_collection(service, "killed")
    body = "\n\n".join(f"Section {n}: the oil of unit {n} lasts {n} hours." for n in range(1, 400))
    message = build_mail("Long", text=body)
    for number in range(3):
        attach(message, f"{number}.txt", f"{TORQUE} Edition {number}.")
    mail = service.upload("long.eml", message.as_bytes(), collection=collection)["document"]

    def is_embedding() -> bool:
        return bool(service.http.get(f"/v1/jobs/{mail['job_id']}").json()["document_state"] == "embedding")

    wait_until(is_embedding, what="the mail being embedded")
    state = json.loads((service.data_dir / "run" / "state.json").read_text())
    worker = psutil.Process(next(p for p in state["processes"] if p["name"] == "worker")["pid"])
    for process in [*worker.children(recursive=True), worker]:
        process.kill()

    documents = settle(service, collection, 4)

    assert documents["long.eml"]["attempt"] == 2
    assert sorted(documents) == ["long.eml", *(f"long.eml › {number}.txt" for number in range(3))]
    jobs = service.http.get("/v1/jobs", params={"collection": collection, "limit": 100}).json()["jobs"]
    assert len(jobs) == 4


def test_a_folder_that_is_ingested_again_touches_no_attachment(service: Service, tmp_path: Path) -> None:
    collection = create_collection(service, "folder")
    (tmp_path / "mail.eml").write_bytes(build_nested())
    (tmp_path / "loose.txt").write_text(TORQUE, "utf-8")
    first = service.run_kb("ingest", str(tmp_path), "-c", collection)
    before = settle(service, collection, 5)

    second = service.run_kb("ingest", str(tmp_path), "-c", collection, "--json")

    # what came attached and can't be read counts as a failure, too
    assert first.returncode == 1, first.stdout
    assert "firmware.bin" in first.stdout
    assert "unsupported_format" in first.stdout
    rows = json.loads(second.stdout)["documents"]
    assert {row["name"]: row["state"] for row in rows} == {"loose.txt": "unchanged", "mail.eml": "unchanged"}
    assert settle(service, collection, 5) == before
    assert before["loose.txt"]["parent_id"] is None
    mail_id = before["mail.eml"]["id"]
    service.http.delete(f"/v1/collections/{collection}/documents/{mail_id}")
    assert set(list_documents(service, collection)) == {"loose.txt"}
