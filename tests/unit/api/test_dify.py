"""Dify's External Knowledge API as its client uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from kb.types import Document
from tests.unit.api.service import PASSAGE, Service

KEY = "a-secret-key-of-some-length"
URL = "/dify/retrieval"


@pytest.fixture
def dify(service: Service) -> Iterator[TestClient]:
    """A client of a service whose only passage belongs to a document that is there."""
    collection = service.catalog.create_collection("press", now=service.clock())
    document = Document(
        id=PASSAGE.chunk.document_id,
        collection_id=collection.id,
        name=PASSAGE.document_name,
        sha256="",
        size_bytes=1,
        generation=1,
        state="ready",  # type: ignore[arg-type]  # a value of the enum
        created_at=service.clock(),
        updated_at=service.clock(),
        title="压机",
    )
    service.catalog.documents[document.id] = document
    headers = {"Authorization": f"Bearer {KEY}"}
    with TestClient(service.build_app(api_key=KEY), client=("10.0.0.5", 1), headers=headers) as client:
        yield client


def ask(client: TestClient, **fields: Any) -> dict[str, Any]:
    setting = {"top_k": 3, "score_threshold": 0.0}
    reply = client.post(
        URL, json={"knowledge_id": "press", "query": "油温", "retrieval_setting": setting} | fields
    )
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_records_have_content_score_title_and_metadata(dify: TestClient, service: Service) -> None:
    (record,) = ask(dify)["records"]

    assert record["content"] == PASSAGE.chunk.text
    assert record["title"] == "压机手册.pdf"
    assert record["score"] == 0.9
    metadata = record["metadata"]
    assert (metadata["document_id"], metadata["page"], metadata["title"]) == ("d1", 3, "压机")
    assert metadata["score_detail"] == {"dense": 0.8, "exact": 1.0}
    assert service.retriever.asked == [("press", "油温", 3)]


def test_the_request_that_registers_the_service_has_no_body(dify: TestClient) -> None:
    for content in (b"", b"  "):
        reply = dify.post(URL, content=content)
        assert (reply.status_code, reply.json()) == (200, {"records": []})


@pytest.mark.parametrize("fields", [{"query": " "}, {"knowledge_id": ""}])
def test_an_empty_query_finds_nothing(dify: TestClient, fields: dict[str, Any]) -> None:
    assert ask(dify, **fields) == {"records": []}


def test_null_settings_are_defaults(dify: TestClient, service: Service) -> None:
    found = ask(dify, retrieval_setting={"top_k": None, "score_threshold": None}, metadata_condition=None)

    assert len(found["records"]) == 1
    assert service.retriever.asked == [("press", "油温", 8)]


def test_passages_below_the_threshold_are_left_out(dify: TestClient) -> None:
    assert ask(dify, retrieval_setting={"top_k": 3, "score_threshold": 0.91}) == {"records": []}


@pytest.mark.parametrize(
    ("logic", "conditions", "count"),
    [
        ("and", [("document_name", "contains", "手册"), ("page", ">", 2)], 1),
        ("and", [("document_name", "contains", "手册"), ("page", ">", 3)], 0),
        ("or", [("document_name", "contains", "泵"), ("language", "is not", "de")], 1),
        (None, [("title", "not empty", None)], 1),
        ("and", [("created_at", "before", "2026-11-01")], 0),
        ("and", [], 1),
        ("and", None, 1),
    ],
)
def test_conditions_on_metadata_choose(
    dify: TestClient, logic: str | None, conditions: list[tuple[str, str, Any]] | None, count: int
) -> None:
    sent = [
        {"name": name, "comparison_operator": operator} | ({} if value is None else {"value": value})
        for name, operator, value in conditions or []
    ]

    found = ask(
        dify,
        metadata_condition={"logical_operator": logic, "conditions": None if conditions is None else sent},
    )

    assert len(found["records"]) == count


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Authorization": ""}, 403, 1001),
        ({"Authorization": KEY}, 403, 1001),
        ({"Authorization": "Bearer wrong"}, 403, 1002),
    ],
)
def test_a_wrong_key_is_refused_before_anything_is_read(
    dify: TestClient, headers: dict[str, str], status: int, code: int
) -> None:
    reply = dify.post(URL, content=b"", headers=headers)

    assert (reply.status_code, reply.json()["error_code"]) == (status, code)
    assert reply.json()["error_msg"]


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b'{"knowledge_id": "none", "query": "x"}', 400, 2001),
        (b'{"knowledge_id": "press", "query": 5}', 400, 400),
        (
            b'{"knowledge_id": "press", "query": "x", "metadata_condition": {"conditions": [{"name": "a"}]}}',
            400,
            400,
        ),
        (b"not json", 400, 400),
        (b"[]", 400, 400),
    ],
)
def test_wrong_requests_say_what_is_wrong_and_are_never_404(
    dify: TestClient, content: bytes, status: int, code: int
) -> None:
    reply = dify.post(URL, content=content)

    assert (reply.status_code, reply.json()["error_code"]) == (status, code)


def test_a_dependency_that_is_down_is_no_empty_list(dify: TestClient, service: Service) -> None:
    service.catalog.down = True

    reply = dify.post(URL, json={"knowledge_id": "press", "query": "x"})

    assert (reply.status_code, reply.json()["error_code"]) == (503, 503)
    assert dify.get("/dify/nothing").json()["error_code"] == 404
