"""What happens around every request: an id, a log line, a count, and a limit on its size."""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import build_crash, build_response
from kb.logs import bind_ids
from kb.metrics import Metrics

REQUEST_ID_HEADER = "X-Request-ID"
CLIENT_LEFT_STATUS = 499

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_QUIET_ROUTES = frozenset({"/health/live", "/health/ready", "/metrics"})
_UNMATCHED = "unmatched"
_MAX_PATH = 200
# decided by path, not by content type, which the client chooses
_UPLOAD_PATH = re.compile(r"/v1/collections/[^/]+/documents")

_log = structlog.get_logger("api.access")


@dataclass(slots=True)
class _Progress:
    """How far the response has come; status 499 means that nobody was there to get one."""

    status: int = CLIENT_LEFT_STATUS
    started: bool = False
    finished: bool = False


class RequestContext:
    """Outermost layer: gives the request its id, logs and counts it, catches what nobody caught.

    A valid `X-Request-ID` of the client is kept, any other replaced. Bodies and query strings are
    never logged.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and account for it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _choose_request_id(Headers(scope=scope).get(REQUEST_ID_HEADER))
        scope.setdefault("state", {})["request_id"] = request_id
        progress = _Progress()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
                progress.started, progress.status = True, message["status"]
            elif message["type"] == "http.response.body" and not message.get("more_body"):
                progress.finished = True
            await send(message)

        started_at = time.perf_counter()
        self._metrics.start_request()
        with bind_ids(request_id=request_id):
            try:
                await self._app(scope, receive, send_with_id)
            except ClientDisconnect:
                pass
            except Exception:
                _log.exception("request_crashed")
                if not progress.started:
                    response = build_response(500, build_crash(request_id=request_id), path=scope["path"])
                    await response(scope, receive, send_with_id)
            finally:
                self._finish(scope, progress, time.perf_counter() - started_at)

    def _finish(self, scope: Scope, progress: _Progress, seconds: float) -> None:
        template = getattr(scope.get("route"), "path", None) or _UNMATCHED
        # an unknown method would be one more label each
        method = scope["method"] if template != _UNMATCHED else "ANY"
        self._metrics.finish_request(method=method, route=template, status=progress.status, seconds=seconds)
        log = _log.debug if template in _QUIET_ROUTES else _log.info
        client = scope.get("client")
        log(
            "request",
            method=scope["method"],
            path=scope["path"][:_MAX_PATH],
            route=template,
            status=progress.status,
            duration_ms=round(seconds * 1000, 1),
            client=client[0] if client else "",
            complete=progress.finished,
        )


class BodyLimit:
    """Refuses bodies over `max_bytes` with 413, except on uploads, which have limits of their own."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; its body can be read up to the limit."""
        if scope["type"] != "http" or _UPLOAD_PATH.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise HTTPException(413)
            return message

        await self._app(scope, receive_limited, send)


def _choose_request_id(sent: str | None) -> str:
    return sent if sent and _REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex
