"""A small OpenAI-style runtime over real HTTP that plays back what a test wrote down for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL_LIST = {"object": "list", "data": [{"id": "qwen-test", "object": "model", "max_model_len": 8192}]}


def delta(text: str, *, finish: str | None = None) -> dict[str, Any]:
    """Return a chunk of a streamed chat completion."""
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 17, "completion_tokens": 3}}
ANSWER: Sequence[object] = (
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
    delta("清洗"),
    delta("冷却器 [1]"),
    delta("。", finish="stop"),
    USAGE,
    "[DONE]",
)


@dataclass(slots=True)
class Runtime:
    """What the server answers, and what it was asked.

    A string in `events` is sent as it is after `data: `, `...` keeps sending until the client leaves,
    `None` breaks the connection off. `refusals` are the states of the first requests, before `status`.
    `info` is what SGLang says about itself; None for a runtime that does not.
    """

    url: str = ""
    events: Sequence[object] = ANSWER
    status: int = 200
    error_body: str = ""
    models: object = field(default_factory=lambda: MODEL_LIST)
    models_status: int = 200
    info: object = None
    refusals: list[int] = field(default_factory=list)
    model_lookups: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    first_event: threading.Event = field(default_factory=threading.Event)
    client_left: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.first_event.set()


@contextmanager
def serve_runtime() -> Iterator[Runtime]:
    """Run the server on a free loopback port."""
    runtime = Runtime()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            if self.path.endswith("/server_info"):
                self._reply(404 if runtime.info is None else 200, json.dumps(runtime.info))
                return
            runtime.model_lookups += 1
            self._reply(runtime.models_status, json.dumps(runtime.models))

        def do_POST(self) -> None:
            runtime.headers.append({name.lower(): value for name, value in self.headers.items()})
            runtime.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status = runtime.refusals.pop(0) if runtime.refusals else runtime.status
            if status != 200:
                self._reply(status, runtime.error_body)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.flush()
            runtime.first_event.wait(30)
            try:
                self._play()
            except OSError:
                runtime.client_left.set()

        def _play(self) -> None:
            for event in runtime.events:
                if event is None:
                    return
                while event is ...:
                    self._send(json.dumps(delta("x" * 4096)))
                self._send(event if isinstance(event, str) else json.dumps(event))

        def _send(self, data: str) -> None:
            self.wfile.write(f": keep-alive\ndata: {data}\n\n".encode())
            self.wfile.flush()

        def _reply(self, status: int, body: str) -> None:
            data = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    runtime.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield runtime
    finally:
        runtime.first_event.set()
        server.shutdown()
        thread.join()
        server.server_close()
