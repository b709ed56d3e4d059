"""Finds out who sent a request, before anything of it is read.

Every path needs a caller but the open ones below: a path that is forgotten here is closed.
`/metrics` is also open to clients on this very machine, so that a local Prometheus needs no secret;
a request that came through a proxy doesn't count as local. What the caller may do is for
`api.access`.
"""

from __future__ import annotations

import ipaddress

import anyio
import anyio.to_thread
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.errors import DIFY_BAD_AUTHORIZATION, build_error, build_response, get_request_id, get_status
from kb.access import LOCAL_CALLER, Caller
from kb.errors import KbError
from kb.keyring import KeyRing

OPEN_PATHS = frozenset({"/", "/docs", "/openapi.json", "/health/live", "/health/ready"})
OPEN_PREFIX = "/docs/"
METRICS_PATH = "/metrics"

_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
_THREADS = 32


class ApiKeyGate:
    """Lets a request pass whose key is valid, and notes whose it is."""

    def __init__(self, app: ASGIApp, *, keys: KeyRing) -> None:
        self._app = app
        self._keys = keys
        self._limiter = anyio.CapacityLimiter(_THREADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, or pass the request on."""
        if scope["type"] != "http" or _is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._find_caller(scope)
        except KbError as error:
            body = build_error(error, request_id=get_request_id(Request(scope)))
            sent = any(_read_keys(Headers(scope=scope)))
            response = build_response(
                get_status(type(error)),
                body,
                path=scope["path"],
                dify_code=None if sent else DIFY_BAD_AUTHORIZATION,
            )
            await response(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)

    async def _find_caller(self, scope: Scope) -> Caller:
        headers = Headers(scope=scope)
        is_local = _is_local(scope, headers)
        if is_local and scope["path"] == METRICS_PATH:
            return LOCAL_CALLER

        def authenticate() -> Caller:
            return self._keys.authenticate(_read_keys(headers), is_local=is_local)

        return await anyio.to_thread.run_sync(authenticate, limiter=self._limiter)


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIX)


def _read_keys(headers: Headers) -> list[str]:
    keys = [headers.get("x-api-key", "")]
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        keys.append(token.strip())
    # headers are decoded as Latin-1; a key in UTF-8 compares by its bytes
    return [key.encode("latin-1").decode("utf-8", "surrogateescape") for key in keys]


def _is_local(scope: Scope, headers: Headers) -> bool:
    client = scope.get("client")
    if client is None or any(name in headers for name in _PROXY_HEADERS):
        return False
    try:
        return ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False
