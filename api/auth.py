"""One static key for the whole API, checked before anything of the request is read.

Without a configured key everything is open. With one, every path needs it but the open ones
below: a path that is forgotten here is closed. `/metrics` is also open to clients on this very
machine, so that a local Prometheus needs no secret; a request that came through a proxy doesn't
count as local.
"""

from __future__ import annotations

import hmac
import ipaddress

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.errors import InvalidApiKeyError, build_error, build_response, get_request_id, get_status

OPEN_PATHS = frozenset({"/", "/docs", "/openapi.json", "/health/live", "/health/ready"})
OPEN_PREFIX = "/docs/"
METRICS_PATH = "/metrics"

_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


class ApiKeyGate:
    """Lets a request pass that carries the key as bearer token or in `X-API-Key`."""

    def __init__(self, app: ASGIApp, *, api_key: str) -> None:
        self._app = app
        self._api_key = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, or pass the request on."""
        if scope["type"] != "http" or self._is_allowed(scope):
            await self._app(scope, receive, send)
            return
        error = InvalidApiKeyError("the API key is missing or wrong")
        body = build_error(error, request_id=get_request_id(Request(scope)))
        await build_response(get_status(type(error)), body)(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        path = scope["path"]
        if path in OPEN_PATHS or path.startswith(OPEN_PREFIX):
            return True
        headers = Headers(scope=scope)
        if path == METRICS_PATH and _is_local(scope, headers):
            return True
        matches = [hmac.compare_digest(key, self._api_key) for key in _read_keys(headers)]
        return any(matches)


def _read_keys(headers: Headers) -> list[bytes]:
    keys = [headers.get("x-api-key", "")]
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        keys.append(token.strip())
    # headers are decoded as Latin-1; a key in UTF-8 compares by its bytes
    return [key.encode("latin-1") for key in keys]


def _is_local(scope: Scope, headers: Headers) -> bool:
    client = scope.get("client")
    if client is None or any(name in headers for name in _PROXY_HEADERS):
        return False
    try:
        return ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False
