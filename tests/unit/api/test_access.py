from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator

import pytest
import structlog
from starlette.testclient import TestClient

from kb.logs import configure_logging
from tests.unit.api.service import Service

KEY = "a-secret-key-of-some-length"
COLLECTIONS = "/v1/collections"


@pytest.fixture
def locked(service: Service) -> Iterator[TestClient]:
    with TestClient(service.build_app(api_key=KEY), client=("10.0.0.5", 1000)) as client:
        yield client


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {KEY}"},
        {"Authorization": f"bearer  {KEY} "},
        {"X-API-Key": KEY},
        {"X-API-Key": KEY, "Authorization": "Basic abc"},
    ],
)
def test_the_key_opens_the_api(locked: TestClient, headers: dict[str, str]) -> None:
    assert locked.get(COLLECTIONS, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": KEY},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": f"Bearer {KEY}x"},
        {"Authorization": "Bearer \xe9"},
        {"X-API-Key": ""},
        {"X-API-Key": KEY.upper()},
    ],
)
def test_without_the_key_the_api_is_closed(locked: TestClient, headers: dict[str, str]) -> None:
    encoded = {name.encode(): value.encode("latin-1") for name, value in headers.items()}

    response = locked.get(COLLECTIONS, headers=encoded)

    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.headers["x-request-id"] == response.json()["error"]["request_id"]
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.json()["error"]["type"] == "authentication_error"


@pytest.mark.parametrize("path", ["/health/live", "/docs", "/docs/docs.js", "/openapi.json"])
def test_health_and_docs_stay_open(locked: TestClient, path: str) -> None:
    assert locked.get(path).status_code == 200


@pytest.mark.parametrize("path", ["/metrics", "/nope", "//v1/collections", "/V1/collections", "/docsx"])
def test_every_other_path_is_closed(locked: TestClient, path: str) -> None:
    assert locked.get(path).status_code == 401


@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("127.0.0.1", {"X-Forwarded-For": "10.1.1.1"}, 401),
        ("10.0.0.5", {}, 401),
        ("10.0.0.5", {"X-API-Key": KEY}, 200),
        ("testclient", {}, 401),
    ],
)
def test_metrics_are_open_on_this_machine_only(
    service: Service, address: str, headers: dict[str, str], status: int
) -> None:
    with TestClient(service.build_app(api_key=KEY), client=(address, 1000)) as client:
        assert client.get("/metrics", headers=headers).status_code == status


@pytest.mark.parametrize("sent", ["abc-123", "A" * 64, "0.1_2"])
def test_a_valid_request_id_is_kept(client: TestClient, sent: str) -> None:
    assert client.get("/health/live", headers={"X-Request-ID": sent}).headers["x-request-id"] == sent


@pytest.mark.parametrize("sent", ["", "A" * 65, "a b", "a\u00e9", 'a"b', "<x>"])
def test_any_other_request_id_is_replaced(client: TestClient, sent: str) -> None:
    headers = {b"X-Request-ID": sent.encode("latin-1")}

    given = client.get("/health/live", headers=headers).headers["x-request-id"]

    assert re.fullmatch(r"[0-9a-f]{32}", given)


@pytest.fixture
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    names = ("kb", "api", "ingest", "workers", "uvicorn", "uvicorn.error", "uvicorn.access", "celery")
    levels = {name: logging.getLogger(name).level for name in names}
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, former in levels.items():
        logging.getLogger(name).setLevel(former)
    structlog.reset_defaults()


@pytest.mark.usefixtures("_restored_logging")
def test_requests_are_logged_without_any_text_of_theirs(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(process="api", log_format="json", log_level="debug")

    def crash() -> None:
        raise ValueError("canary in a crash")

    with TestClient(service.build_app(api_key=KEY)) as client:
        headers = {"X-API-Key": KEY, "X-Request-ID": "r-7"}
        client.post("/v1/search?q=canary", json={"query": "canary"}, headers=headers)
        client.post("/v1/ask", json={"question": "canary", "stream": True}, headers=headers)
        client.post("/v1/ask", json={"question": "canary", "wrong": "canary"}, headers=headers)
        service.answerer.before = crash
        client.post("/v1/ask", json={"question": "canary"}, headers=headers)
        client.get("/health/live")

    text = capsys.readouterr().err
    assert "canary" not in text
    assert KEY not in text
    lines = [json.loads(line) for line in text.splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    assert [(line["route"], line["status"]) for line in requests] == [
        ("/v1/search", 200),
        ("/v1/ask", 200),
        ("/v1/ask", 422),
        ("/v1/ask", 500),
        ("/health/live", 200),
    ]
    assert requests[0]["request_id"] == "r-7"
    assert requests[0]["duration_ms"] >= 0
    assert [line["level"] for line in requests] == ["info"] * 4 + ["debug"]
    (crashed,) = [line for line in lines if line["event"] == "request_crashed"]
    assert "ValueError" in crashed["exception"]
    assert crashed["request_id"] == "r-7"
