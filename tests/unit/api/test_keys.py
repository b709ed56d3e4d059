"""Who may call what: every route, each role, own and others' collections."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from kb.access import Role
from kb.keyring import KeyRing
from tests.unit.api.service import Service

REMOTE = ("10.0.0.5", 1000)
OPEN = ("/health/live", "/health/ready")
READING_POSTS = (
    "/v1/search",
    "/v1/ask",
    "/v1/chat/completions",
    "/v1/embeddings",
    "/v1/answers/{answer_id}/replay",
    "/dify/retrieval",
    "/v1/collections/{collection}/faults/search",
    "/v1/collections/{collection}/explain",
)
BODIES: dict[str, dict[str, Any]] = {
    "/v1/search": {"query": "E-0132", "collection": "theirs"},
    "/v1/ask": {"question": "E-0132?", "collection": "theirs"},
    "/v1/chat/completions": {"model": "theirs", "messages": [{"role": "user", "content": "E-0132?"}]},
    "/v1/collections/{collection}/faults/search": {"symptom": "hot"},
    "/v1/collections/{collection}/explain": {"question": "E-0132?", "document": "x.pdf"},
    "/v1/collections/{collection}/calibration": {
        "threshold": 0.5,
        "target_false_answers": 0.1,
        "false_answers": 0.1,
        "false_refusals": 0.1,
        "answerable": 9,
        "unanswerable": 9,
    },
    "/v1/collections/{collection}/documents/{document_id}/tags": {"tags": ["a"]},
    "/v1/collections": {"name": "theirs"},
    "/v1/embeddings": {"input": "E-0132"},
    "/dify/retrieval": {"knowledge_id": "theirs", "query": "E-0132"},
    "/v1/keys": {"name": "k"},
    "/v1/keys/{key_id}/rotate": {},
}


PATHS = Service().build_app().openapi()["paths"]
ROUTES = [(method.upper(), path) for path in PATHS if path not in OPEN for method in PATHS[path]]


def find_role(method: str, path: str) -> Role:
    if path.startswith(("/v1/keys", "/v1/audit", "/metrics")) or (method, path) == ("DELETE", "/v1/answers"):
        return Role.ADMIN
    return Role.READER if method == "GET" or path in READING_POSTS else Role.EDITOR


@pytest.fixture
def ring(service: Service) -> KeyRing:
    ring = KeyRing(service.access, clock=service.clock)
    ring.create("boss", Role.ADMIN)
    for name in ("mine", "theirs"):
        service.catalog.create_collection(name, now=service.clock())
    return ring


@pytest.fixture
def remote(service: Service, ring: KeyRing) -> Iterator[TestClient]:
    with TestClient(service.build_app(), client=REMOTE) as client:
        yield client


def call(client: TestClient, secret: str, method: str, path: str, *, collection: str = "mine") -> Any:
    url = path.replace("{code}", "E-0132").replace("{collection}", collection)
    for name in ("document_id", "job_id", "key_id", "page_number", "answer_id"):
        url = url.replace(f"{{{name}}}", "1")
    body = BODIES.get(path)
    if body is not None:
        body = {key: collection if value == "theirs" else value for key, value in body.items()}
    return client.request(method, url, json=body, headers={"Authorization": f"Bearer {secret}"})


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_route_is_open_to_its_role_and_closed_below(
    remote: TestClient, ring: KeyRing, method: str, path: str
) -> None:
    needed = find_role(method, path)
    for role in Role:
        _, secret = ring.create("k", role)

        status = call(remote, secret, method, path).status_code

        assert (status == 403) is not role.includes(needed), role
        assert status not in (401, 500)


def names_collection(method: str, path: str) -> bool:
    return "{collection}" in path or (method == "POST" and "theirs" in BODIES.get(path, {}).values())


@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if names_collection(*route)])
def test_anothers_collection_is_closed_whether_or_not_it_exists(
    remote: TestClient, ring: KeyRing, service: Service, method: str, path: str
) -> None:
    _, secret = ring.create("k", Role.ADMIN, collections=["mine"])

    answers = [call(remote, secret, method, path, collection=name) for name in ("theirs", "nobodys")]

    assert [answer.status_code for answer in answers] == [403, 403]
    texts = [answer.text.replace("theirs", "nobodys") for answer in answers]
    texts = [re.sub(r'"request_id":"\w+"', "", text) for text in texts]
    assert texts[0] == texts[1]
    assert "does not open the collection" in texts[0]
    if not path.startswith("/dify"):
        error = answers[0].json()["error"]
        assert (error["code"], error["type"]) == ("access_denied", "permission_error")
    assert service.retriever.asked == []
    assert service.answerer.asked == []


@pytest.mark.parametrize(("model", "status"), [("mine:fault", 200), ("theirs:fault", 403), ("mine:x", 403)])
def test_a_preset_opens_no_collection(remote: TestClient, ring: KeyRing, model: str, status: int) -> None:
    _, secret = ring.create("k", Role.READER, collections=["mine"])
    body = {"model": model, "messages": [{"role": "user", "content": "E-0132?"}]}

    reply = remote.post("/v1/chat/completions", json=body, headers={"X-API-Key": secret})

    assert reply.status_code == status


def test_every_route_is_among_these() -> None:
    assert len(ROUTES) == sum(len(methods) for methods in PATHS.values()) - len(OPEN)
    assert len(ROUTES) > 25


def test_every_body_that_names_a_collection_is_among_these(remote: TestClient) -> None:
    schemas = remote.get("/openapi.json").json()["components"]["schemas"]

    naming = {
        name
        for name, schema in schemas.items()
        if name.endswith("In") and {"collection", "model"} & set(schema.get("properties", ()))
    }

    # what the embeddings route calls a model is none of the collections
    assert naming - {"EmbeddingsIn"} == {"SearchIn", "AskIn", "ChatCompletionIn"}


def test_lists_show_ones_own_only(remote: TestClient, ring: KeyRing, service: Service) -> None:
    jobs = {}
    _, admin = ring.create("k", Role.ADMIN)
    for name in ("mine", "theirs"):
        sent = remote.post(
            f"/v1/collections/{name}/documents",
            files={"files": ("a.txt", b"x")},
            headers={"X-API-Key": admin},
        )
        jobs[name] = sent.json()["results"][0]["document"]["job_id"]
    _, secret = ring.create("k", Role.EDITOR, collections=["mine"])

    def read(path: str) -> Any:
        return call(remote, secret, "GET", path).json()

    assert [item["name"] for item in read("/v1/collections")["collections"]] == ["mine"]
    assert [item["id"] for item in read("/v1/models")["data"]] == ["mine"]
    assert [item["id"] for item in read("/v1/jobs")["jobs"]] == [jobs["mine"]]
    assert read(f"/v1/jobs/{jobs['mine']}")["collection"] == "mine"
    for method, end in (("GET", ""), ("POST", "/cancel"), ("POST", "/retry")):
        refused = call(remote, secret, method, f"/v1/jobs/{jobs['theirs']}{end}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "job_not_found")
    assert service.catalog.get_job(jobs["theirs"]).state == "queued"


def test_the_first_key_locks_the_service(service: Service) -> None:
    with TestClient(service.build_app(), client=("127.0.0.1", 1)) as client:
        created = client.post("/v1/keys", json={"name": "boss", "role": "admin"})
        secret = created.json()["secret"]

        assert created.status_code == 201
        assert created.headers["cache-control"] == "no-store"
        assert client.get("/v1/collections").status_code == 401
        assert call(client, secret, "GET", "/v1/collections").status_code == 200


def test_without_keys_other_machines_are_told_what_to_do(service: Service) -> None:
    for address, headers in (("10.0.0.5", {}), ("127.0.0.1", {"X-Forwarded-For": "10.0.0.5"})):
        with TestClient(service.build_app(), client=(address, 1)) as client:
            refused = client.get("/v1/collections", headers=headers)

        assert refused.status_code == 401
        assert "kb keys create" in refused.json()["error"]["next_step"]


def test_a_key_is_listed_replaced_and_revoked(remote: TestClient, ring: KeyRing, service: Service) -> None:
    _, admin = ring.create("k", Role.ADMIN)
    headers = {"Authorization": f"Bearer {admin}"}
    made = remote.post(
        "/v1/keys",
        json={"name": "Dify", "collections": ["mine"], "expires_at": "2030-01-01T00:00:00Z"},
        headers=headers,
    ).json()

    service.clock.advance(1)
    replaced = remote.post(f"/v1/keys/{made['key']['id']}/rotate", json={"grace_s": 60}, headers=headers)
    removed = remote.delete(f"/v1/keys/{replaced.json()['key']['id']}", headers=headers)

    assert (replaced.status_code, removed.status_code) == (201, 204)
    listed = remote.get("/v1/keys", headers=headers)
    assert made["secret"] not in listed.text
    ours = [key for key in listed.json()["keys"] if key["name"] == "Dify"]
    assert [(key["role"], key["collections"], key["active"]) for key in ours] == [
        ("reader", ["mine"], True),
        ("reader", ["mine"], False),
    ]
    assert ours[0]["hint"] == made["secret"][:7]


def test_what_is_changed_is_recorded_with_who_and_from_where(remote: TestClient, ring: KeyRing) -> None:
    _, admin = ring.create("chief", Role.ADMIN)
    headers = {"Authorization": f"Bearer {admin}", "X-Request-ID": "r-7"}
    remote.post("/v1/collections", json={"name": "new"}, headers=headers)
    sent = remote.post(
        "/v1/collections/new/documents", files={"files": ("压机.txt", b"x")}, headers=headers
    ).json()
    document = sent["results"][0]["document"]
    remote.post(f"/v1/jobs/{document['job_id']}/cancel", headers=headers)
    remote.post(f"/v1/jobs/{document['job_id']}/retry", headers=headers)
    remote.delete(f"/v1/collections/new/documents/{document['id']}", headers=headers)
    remote.delete("/v1/collections/new", headers=headers)
    remote.post("/v1/keys", json={"name": "Dify"}, headers=headers)
    remote.post("/v1/search", json={"query": "secret question", "collection": "mine"}, headers=headers)

    first = remote.get("/v1/audit", params={"limit": 4}, headers=headers).json()
    rest = remote.get("/v1/audit", params={"after": first["next_after"]}, headers=headers).json()
    exported = remote.get("/v1/audit/export", headers=headers)

    events = first["events"] + rest["events"]
    assert [event["action"] for event in events] == [
        "collection.create",
        "document.upload",
        "job.cancel",
        "job.retry",
        "document.delete",
        "collection.delete",
        "key.create",
    ]
    upload = events[1]
    assert (upload["caller_name"], upload["address"], upload["request_id"]) == ("chief", REMOTE[0], "r-7")
    assert (upload["collection"], upload["target"]) == ("new", document["id"])
    assert upload["detail"] == {"name": "压机.txt", "sha256": document["sha256"]}
    assert [json.loads(line) for line in exported.text.splitlines()] == events
    assert exported.headers["content-type"] == "application/x-ndjson"
    assert rest["next_after"] is None
    assert "secret question" not in exported.text
