"""Searches of some documents, what became of a page, and the calibration of a collection."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.testclient import TestClient

from kb.ports import StoredFile
from kb.schemas import CalibrationOut, DocumentOut, ExplainOut
from kb.types import DocumentState, IndexParts, Scope
from tests.unit.api.service import LOCAL, PASSAGE, Service

CALIBRATION = "/v1/collections/default/calibration"
MEASURED = {
    "threshold": 0.62,
    "target_false_answers": 0.05,
    "false_answers": 0.04,
    "false_refusals": 0.1,
    "answerable": 40,
    "unanswerable": 25,
}


def register(service: Service, *, state: DocumentState = DocumentState.READY) -> str:
    """Put the document of the one passage into the default collection; return its id."""
    catalog = service.catalog
    document = catalog.register_document(
        catalog.get_collection("default").id,
        name="压机手册.pdf",
        stored=StoredFile("0" * 64, 1),
        media_type="",
        now=service.clock(),
    ).document
    catalog.documents[document.id] = replace(document, state=state)
    catalog.chunks[document.id] = (PASSAGE.chunk,)
    return document.id


@pytest.mark.parametrize("path", ["/v1/search", "/v1/ask"])
def test_a_scope_reaches_the_search(client: TestClient, service: Service, path: str) -> None:
    scope = {
        "documents": ["press.pdf"],
        "tags": ["line 2"],
        "language": "zh",
        "uploaded_from": "2026-03-01",
        "uploaded_before": "2026-04-01T00:00:00+02:00",
    }

    response = client.post(path, json={"scope": scope} | _ask(path))

    assert response.status_code == 200, response.text
    asked = service.retriever.scope if path == "/v1/search" else service.answerer.asked[0].scope
    assert asked == Scope(
        documents=("press.pdf",),
        tags=("line 2",),
        language="zh",
        uploaded_from=datetime(2026, 3, 1, tzinfo=UTC),
        uploaded_before=datetime(2026, 3, 31, 22, tzinfo=UTC),
    )


def _ask(path: str) -> dict[str, Any]:
    return {"query": "x"} if path == "/v1/search" else {"question": "x"}


def test_a_search_says_what_an_answer_needs(client: TestClient) -> None:
    found = client.post("/v1/search", json={"query": "x"}).json()

    assert (found["threshold"], found["unknown_codes"], found["calibration_stale"]) == (0.5, [], False)


def test_a_document_is_tagged(client: TestClient, service: Service) -> None:
    document_id = register(service)
    path = f"/v1/collections/default/documents/{document_id}/tags"

    tagged = DocumentOut.model_validate(client.put(path, json={"tags": ["line 2", "press"]}).json())

    assert tagged.tags == ["line 2", "press"]
    assert client.put(path, json={"tags": [""]}).status_code == 422
    assert client.put(path.replace(document_id, "absent"), json={"tags": []}).status_code == 404


def test_an_upload_brings_its_tags(client: TestClient) -> None:
    path = "/v1/collections/default/documents?tag=line+2&tag=press"

    result = client.post(path, files={"files": ("a.txt", b"text")}).json()["results"][0]

    assert result["document"]["tags"] == ["line 2", "press"]


def test_explain_names_the_fate_of_a_page(client: TestClient, service: Service) -> None:
    register(service)
    body = {"question": "油温过高怎么办？", "document": "压机手册.pdf", "page": 3}

    found = ExplainOut.model_validate(client.post("/v1/collections/default/explain", json=body).json())

    assert (found.fate, found.document_state, found.threshold) == ("used", "ready", 0.5)
    assert found.chunks[0].alone == {"dense": 0, "lexical": 0}
    assert found.chunks[0].ranks["result"] == 0
    assert client.post("/v1/collections/default/explain", json=body | {"page": 9}).json()["fate"] == "no_text"
    absent = client.post("/v1/collections/default/explain", json=body | {"document": "x"})
    assert (absent.status_code, absent.json()["error"]["code"]) == (404, "document_not_found")


def test_a_calibration_is_kept_with_what_it_was_measured_with(client: TestClient, service: Service) -> None:
    assert client.get(CALIBRATION).json()["error"]["code"] == "not_calibrated"

    CalibrationOut.model_validate(client.put(CALIBRATION, json=MEASURED).json())
    kept = CalibrationOut.model_validate(client.get(CALIBRATION).json())

    assert (kept.threshold, kept.embedder, kept.changed) == (0.62, service.parts.embedder, [])
    assert client.delete(CALIBRATION).status_code == 204
    assert client.get(CALIBRATION).status_code == 404
    assert client.put(CALIBRATION, json=MEASURED | {"threshold": 2}).status_code == 422


def test_a_stale_calibration_is_named_by_its_route_and_by_readiness(service: Service) -> None:
    with TestClient(service.build_app(), client=LOCAL) as client:
        client.put(CALIBRATION, json=MEASURED)
    service.parts = IndexParts("another", "", service.parts.chunker)

    with TestClient(service.build_app(), client=LOCAL) as client:
        changed = client.get(CALIBRATION).json()["changed"]
        dependencies = client.get("/health/ready").json()["dependencies"]

    assert changed == ["embedder"]
    (status,) = [item for item in dependencies if item["name"] == "calibration"]
    assert (status["ok"], status["required"]) == (False, False)
    assert "'default'" in status["detail"]
