"""Errors on the wire: one table from error class to HTTP status, one shape for every failure."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from kb.errors import (
    AccessDeniedError,
    AnswerNotFoundError,
    BackendError,
    CallerError,
    CodeUnknownError,
    CollectionExistsError,
    CollectionNotFoundError,
    ConfigurationError,
    DocumentError,
    DocumentNotFoundError,
    InvalidApiKeyError,
    InvalidNameError,
    JobCancelledError,
    JobNotFoundError,
    JobPausedError,
    JobStateError,
    KbError,
    KeyNotFoundError,
    LastAdminKeyError,
    NotCalibratedError,
    NothingInScopeError,
    PageNotFoundError,
    QuestionTooLongError,
    UnsupportedFormatError,
    UploadTooLargeError,
)
from kb.schemas import DifyErrorOut, ErrorDetail, ErrorOut

RETRY_AFTER_S: Final = 5
DIFY_PREFIX: Final = "/dify"
"""Errors under this path have the shape that Dify reads."""
DIFY_BAD_AUTHORIZATION: Final = 1001

_log = structlog.get_logger("api.errors")


class ModelNotFoundError(CollectionNotFoundError):
    """No collection has the name that was sent as `model`."""

    code = "model_not_found"


class MalformedUploadError(CallerError):
    """The body is not a multipart form with at least one file."""

    code = "malformed_upload"
    next_step = "Send multipart/form-data with the files in the field `files`."


class ShuttingDownError(BackendError):
    """The service is being stopped and can't finish the answer."""

    code = "shutting_down"


STATUSES: Final[dict[type[KbError], HTTPStatus]] = {
    KbError: HTTPStatus.INTERNAL_SERVER_ERROR,
    CallerError: HTTPStatus.BAD_REQUEST,
    InvalidApiKeyError: HTTPStatus.UNAUTHORIZED,
    AccessDeniedError: HTTPStatus.FORBIDDEN,
    KeyNotFoundError: HTTPStatus.NOT_FOUND,
    LastAdminKeyError: HTTPStatus.CONFLICT,
    CollectionNotFoundError: HTTPStatus.NOT_FOUND,
    ModelNotFoundError: HTTPStatus.NOT_FOUND,
    CollectionExistsError: HTTPStatus.CONFLICT,
    DocumentNotFoundError: HTTPStatus.NOT_FOUND,
    PageNotFoundError: HTTPStatus.NOT_FOUND,
    CodeUnknownError: HTTPStatus.NOT_FOUND,
    NothingInScopeError: HTTPStatus.NOT_FOUND,
    NotCalibratedError: HTTPStatus.NOT_FOUND,
    AnswerNotFoundError: HTTPStatus.NOT_FOUND,
    JobNotFoundError: HTTPStatus.NOT_FOUND,
    JobStateError: HTTPStatus.CONFLICT,
    InvalidNameError: HTTPStatus.BAD_REQUEST,
    MalformedUploadError: HTTPStatus.BAD_REQUEST,
    UploadTooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    QuestionTooLongError: HTTPStatus.BAD_REQUEST,
    DocumentError: HTTPStatus.UNPROCESSABLE_ENTITY,
    UnsupportedFormatError: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    BackendError: HTTPStatus.SERVICE_UNAVAILABLE,
    JobCancelledError: HTTPStatus.CONFLICT,
    JobPausedError: HTTPStatus.CONFLICT,
    ConfigurationError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""The status of a class, or of the nearest class above it."""

# As Dify's documentation numbers them; what it has no number for is the status.
_DIFY_CODES: Final = {"invalid_api_key": 1002, "access_denied": 1002, "collection_not_found": 2001}
# Dify takes 404 for a wrong address, and anything but 403 for a key that works.
_DIFY_STATUSES: Final = {401: 403, 404: 400}
_HTTP_CODES: Final = {
    400: "invalid_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    422: "invalid_request",
}
_MAX_LOCATION = 100


def get_status(kind: type[KbError]) -> int:
    """Return the HTTP status of an error class."""
    return next(int(STATUSES[base]) for base in kind.__mro__ if base in STATUSES)


def build_error(error: KbError, *, request_id: str) -> ErrorOut:
    """Return what the client is told about an error."""
    return _build(
        get_status(type(error)),
        code=error.code,
        message=error.message,
        next_step=error.next_step,
        request_id=request_id,
        suggestions=error.suggestions,
    )


def build_crash(*, request_id: str) -> ErrorOut:
    """Return what the client is told about an error that nobody expected."""
    return _build(
        500,
        code="internal_error",
        message="the service failed",
        next_step="Give the operator the request id: the log names the place.",
        request_id=request_id,
    )


def build_response(
    status: int, body: ErrorOut, *, path: str = "", dify_code: int | None = None
) -> JSONResponse:
    """Return an error as a response, with the headers that belong to its status.

    The shape is that of the path; `dify_code` is the number for Dify where the code does not tell it.
    """
    headers = {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if path.startswith(f"{DIFY_PREFIX}/"):
        number = dify_code or _DIFY_CODES.get(body.error.code, status)
        message = f"{body.error.message} {body.error.next_step}".strip()
        shown = DifyErrorOut(error_code=number, error_msg=message)
        return JSONResponse(shown.model_dump(), _DIFY_STATUSES.get(status, status), headers=headers)
    return JSONResponse(body.model_dump(), status_code=status, headers=headers)


def get_request_id(request: Request) -> str:
    """Return the id that the request context gave to this request."""
    return str(request.scope.get("state", {}).get("request_id", ""))


def install_error_handlers(app: FastAPI) -> None:
    """Make every error of the routes leave in the one shape."""
    app.add_exception_handler(KbError, _handle_ours)
    app.add_exception_handler(RequestValidationError, _handle_validation)
    app.add_exception_handler(HTTPException, _handle_http)


def document_errors(*kinds: type[KbError]) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route that may fail with these, and in the ways that all may."""
    described: dict[int, list[str]] = {}
    common: Sequence[type[KbError]] = (InvalidApiKeyError, AccessDeniedError, BackendError)
    for kind in (*kinds, *common):
        described.setdefault(get_status(kind), []).append(f"`{kind.code}`: {kind.__doc__}")
    described.setdefault(500, []).append("`internal_error`: The service failed; its log says where.")
    described.setdefault(422, []).append("`invalid_request`: A parameter or field is missing or wrong.")
    return {
        status: {"model": ErrorOut, "description": "\n\n".join(lines)}
        for status, lines in sorted(described.items())
    }


def document_dify_errors() -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route for Dify."""
    texts = {
        400: "`2001`: No collection has this name. `400`: The body is wrong.",
        403: "`1001`: No key in `Authorization`. `1002`: The key is wrong or does not open this collection.",
        422: "`422`: A parameter is wrong.",
        500: "`500`: The service failed; its log says where.",
        503: "`503`: A dependency is down.",
    }
    return {status: {"model": DifyErrorOut, "description": text} for status, text in texts.items()}


def describe_validation(errors: Sequence[Any]) -> str:
    """Return which fields are wrong, without what was sent."""
    return "; ".join(f"{'.'.join(map(str, item['loc']))[:_MAX_LOCATION]}: {item['msg']}" for item in errors)


async def _handle_ours(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, KbError)
    status = get_status(type(error))
    if status >= 500:
        _log.error("request_failed", code=error.code, exc_info=error)
    body = build_error(error, request_id=get_request_id(request))
    return build_response(status, body, path=request.url.path)


async def _handle_validation(request: Request, error: Exception) -> JSONResponse:
    """Name the fields and what is wrong with them; never repeat what was sent."""
    assert isinstance(error, RequestValidationError)
    problems = [(_format_location(item["loc"]), str(item["msg"])) for item in error.errors()]
    body = _build(
        422,
        code="invalid_request",
        message="; ".join(f"{place}: {reason}" for place, reason in problems),
        next_step="Compare the request with the description in /docs.",
        param=problems[0][0] if problems else None,
        request_id=get_request_id(request),
    )
    return build_response(422, body, path=request.url.path)


async def _handle_http(request: Request, error: Exception) -> JSONResponse:
    """Give the framework's own errors (unknown route, wrong method, broken body) the same shape."""
    assert isinstance(error, HTTPException)
    body = _build(
        error.status_code,
        code=_HTTP_CODES.get(error.status_code, "http_error"),
        message=HTTPStatus(error.status_code).phrase.lower(),
        next_step="Compare method, path and body with the description in /docs.",
        request_id=get_request_id(request),
    )
    response = build_response(error.status_code, body, path=request.url.path)
    response.headers.update(error.headers or {})
    return response


def _format_location(location: Sequence[Any]) -> str:
    # the first part says body, query or path; positions in broken JSON help nobody
    parts = [
        str(part)
        for part in location[1:]
        if not (location[0] == "body" and len(location) == 2 and isinstance(part, int))
    ]
    return ".".join(parts)[:_MAX_LOCATION] or str(location[0])


def _build(
    status: int,
    *,
    code: str,
    message: str,
    next_step: str,
    request_id: str,
    param: str | None = None,
    suggestions: Sequence[str] = (),
) -> ErrorOut:
    return ErrorOut(
        error=ErrorDetail(
            code=code,
            message=message,
            next_step=next_step,
            type=_get_type(status),
            param=param,
            request_id=request_id,
            suggestions=list(suggestions),
        )
    )


def _get_type(status: int) -> str:
    if status == HTTPStatus.UNAUTHORIZED:
        return "authentication_error"
    if status == HTTPStatus.FORBIDDEN:
        return "permission_error"
    return "server_error" if status >= 500 else "invalid_request_error"
