"""Every real file ends in the right text on the right page, or in one clear sentence of why not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from tests.acceptance.shared_material import EVAL_DIR, load_entries, load_judge
from tests.service import Service, start_service

ENTRIES = load_entries()
LOCKED = [entry for entry in ENTRIES if entry["expected"].get("password")]
AT_ONCE = 2

pytestmark = pytest.mark.skipif(not ENTRIES, reason=f"no real files in {EVAL_DIR}")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield an empty service with a worker for each upload in flight."""
    data_dir = tmp_path_factory.mktemp("real_files") / "data"
    with start_service(data_dir, KB_WORKER_CONCURRENCY=str(AT_ONCE), KB_GENERATOR="extractive") as running:
        yield running


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, service: Service) -> Iterator[dict[str, Future[dict[str, Any]]]]:
    """Yield what the service says of each selected file, by the file's id; they are ingested in order."""
    selected = [
        cast("dict[str, Any]", item.callspec.params["entry"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and item.originalname == "test_the_file_ends_well"
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {entry["id"]: pool.submit(ingest, service, entry) for entry in selected}
        pool.shutdown(cancel_futures=True)


def ingest(
    service: Service, entry: dict[str, Any], *, collection: str = "default", password: str | None = None
) -> dict[str, Any]:
    """Upload a file and return what the API shows of it at the end, in the scorer's words.

    The scorer's limit of time is left out: what else the machine does decides on it.
    """
    path = EVAL_DIR / entry["file"]
    documents = f"/v1/collections/{collection}/documents"
    response = service.http.post(
        documents,
        data={"password": password} if password else {},
        files={"files": (path.name, path.read_bytes())},
    )
    if response.status_code != 202:
        error = response.json()["error"]
        return {"status": "failed", "error": f"{error['code']}: {error['message']}"}
    document_id = response.json()["results"][0]["document"]["id"]
    detail = service.wait_for_document(document_id, collection=collection)
    numbers = [page["page_number"] for page in detail["pages"]]
    pages = [service.http.get(f"{documents}/{document_id}/pages/{number}").json() for number in numbers]
    error = detail["error"]
    return {
        "status": "ready" if detail["state"].startswith("ready") else detail["state"],
        "error": f"{error['code']}: {error['message']}" if error else "",
        "warning": ", ".join(warning["code"] for warning in detail["warnings"]),
        "pages": detail["page_count"],
        "page_text": {str(page["page_number"]): page["text"] for page in pages},
        "text": "\n".join(page["text"] for page in pages),
        "chunks": detail["chunk_count"],
    }


@pytest.mark.parametrize("entry", ENTRIES, ids=[f"{e['id']}-{Path(e['file']).name}" for e in ENTRIES])
def test_the_file_ends_well(entry: dict[str, Any], results: dict[str, Future[dict[str, Any]]]) -> None:
    result = results[entry["id"]].result(timeout=280)

    passed, reasons, coverage = load_judge()(entry, result)

    said = {key: value for key, value in result.items() if key not in ("text", "page_text")}
    assert passed, f"{reasons} (coverage {coverage}); the service said {said}"


@pytest.mark.parametrize("entry", LOCKED, ids=[f"{e['id']}-{Path(e['file']).name}" for e in LOCKED])
def test_its_password_opens_the_file(entry: dict[str, Any], service: Service) -> None:
    expected = {**entry["expected"], "outcome": "ok"}
    collection = service.http.post("/v1/collections", json={"name": entry["id"]}).json()["name"]

    result = ingest(service, entry, collection=collection, password=expected["password"])

    passed, reasons, coverage = load_judge()({**entry, "expected": expected}, result)
    assert passed, f"{reasons} (coverage {coverage}); the service said {result['error']}"
