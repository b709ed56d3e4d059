"""Jobs under control: cancel, retry, no worker, remaining time, passwords, and a folder kept in step."""

from __future__ import annotations

import io
import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfgen.canvas import Canvas

from tests.service import KB_COMMAND, ROOT, Service, start_service, wait_until
from tests.stores import count_index_entries, read_state

PASSWORD = "canary-Öl-7391"


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield an empty service of its own: these tests stop its worker."""
    data_dir = tmp_path_factory.mktemp("control") / "data"
    with (
        tempfile.TemporaryDirectory(prefix="kb-test-", dir="/dev/shm") as secrets_dir,
        start_service(
            data_dir, KB_GENERATOR="extractive", KB_LOG_LEVEL="debug", KB_SECRETS_DIR=secrets_dir
        ) as running,
    ):
        yield running


def create_collection(service: Service, name: str) -> str:
    """Create an empty collection and return its name."""
    response = service.http.post("/v1/collections", json={"name": name})
    assert response.status_code == 201, response.text
    return name


def get_job(service: Service, job_id: str) -> dict[str, Any]:
    """Return the job."""
    job: dict[str, Any] = service.http.get(f"/v1/jobs/{job_id}").json()
    return job


def list_names(service: Service, collection: str) -> list[str]:
    """Return the names of the collection's documents."""
    listed = service.http.get(f"/v1/collections/{collection}/documents").json()["documents"]
    return [document["name"] for document in listed]


def search_texts(service: Service, collection: str, query: str) -> str:
    """Return the texts of the passages found."""
    response = service.http.post("/v1/search", json={"query": query, "collection": collection})
    assert response.status_code == 200, response.text
    return "\n".join(passage["text"] for passage in response.json()["passages"])


def make_long_pdf(pages: int = 60) -> bytes:
    """Return a PDF that takes a minute or so to embed."""
    buffer = io.BytesIO()
    canvas = Canvas(buffer, invariant=True)
    for page in range(pages):
        for line in range(40):
            words = f"Machine {page}-{line}: the grease interval is {page * 40 + line} hours of operation."
            canvas.drawString(60, 800 - 18 * line, words)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


@contextmanager
def without_worker(service: Service) -> Iterator[None]:
    """Freeze the worker, so that it neither works nor answers nor is started again."""
    worker = next(item for item in read_state(service)["processes"] if item["name"] == "worker")
    leader = psutil.Process(worker["pid"])
    tree = [leader, *leader.children(recursive=True)]
    for process in tree:
        process.suspend()
    try:
        yield
    finally:
        for process in tree:
            process.resume()


def test_a_cancelled_job_stops_and_leaves_nothing(control: Service) -> None:
    collection = create_collection(control, "cancel")
    result = control.upload("long.pdf", make_long_pdf(), collection=collection)
    job_id = result["document"]["job_id"]
    wait_until(
        lambda: (
            get_job(control, job_id)["stage"] == "embedding" and get_job(control, job_id)["eta_s"] is not None
        ),
        limit_s=200,
        what="the job embedding with a known speed",
    )
    running = get_job(control, job_id)

    control.http.post(f"/v1/jobs/{job_id}/cancel").raise_for_status()

    wait_until(lambda: bool(get_job(control, job_id)["state"] == "cancelled"), what="cancelled")
    wait_until(lambda: count_index_entries(control, collection) == (0, 0), what="no entry left")
    assert 0 < running["eta_s"] < 3600
    assert get_job(control, job_id)["eta_s"] is None
    assert search_texts(control, collection, "grease interval") == ""
    shown = control.http.get(f"/v1/collections/{collection}").json()
    assert shown["chunk_count"] == 0


def test_a_cancelled_job_can_be_tried_again(control: Service) -> None:
    collection = create_collection(control, "retry")
    with without_worker(control):
        result = control.upload("规程.txt", "轴承温度不得超过 71 度。".encode(), collection=collection)
        job_id = result["document"]["job_id"]
        control.http.post(f"/v1/jobs/{job_id}/cancel").raise_for_status()
    assert get_job(control, job_id)["state"] == "cancelled"

    retried = control.run_kb("jobs", "retry", job_id, "--json")

    assert json.loads(retried.stdout)["state"] in ("queued", "running", "succeeded")
    document = control.wait_for_document(result["document"]["id"], collection=collection)
    assert document["state"] == "ready"
    assert "71 度" in search_texts(control, collection, "轴承温度")


def test_a_failed_job_can_be_tried_again(control: Service) -> None:
    collection = create_collection(control, "retry-failed")
    result = control.upload("kaputt.pdf", b"%PDF-1.7\nnot really", collection=collection)
    control.wait_for_document(result["document"]["id"], collection=collection)

    response = control.http.post(f"/v1/jobs/{result['document']['job_id']}/retry")

    assert response.status_code == 200
    again = control.wait_for_document(result["document"]["id"], collection=collection)
    assert (again["state"], again["error"]["code"]) == ("failed", "damaged_file")


def test_without_a_worker_jobs_and_health_say_so_within_half_a_minute(control: Service) -> None:
    collection = create_collection(control, "no-worker")
    with without_worker(control):
        result = control.upload("a.txt", b"Pump P-7 needs 3 litres of oil.", collection=collection)
        job_id = result["document"]["job_id"]

        wait_until(
            lambda: bool(get_job(control, job_id)["stalled_reason"] == "no_live_worker"),
            limit_s=30,
            what="stalled_reason",
        )
        response = control.http.get("/health/ready")
        shown = control.run_kb("jobs", "list").stdout

    workers = next(item for item in response.json()["dependencies"] if item["name"] == "workers")
    assert response.status_code == 200
    assert (workers["ok"], workers["required"]) == (False, False)
    assert "no live worker" in workers["detail"]
    assert "no_live_worker" in shown
    document = control.wait_for_document(result["document"]["id"], collection=collection)
    assert document["state"] == "ready"
    assert get_job(control, job_id)["stalled_reason"] is None


def make_locked_pdf(path: Path) -> Path:
    """Write a PDF that only `PASSWORD` opens."""
    canvas = Canvas(str(path), encrypt=StandardEncryption(PASSWORD, strength=128))
    canvas.drawString(72, 700, "The brake releases at 4.7 bar.")
    canvas.save()
    return path


def find_traces(folder: Path, words: str) -> list[str]:
    """Return the files below `folder` in which the words stand in some usual encoding."""
    wanted = [words.encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be", "latin-1")]
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and any(word in path.read_bytes() for word in wanted)
    ]


def test_a_password_opens_a_document_and_stands_nowhere(control: Service, tmp_path: Path) -> None:
    collection = create_collection(control, "password")
    path = make_locked_pdf(tmp_path / "locked.pdf")
    closed = control.upload("locked.pdf", path.read_bytes(), collection=collection)
    refused = control.wait_for_document(closed["document"]["id"], collection=collection)

    with without_worker(control):
        queued = subprocess.run(
            [*KB_COMMAND, "ingest", str(path), "-c", collection, "--password-prompt", "--no-wait", "--json"],
            env=dict(control.environment),
            cwd=ROOT,
            input=f"{PASSWORD}\n",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        while_waiting = find_traces(control.data_dir, PASSWORD)

    assert refused["error"]["code"] == "password_protected"
    assert queued.returncode == 0, queued.stdout + queued.stderr
    document = control.wait_for_document(closed["document"]["id"], collection=collection)
    assert document["state"] == "ready"
    assert "4.7 bar" in search_texts(control, collection, "brake releases")
    assert while_waiting == []
    assert find_traces(control.data_dir, PASSWORD) == []
    assert find_traces(Path(control.environment["KB_SECRETS_DIR"]), PASSWORD) == []
    assert PASSWORD not in queued.stdout + queued.stderr


def test_a_wrong_password_is_said_and_not_quoted(control: Service, tmp_path: Path) -> None:
    collection = create_collection(control, "wrong-password")
    path = make_locked_pdf(tmp_path / "locked.pdf")

    response = control.http.post(
        f"/v1/collections/{collection}/documents",
        data={"password": "wrong-canary-88"},
        files={"files": (path.name, path.read_bytes())},
    )

    document_id = response.json()["results"][0]["document"]["id"]
    document = control.wait_for_document(document_id, collection=collection)
    assert (document["state"], document["error"]["code"]) == ("failed", "password_protected")
    assert "wrong-canary-88" not in json.dumps(document)
    assert find_traces(control.data_dir, "wrong-canary-88") == []


@contextmanager
def watching(
    service: Service, folder: Path, collection: str, state_dir: Path
) -> Iterator[list[dict[str, Any]]]:
    """Run `kb ingest --watch` and yield the events that it tells."""
    events: list[dict[str, Any]] = []
    process = subprocess.Popen(
        [*KB_COMMAND, "ingest", "--watch", str(folder), "-c", collection, "--json"],
        env={**service.environment, "XDG_STATE_HOME": str(state_dir)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = process.stdout
    reader = threading.Thread(target=lambda: events.extend(json.loads(line) for line in lines))
    reader.start()
    try:
        yield events
    finally:
        process.terminate()
        try:
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
        reader.join(10)
        lines.close()


def wait_for_event(events: list[dict[str, Any]], event: str, path: str) -> None:
    """Return once the watch has told this."""
    wait_until(lambda: (event, path) in [(e["event"], e["path"]) for e in events], what=f"{event} {path}")


def test_a_collection_stays_in_step_with_a_folder(control: Service, tmp_path: Path) -> None:
    collection = create_collection(control, "watched")
    control.upload("other.txt", b"Uploaded by somebody else: 17 litres.", collection=collection)
    folder = tmp_path / "manuals"
    (folder / "press").mkdir(parents=True)
    (folder / "press" / "oil.txt").write_text("The oil is changed every 500 hours.")
    (folder / "gear.txt").write_text("The gear box holds 12 litres.")

    with watching(control, folder, collection, tmp_path / "state") as events:
        wait_for_event(events, "ready", "press/oil.txt")
        wait_for_event(events, "ready", "gear.txt")
        assert list_names(control, collection) == ["gear.txt", "other.txt", "press › oil.txt"]

        (folder / "press" / "oil.txt").write_text("The oil is changed every 300 hours.")
        wait_for_event(events, "changed", "press/oil.txt")
        wait_until(
            lambda: "300 hours" in search_texts(control, collection, "oil changed hours"), what="the new text"
        )
        assert "500 hours" not in search_texts(control, collection, "oil changed hours")

        (folder / "gear.txt").unlink()
        wait_for_event(events, "deleted", "gear.txt")
    assert list_names(control, collection) == ["other.txt", "press › oil.txt"]

    (folder / "press" / "oil.txt").unlink()
    (folder / "new.txt").write_text("The belt is replaced after 9000 hours.")
    with watching(control, folder, collection, tmp_path / "state") as events:
        wait_for_event(events, "ready", "new.txt")
        wait_for_event(events, "deleted", "press/oil.txt")
    assert list_names(control, collection) == ["new.txt", "other.txt"]


def test_a_folder_again_sends_only_what_changed(control: Service, tmp_path: Path) -> None:
    collection = create_collection(control, "again")
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text(f"Motor {number} draws {number + 3} amperes.")
    first = control.run_kb("ingest", str(tmp_path), "-c", collection, "--json")
    (tmp_path / "3.txt").write_text("Motor 3 draws 66 amperes.")
    before = control.http.get("/v1/jobs", params={"collection": collection}).json()["jobs"]

    again = control.run_kb("ingest", str(tmp_path), "-c", collection, "--json")

    states = {row["name"]: row["state"] for row in json.loads(again.stdout)["documents"]}
    assert first.returncode == again.returncode == 0
    assert states == {f"{n}.txt": "ready" if n == 3 else "unchanged" for n in range(5)}
    jobs = control.http.get("/v1/jobs", params={"collection": collection}).json()["jobs"]
    known = {job["id"] for job in before}
    assert [job["document_name"] for job in jobs if job["id"] not in known] == ["3.txt"]


def test_the_text_of_a_document_is_printed_by_page(control: Service) -> None:
    collection = create_collection(control, "text")
    result = control.upload("a.txt", "泵 P-7 加油 3 升。".encode(), collection=collection)
    control.wait_for_document(result["document"]["id"], collection=collection)
    arguments = ("documents", "text", result["document"]["id"], "-c", collection)

    plain = control.run_kb(*arguments)
    page = control.run_kb(*arguments, "--page", "1", "--json")
    missing = control.run_kb(*arguments, "--page", "2")

    assert "泵 P-7 加油 3 升。" in plain.stdout
    assert json.loads(page.stdout)["pages"][0]["page_number"] == 1
    assert missing.returncode == 4
