"""Files out of a multipart body, one at a time, in bounded memory and off the event loop.

The framework's own form parser drops `filename*`, and takes in a file of any size before the
application sees it; here a file stops being stored at its limit, and is handed on as soon as its
last byte is there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from api.errors import MalformedUploadError
from kb.filenames import clean_filename, find_disposition_filename

FIELDS = frozenset({b"files", b"file", b"files[]"})
PASSWORD_FIELD = b"password"
MAX_FILES = 1000
MAX_PASSWORD_BYTES = 1024

_IN_MEMORY_BYTES = 1024 * 1024


@dataclass(slots=True)
class IncomingFile:
    """One file of the form, at its first byte; `too_large` means that the rest was thrown away."""

    name: str
    stream: BinaryIO
    password: str | None = field(default=None, repr=False)
    size_bytes: int = 0
    too_large: bool = False


async def iter_uploads(
    request: Request, *, max_file_bytes: int, spool_dir: Path | None, limiter: CapacityLimiter
) -> AsyncIterator[IncomingFile]:
    """Yield the files in the order of the form; each is closed when the next one is asked for.

    A field `password` belongs to all files of the form; as these are handed on one by one, it must
    come before them. It stays in memory. Raises `MalformedUploadError`. Parts of other names are
    ignored.
    """
    parts = _Parts()
    parser = _open_parser(request, parts)
    current: IncomingFile | None = None
    secret: bytearray | None = None
    password: str | None = None
    count = 0
    try:
        async for piece in request.stream():
            _feed(parser, piece)
            for kind, data in parts.take():
                if kind == "begin" and (name := _find_name(data)) is not None:
                    count += 1
                    if count > MAX_FILES:
                        raise MalformedUploadError(f"more than {MAX_FILES} files in one request")
                    current = IncomingFile(name, _open_spool(spool_dir), password)
                elif kind == "begin" and _is_password(data):
                    if count:
                        raise MalformedUploadError(
                            "the field `password` comes after a file",
                            next_step="Send `password` before the files that it opens.",
                        )
                    secret = bytearray()
                elif kind == "data" and secret is not None:
                    secret += data
                    if len(secret) > MAX_PASSWORD_BYTES:
                        raise MalformedUploadError(f"a password has more than {MAX_PASSWORD_BYTES} bytes")
                elif kind == "end" and secret is not None:
                    password, secret = _decode_password(secret), None
                elif kind == "data" and current is not None:
                    await _store(current, data, max_file_bytes=max_file_bytes, limiter=limiter)
                elif kind == "end" and current is not None:
                    current.stream.seek(0)
                    yield current
                    current.stream.close()
                    current = None
        if not parts.complete:
            raise MalformedUploadError("the form ends in the middle")
    finally:
        if current is not None:
            current.stream.close()


class _Parts:
    """Collects what the parser finds, so that slow work is done outside its callbacks."""

    def __init__(self) -> None:
        self.complete = False
        self._found: list[tuple[str, bytes]] = []
        self._header_name = b""
        self._header_value = b""
        self._disposition = b""

    def take(self) -> list[tuple[str, bytes]]:
        """Return (kind, data) in order: begin with the disposition header, data, end."""
        found, self._found = self._found, []
        return found

    def get_callbacks(self) -> dict[str, Callable[..., None]]:
        return {
            "on_part_begin": self._begin_part,
            "on_header_field": self._add_header_name,
            "on_header_value": self._add_header_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": self._add_data,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }

    def _begin_part(self) -> None:
        self._disposition = self._header_name = self._header_value = b""

    def _add_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _add_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = self._header_value
        self._header_name = self._header_value = b""

    def _end_headers(self) -> None:
        self._found.append(("begin", self._disposition))

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self._found.append(("data", data[start:end]))

    def _end_part(self) -> None:
        self._found.append(("end", b""))

    def _end(self) -> None:
        self.complete = True


def _open_parser(request: Request, parts: _Parts) -> MultipartParser:
    kind, parameters = parse_options_header(request.headers.get("content-type"))
    boundary = parameters.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise MalformedUploadError("the request is not a multipart form")
    try:
        return MultipartParser(boundary, parts.get_callbacks())  # type: ignore[arg-type]  # a TypedDict there
    except FormParserError as error:
        raise MalformedUploadError("the boundary of the form is not usable") from error


def _feed(parser: MultipartParser, piece: bytes) -> None:
    try:
        parser.write(piece)
    except FormParserError as error:
        raise MalformedUploadError("the body is not a valid multipart form") from error


def _find_name(disposition: bytes) -> str | None:
    """Return the clean name if this part is a file in one of our fields."""
    _, parameters = parse_options_header(disposition)
    raw = find_disposition_filename(disposition)
    if raw is None or parameters.get(b"name") not in FIELDS:
        return None
    return clean_filename(raw)


def _is_password(disposition: bytes) -> bool:
    _, parameters = parse_options_header(disposition)
    return parameters.get(b"name") == PASSWORD_FIELD


def _decode_password(secret: bytearray) -> str | None:
    try:
        return secret.decode("utf-8") or None
    except UnicodeDecodeError:
        # the bytes must not be quoted, not even by way of the cause
        raise MalformedUploadError("the field `password` is not UTF-8") from None


def _open_spool(spool_dir: Path | None) -> BinaryIO:
    folder = str(spool_dir) if spool_dir else None
    spool = SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES, dir=folder)  # noqa: SIM115 - closed by the loop
    return cast("BinaryIO", spool)


async def _store(
    current: IncomingFile, data: bytes, *, max_file_bytes: int, limiter: CapacityLimiter
) -> None:
    current.size_bytes += len(data)
    if current.size_bytes > max_file_bytes:
        current.too_large = True
        return
    if current.size_bytes <= _IN_MEMORY_BYTES:
        current.stream.write(data)
    else:
        await run_sync(current.stream.write, data, limiter=limiter)
