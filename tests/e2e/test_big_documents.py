"""Big documents in a real service: they outlive their worker, and small ones don't wait for them."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image, ImageDraw, ImageFont
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from ingest.page_store import PageStore
from tests.service import Service, start_service, wait_until

SMALL_LIMIT_S = 60.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with start_service(tmp_path_factory.mktemp("big") / "data") as running:
        yield running


def draw_manual(*, text_pages: int, scanned_pages: int, name: str) -> bytes:
    """A PDF of scanned pages, then pages of text, each of which says its number."""
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=(595, 842), invariant=1)
    for number in range(1, scanned_pages + 1):
        picture = Image.new("L", (1240, 1754), 255)
        pen, font = ImageDraw.Draw(picture), ImageFont.load_default(size=36)
        for line in range(4):
            pen.text(
                (120, 200 + 70 * line), f"{name} scan {number}: replace filter F{number}-{line}", 0, font
            )
        jpeg = io.BytesIO()
        picture.save(jpeg, "JPEG", quality=60)
        canvas.drawImage(ImageReader(jpeg), 0, 0, 595, 842)
        canvas.showPage()
    for number in range(1, text_pages + 1):
        canvas.setFont("Helvetica", 10)
        for line in range(5):
            words = f"{name} step {number}.{line}: check the pump, the valve and the drive for wear."
            canvas.drawString(72, 760 - line * 16, words)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def get_document(service: Service, document_id: str) -> dict[str, Any]:
    response = service.http.get(f"/v1/collections/default/documents/{document_id}")
    assert response.status_code == 200, response.text
    detail: dict[str, Any] = response.json()
    return detail


def find_workers(service: Service) -> list[psutil.Process]:
    """Return the worker's processes, those that read pages left out."""
    found = []
    for process in psutil.Process(service.process.pid).children(recursive=True):
        try:
            if "workers" in process.cmdline():
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def list_pages_read(service: Service, sha256: str) -> list[int]:
    """Return the pages that were read, in that order, each as often as it was read."""
    files = list((service.data_dir / "parsed" / sha256).glob("*/pages"))
    return [int(line.split(b" ")[0]) for file in files for line in file.read_bytes().splitlines()]


def test_a_killed_worker_reads_no_page_twice(service: Service) -> None:
    content = draw_manual(text_pages=40, scanned_pages=6, name="alpha")
    document = service.upload("alpha.pdf", content)["document"]
    wait_until(
        lambda: 3 <= get_document(service, document["id"])["pages_done"] < 46,
        limit_s=120,
        what="some pages are read",
    )

    for process in find_workers(service):
        os.kill(process.pid, signal.SIGKILL)
    detail = service.wait_for_document(document["id"])

    assert detail["state"] == "ready_with_warnings", detail
    assert (detail["page_count"], detail["attempt"]) == (46, 2)
    job = service.http.get(f"/v1/jobs/{detail['job_id']}").json()
    assert [(a["error"] or {}).get("code") for a in job["attempts"]] == ["worker_lost", None]
    assert list_pages_read(service, detail["sha256"]) == list(range(1, 47))


def test_a_small_document_does_not_wait_for_a_big_one(service: Service) -> None:
    content = draw_manual(text_pages=60, scanned_pages=8, name="beta")
    big = service.upload("beta.pdf", content)["document"]
    wait_until(
        lambda: get_document(service, big["id"])["pages_done"] > 0, limit_s=120, what="the big one is at work"
    )

    small = service.upload("note.txt", b"Pump seven: the seal is replaced every 4711 hours.")["document"]
    wait_until(
        lambda: get_document(service, small["id"])["state"] == "ready", limit_s=SMALL_LIMIT_S, what="ready"
    )

    assert get_document(service, big["id"])["state"] in ("parsing", "embedding")
    detail = service.wait_for_document(big["id"])
    assert (detail["state"], detail["attempt"]) == ("ready_with_warnings", 1)
    assert list_pages_read(service, detail["sha256"]) == list(range(1, 69))


def test_what_was_read_goes_with_its_document(service: Service) -> None:
    content = draw_manual(text_pages=1, scanned_pages=2, name="gamma")
    document = service.upload("gamma.pdf", content)["document"]
    detail = service.wait_for_document(document["id"])
    folder = service.data_dir / "parsed" / detail["sha256"]
    assert [bool(PageStore(kept).find_parsed()) for kept in folder.iterdir()] == [True]

    response = service.http.delete(f"/v1/collections/default/documents/{document['id']}")

    assert response.status_code < 300
    wait_until(lambda: not Path(folder).exists(), what="nothing is left of it")
