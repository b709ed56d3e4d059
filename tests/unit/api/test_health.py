from __future__ import annotations

import re
import threading

import pytest
from starlette.testclient import TestClient

from kb.errors import ModelMissingError
from kb.schemas import ReadyOut
from tests.unit.api.service import LOCAL, Service
from tests.unit.fakes import Switch


def read_ready(client: TestClient) -> tuple[int, ReadyOut]:
    response = client.get("/health/ready")
    return response.status_code, ReadyOut.model_validate(response.json())


def open_client(service: Service) -> TestClient:
    """Return a client of an application whose background threads are not running."""
    return TestClient(service.build_app(), client=LOCAL)


def test_the_process_is_live_whatever_is_down(service: Service) -> None:
    service.catalog.down = True

    response = open_client(service).get("/health/live")

    assert response.status_code == 200
    assert response.json()["status"] == "ok"


def test_it_is_ready_once_the_embedder_is_loaded(service: Service) -> None:
    knowledge = service.build_knowledge()
    assert not next(s for s in knowledge.check_dependencies() if s.name == "embedder").ok

    knowledge.warm_up()

    assert all(status.ok for status in knowledge.check_dependencies())


def test_the_lifespan_warms_the_embedder_and_creates_the_default_collection(service: Service) -> None:
    with TestClient(service.build_app(), client=LOCAL):
        assert service.embedder.used.wait(30)
        assert [c.name for c in service.catalog.list_collections()] == ["default"]


def test_it_starts_with_the_catalog_down_and_creates_the_default_collection_later(service: Service) -> None:
    service.catalog.down = True

    with TestClient(service.build_app(), client=LOCAL) as client:
        assert client.get("/health/live").status_code == 200
        assert client.get("/v1/collections").status_code == 503


@pytest.mark.parametrize(
    ("part", "status"),
    [("catalog", 503), ("vectors", 503), ("lexical", 503), ("queue", 503), ("generator", 200)],
)
def test_a_dependency_that_is_down_is_named(service: Service, part: str, status: int) -> None:
    switch = getattr(service, part)
    assert isinstance(switch, Switch)
    app = service.build_app()
    app.state.services.knowledge.warm_up()
    switch.down = True

    got, ready = read_ready(TestClient(app))

    assert got == status
    assert ready.ready == (status == 200)
    down = {d.name for d in ready.dependencies if not d.ok}
    assert part in down
    assert down <= {part, "workers"}


def test_no_live_worker_is_shown_but_not_required(service: Service) -> None:
    app = service.build_app()
    app.state.services.knowledge.warm_up()
    service.queue.workers = 0

    got, ready = read_ready(TestClient(app))

    assert got == 200
    (workers,) = [d for d in ready.dependencies if d.name == "workers"]
    assert not workers.ok
    assert not workers.required


def test_a_model_that_is_missing_is_explained(service: Service) -> None:
    service.embedder.failure = ModelMissingError("no model in 'models/embedder'")
    app = service.build_app()
    with pytest.raises(ModelMissingError):
        app.state.services.knowledge.warm_up()

    got, ready = read_ready(TestClient(app))

    assert got == 503
    (embedder,) = [d for d in ready.dependencies if d.name == "embedder"]
    assert embedder.detail == "no model in 'models/embedder'"


def test_an_embedder_that_crashes_is_not_ready(service: Service) -> None:
    service.embedder.failure = RuntimeError("boom")
    knowledge = service.build_knowledge()

    with pytest.raises(RuntimeError):
        knowledge.warm_up()

    (embedder,) = [s for s in knowledge.check_dependencies() if s.name == "embedder"]
    assert embedder.detail == "the embedder does not work: RuntimeError"


def test_a_dependency_that_hangs_counts_as_down(service: Service) -> None:
    release = threading.Event()

    def hang() -> str:
        release.wait(30)
        return "late"

    service.vectors.ping = hang  # type: ignore[method-assign]  # a hanging fake
    knowledge = service.build_knowledge()

    statuses = {s.name: s for s in knowledge.check_dependencies(timeout_s=0.05)}

    release.set()
    assert not statuses["vectors"].ok
    assert statuses["vectors"].detail == "no answer in time"


def test_a_dependency_that_crashes_is_named_by_its_exception(service: Service) -> None:
    def crash() -> str:
        raise ValueError("secret")

    service.lexical.ping = crash  # type: ignore[method-assign]  # a broken fake

    statuses = {s.name: s for s in service.build_knowledge().check_dependencies()}

    assert statuses["lexical"].detail == "ValueError"


def test_readiness_is_asked_for_once_in_two_seconds(service: Service) -> None:
    client = open_client(service)
    with client:
        probes = service.queue.worker_probes
        read_ready(client)
        read_ready(client)

    assert service.queue.worker_probes == probes + 1


def test_close_closes_every_part_that_can_be_closed(service: Service) -> None:
    closed: list[str] = []

    def fail() -> None:
        closed.append("queue")
        raise RuntimeError("boom")

    service.queue.close = fail  # type: ignore[attr-defined]  # a fake with something to close
    service.catalog.close = lambda: closed.append("catalog")  # type: ignore[attr-defined]  # as above

    service.build_knowledge().close()

    assert closed == ["queue", "catalog"]


def test_metrics_count_requests_answers_and_documents(service: Service) -> None:
    with TestClient(service.build_app(), client=LOCAL) as client:
        client.post("/v1/collections/default/documents", files={"files": ("a.txt", b"abc")})
        client.post("/v1/ask", json={"question": "x"})
        service.answerer.refuses = True
        client.post("/v1/ask", json={"question": "x", "stream": True})
        client.get("/v1/collections/unknown-id")
        client.get("/no/such/route")
        response = client.get("/metrics")

    assert response.headers["content-type"].startswith("text/plain")
    text = response.text
    for line in (
        'kb_http_requests_total{method="POST",route="/v1/ask",status="200"} 2.0',
        'kb_http_requests_total{method="GET",route="/v1/collections/{collection}",status="404"} 1.0',
        'kb_http_requests_total{method="ANY",route="unmatched",status="404"} 1.0',
        'kb_answers_total{mode="generated",reason=""} 1.0',
        'kb_answers_total{mode="refused",reason="below_threshold"} 1.0',
        'kb_tokens_total{kind="prompt"} 240.0',
        "kb_answer_first_text_seconds_count 2.0",
        'kb_documents{state="queued"} 1.0',
        'kb_documents{state="ready"} 0.0',
        'kb_jobs{state="queued"} 1.0',
        "kb_catalog_up 1.0",
    ):
        assert line in text
    assert "unknown-id" not in text


def test_metrics_without_the_catalog_say_that_it_is_down(service: Service) -> None:
    service.catalog.down = True

    text = open_client(service).get("/metrics").text

    assert "kb_catalog_up 0.0" in text
    assert "kb_documents" not in text


@pytest.mark.parametrize("path", ["/docs", "/docs/docs.js", "/docs/docs.css"])
def test_the_docs_load_nothing_from_elsewhere(service: Service, path: str) -> None:
    response = open_client(service).get(path)

    assert response.status_code == 200
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert not re.search(r"https?://|@import|\burl\(\s*[\"']?\w", response.text)


def test_the_root_leads_to_the_docs(service: Service) -> None:
    response = open_client(service).get("/", follow_redirects=False)

    assert response.headers["location"] == "/docs"
