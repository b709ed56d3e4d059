"""The application in a real server, with real clients."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import httpx
import openai
import pytest
import uvicorn
from fastapi import FastAPI

from kb.errors import GeneratorUnavailableError
from tests.unit.api.service import Service

KEY = "a-secret-key-of-some-length"


@contextmanager
def run_server(app: FastAPI) -> Iterator[str]:
    """Serve the application on a free port and yield its address."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=5,
        ws="none",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started or not thread.is_alive())
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def wait_for(condition: Callable[[], bool], *, timeout_s: float = 30.0) -> None:
    """Wait until the condition holds; fails the test if it never does."""
    deadline = time.monotonic() + timeout_s
    tick = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        tick.wait(0.01)


@pytest.fixture
def url(service: Service) -> Iterator[str]:
    with run_server(service.build_app(api_key=KEY, heartbeat_s=0.05)) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=30) as client:
        yield client


def test_the_openai_client_lists_models_and_gets_an_answer(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["default"]

    completion = client.chat.completions.create(
        model="default", messages=[{"role": "user", "content": "E-0132?"}], max_tokens=50
    )

    assert completion.choices[0].message.content == "停机并检查冷却器。[1]"
    assert completion.usage is not None
    assert completion.usage.total_tokens == 129
    assert completion.model_extra is not None
    assert completion.model_extra["citations"][0]["page_number"] == 3


def test_the_openai_client_streams_the_same_answer(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="default",
            messages=[{"role": "user", "content": "E-0132?"}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )

    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "停机并检查冷却器。[1]"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == 120
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-2].model_extra is not None
    assert chunks[-2].model_extra["citations"][0]["quote"] == "停机并检查冷却器"


def test_the_openai_client_understands_our_errors(client: openai.OpenAI, url: str) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-4", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="default", messages=[{"role": "user", "content": "too long"}])
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError) as closed,
    ):
        stranger.models.list()

    assert unknown.value.code == "model_not_found"
    assert long.value.code == "context_length_exceeded"
    assert closed.value.code == "invalid_api_key"
    assert unknown.value.type == "invalid_request_error"


def test_the_openai_client_gets_an_error_in_the_middle_of_a_stream(
    client: openai.OpenAI, service: Service
) -> None:
    def crash() -> None:
        raise RuntimeError("boom")

    service.answerer.between = crash

    stream = client.chat.completions.create(
        model="default", messages=[{"role": "user", "content": "x"}], stream=True
    )

    with pytest.raises(openai.APIError, match="the service failed"):
        list(stream)


def test_the_asynchronous_openai_client_streams_too(url: str) -> None:
    async def ask() -> str:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="default", messages=[{"role": "user", "content": "E-0132?"}], stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(ask()) == "停机并检查冷却器。[1]"


@pytest.mark.parametrize("path", ["/v1/ask", "/v1/chat/completions"])
def test_a_client_that_leaves_a_stream_stops_the_answerer(service: Service, url: str, path: str) -> None:
    service.answerer.pieces = ["x"] * 1_000_000
    pause = threading.Event()
    service.answerer.between = lambda: _pause(pause)
    body = {"question": "x", "stream": True}
    if path != "/v1/ask":
        body = {"model": "default", "messages": [{"role": "user", "content": "x"}], "stream": True}

    with (
        httpx.Client(headers={"X-API-Key": KEY}, timeout=30) as client,
        client.stream("POST", url + path, json=body) as response,
    ):
        assert next(response.iter_text())

    assert service.answerer.closed.wait(30)


def test_a_slow_first_event_is_awaited_with_heartbeats(service: Service) -> None:
    go_on = threading.Event()
    service.answerer.before = lambda: _hold(go_on)
    app = service.build_app(heartbeat_s=0.01, first_event_patience_s=0.01)
    with (
        run_server(app) as url,
        httpx.Client(timeout=30) as client,
        client.stream("POST", f"{url}/v1/ask", json={"question": "x", "stream": True}) as response,
    ):
        texts = response.iter_text()
        first = next(texts)
        go_on.set()
        rest = "".join(texts)

    assert first.startswith(": keep-alive\n\n")
    assert [line for line in rest.splitlines() if line.startswith("event:")] == [
        "event: delta",
        "event: delta",
        "event: delta",
        "event: answer",
    ]


def test_an_error_after_a_slow_start_is_an_event(service: Service) -> None:
    go_on = threading.Event()

    def hold_and_fail() -> None:
        _hold(go_on)
        raise GeneratorUnavailableError("the runtime died")

    service.answerer.before = hold_and_fail
    app = service.build_app(first_event_patience_s=0.01)
    with (
        run_server(app) as url,
        httpx.Client(timeout=30) as client,
        client.stream("POST", f"{url}/v1/ask", json={"question": "x", "stream": True}) as response,
    ):
        assert response.status_code == 200
        go_on.set()
        text = response.read().decode()

    assert text.startswith("event: error\n")
    assert "runtime_unavailable" in text


def _hold(event: threading.Event) -> None:
    assert event.wait(30)


def test_a_client_that_leaves_before_the_first_event_stops_the_answerer(service: Service) -> None:
    started, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        started.set()
        assert go_on.wait(30)

    service.answerer.before = hold
    with run_server(service.build_app(first_event_patience_s=0.01)) as url:
        with (
            httpx.Client(timeout=30) as client,
            client.stream("POST", f"{url}/v1/ask", json={"question": "x", "stream": True}) as response,
        ):
            assert response.status_code == 200
        assert started.wait(30)
        # the answerer can only be stopped between two events
        go_on.set()
        assert service.answerer.closed.wait(30)


def test_a_client_that_leaves_a_plain_request_stops_the_answerer(service: Service, url: str) -> None:
    begun, pause = threading.Event(), threading.Event()

    def go_on() -> None:
        begun.set()
        _pause(pause)

    service.answerer.pieces = ["x"] * 1_000_000
    service.answerer.between = go_on
    body = b'{"question": "x"}'
    head = f"POST /v1/ask HTTP/1.1\r\nHost: kb\r\nX-API-Key: {KEY}\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection((httpx.URL(url).host, httpx.URL(url).port or 80)) as client:
        client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        assert begun.wait(60)

    assert service.answerer.closed.wait(60)


def _pause(event: threading.Event) -> None:
    event.wait(0.002)


def test_many_slow_answers_do_not_hold_up_health_and_other_routes(service: Service) -> None:
    go_on = threading.Event()
    waiting = threading.Semaphore(0)

    def hold() -> None:
        waiting.release()
        assert go_on.wait(60)

    service.answerer.before = hold
    count = 100
    with run_server(service.build_app(first_event_patience_s=0.01)) as url, ExitStack() as stack:
        client = stack.enter_context(httpx.Client(timeout=30, limits=httpx.Limits(max_connections=200)))
        streams = [
            stack.enter_context(
                client.stream("POST", f"{url}/v1/ask", json={"question": "x", "stream": True})
            )
            for _ in range(count)
        ]
        for _ in range(64):
            assert waiting.acquire(timeout=30)

        assert client.get(f"{url}/health/live").status_code == 200
        assert client.get(f"{url}/health/ready").status_code in {200, 503}
        assert client.get(f"{url}/v1/collections").status_code == 200
        uploaded = client.post(f"{url}/v1/collections/default/documents", files={"files": ("a", b"abc")})
        assert uploaded.status_code == 202

        go_on.set()
        ends = [stream.read().decode().rstrip().rsplit("\n\n", 1)[-1] for stream in streams]
    assert all(end.startswith("event: answer") for end in ends)


def test_a_stop_of_the_service_ends_open_streams_with_an_error(service: Service) -> None:
    service.answerer.pieces = ["x"] * 1_000_000
    pause = threading.Event()
    service.answerer.between = lambda: _pause(pause)
    app = service.build_app()

    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client(timeout=60))
        with run_server(app) as url:
            response = stack.enter_context(
                client.stream("POST", f"{url}/v1/ask", json={"question": "x", "stream": True})
            )
            texts = response.iter_text()
            next(texts)
            stopping = threading.Thread(target=_stop_streams)
            stopping.start()
            rest = "".join(texts)
            stopping.join()

    last = rest.rstrip().rsplit("\n\n", 1)[-1]
    assert last.startswith("event: error")
    assert json.loads(last.split("data: ", 1)[1])["error"]["code"] == "shutting_down"
    assert service.answerer.closed.wait(30)


def _stop_streams() -> None:
    """Do what the server does on SIGTERM, which only the main thread can receive."""
    from sse_starlette.sse import AppStatus

    AppStatus.should_exit = True


@pytest.fixture(autouse=True)
def _reset_shutdown() -> Iterator[None]:
    from sse_starlette.sse import AppStatus

    yield
    AppStatus.should_exit = False
