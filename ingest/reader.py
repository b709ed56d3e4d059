"""SubprocessReader: parses a file in disposable processes, so that a bad file or page ends only those."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from ingest.child_process import ChildEnd, EndedBy, run_child
from ingest.page_cache import PageCache
from ingest.page_store import PageStore
from ingest.parse_child import ParseRequest
from ingest.parsed_json import from_json
from kb.errors import (
    DamagedFileError,
    DocumentError,
    EmptyFileError,
    GarbledTextError,
    JobCancelledError,
    JobPausedError,
    NoTextFoundError,
    ParseMemoryError,
    ParseTimeoutError,
    PasswordProtectedError,
    TooManyPagesError,
    UnsupportedFormatError,
)
from kb.ports import AttachmentLimits, FoundAttachments, LeaveReason, LeftOut, ReadRequest
from kb.types import ParsedDocument

ERRORS: dict[str, type[DocumentError]] = {
    error.code: error
    for error in (
        DamagedFileError,
        EmptyFileError,
        GarbledTextError,
        NoTextFoundError,
        ParseMemoryError,
        ParseTimeoutError,
        PasswordProtectedError,
        TooManyPagesError,
        UnsupportedFormatError,
    )
}
_PAGE_ERRORS = {
    EndedBy.PAGE_TIME: ParseTimeoutError.code,
    EndedBy.MEMORY: ParseMemoryError.code,
    EndedBy.CRASH: DamagedFileError.code,
}
_MAX_DEATHS = 24
_MAX_DEADLY_ATTACHMENTS = 4
_MAX_TEXT_BYTES = 64 * 1024**2

_log = structlog.get_logger(__name__)


class SubprocessReader:
    """Starts a process per range of pages, or per document without pages; for any number of threads.

    A page that ends its process is left out with the warning `page_damaged`, once it has had a fresh
    process for itself. With a `cache` whatever was read is kept, and never read twice.
    """

    def __init__(
        self,
        *,
        timeout_s: float,
        memory_bytes: int,
        max_pages: int,
        ocr: bool,
        page_timeout_s: float = 120.0,
        max_text_bytes: int = _MAX_TEXT_BYTES,
        cache: PageCache | None = None,
        keep_from_s: float = 2.0,
    ) -> None:
        """`timeout_s` and `memory_bytes` hold for each process, `max_text_bytes` for the document.

        What was read in less than `keep_from_s` is not kept once the document is complete.
        """
        self._keep_from_s = keep_from_s
        self._timeout_s = timeout_s
        self._page_timeout_s = page_timeout_s
        self._memory_bytes = memory_bytes
        self._max_pages = max_pages
        self._max_text_bytes = max_text_bytes
        self._ocr = ocr
        self._cache = cache

    def read(self, request: ReadRequest) -> ParsedDocument:
        """See the port; `memory_bytes` comes on top of what the libraries map when they are loaded."""
        if not request.path.is_file():
            raise DamagedFileError(
                f"the stored bytes of {request.name!r} are gone", next_step="Upload the file again."
            )
        if request.is_cancelled():
            raise JobCancelledError(f"parsing of {request.name!r} was cancelled")
        with self._open_store(request.path) as (folder, is_kept):
            store = PageStore(folder)
            # What an encrypted file says is given to nobody without the password.
            kept = store.find_parsed() if is_kept and request.password is None else None
            if kept is not None:
                request.progress(len(kept.pages), len(kept.pages))
                return kept
            started_s = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="kb-parse-") as scratch:
                task = self._describe(request, scratch=scratch, pages_folder=str(folder.absolute()))
                raw = self._read_ranges(task, request, store, is_kept=is_kept)
            if is_kept:
                if time.monotonic() - started_s < self._keep_from_s:
                    store.clear()
                elif request.password is None:
                    store.save_parsed(raw)
        if self._cache is not None:
            self._cache.prune()
        return from_json(raw)

    def read_attachments(
        self, request: ReadRequest, *, limits: AttachmentLimits, folder: Path
    ) -> FoundAttachments:
        """See the port; an attachment that ends the process is left out by the next one."""
        if request.is_cancelled():
            raise JobCancelledError(f"taking attachments out of {request.name!r} was cancelled")
        with tempfile.TemporaryDirectory(prefix="kb-parse-") as scratch:
            task = replace(
                self._describe(request, scratch=scratch, pages_folder=scratch),
                ocr=False,
                attachments_folder=str(folder.absolute()),
                max_attachments=limits.max_count,
                max_attachment_bytes=limits.max_bytes,
                max_attachments_bytes=limits.max_total_bytes,
            )
            found = self._extract(task, request)
        return FoundAttachments(
            files=tuple((name, folder / str(index)) for index, name in enumerate(found["taken"])),
            left_out=tuple(LeftOut(name, LeaveReason(reason)) for name, reason in found["left_out"]),
            skipped=tuple(LeftOut(name, LeaveReason(reason)) for name, reason in found["skipped"]),
        )

    def _describe(self, request: ReadRequest, *, scratch: str, pages_folder: str) -> ParseRequest:
        """Return the request in the form that a process takes."""
        return ParseRequest(
            path=str(request.path.absolute()),
            name=request.name,
            result_path=str(Path(scratch) / "result.json"),
            memory_bytes=self._memory_bytes,
            max_pages=self._max_pages,
            ocr=self._ocr,
            pages_folder=pages_folder,
            max_text_bytes=self._max_text_bytes,
            password=request.password,
        )

    def _run(self, task: ParseRequest, request: ReadRequest) -> ChildEnd:
        return run_child(
            task,
            timeout_s=self._timeout_s,
            page_timeout_s=min(self._page_timeout_s, self._timeout_s),
            progress=request.progress,
            is_cancelled=request.is_cancelled,
            should_pause=request.should_pause,
        )

    def _extract(self, task: ParseRequest, request: ReadRequest) -> dict[str, Any]:
        """Run processes until one has gone through all attachments; returns what `extract` returned."""
        unwatched = replace(request, progress=_ignore, should_pause=_never)
        while True:
            end = self._run(task, unwatched)
            outcome = end.outcome or {}
            if "error" in outcome:
                raise _to_error(outcome["error"])
            if "attachments" in outcome:
                found: dict[str, Any] = outcome["attachments"]
                return found
            unreadable = (*task.unreadable_attachments, end.page)
            if not end.page or end.ended_by is EndedBy.TIME or len(unreadable) > _MAX_DEADLY_ATTACHMENTS:
                raise self._as_error(end, task)
            _log.warning("attachment_ended_its_process", number=end.page, detail=end.detail)
            task = replace(task, unreadable_attachments=unreadable)

    def _read_ranges(
        self, task: ParseRequest, request: ReadRequest, store: PageStore, *, is_kept: bool
    ) -> dict[str, Any]:
        """Run processes until one has the whole document; returns it in the form of `ingest.parsed_json`."""
        if not is_kept:
            request = replace(request, should_pause=_never)
        damaged = store.load_damaged()
        pages_read = deaths = suspect = 0
        while True:
            store.drop_torn_line()
            if pages_read > 0 and request.should_pause():
                raise JobPausedError(f"parsing of {request.name!r} goes on later")
            end = self._run(task, request)
            pages_read += end.pages_read
            outcome = end.outcome or {}
            if "document" in outcome:
                document: dict[str, Any] = outcome["document"]
                return document
            if "error" in outcome:
                raise _to_error(outcome["error"])
            if outcome.get("more") or end.ended_by is EndedBy.PAUSE:
                continue
            page = int(outcome.get("bad_page", end.page))
            code = ParseMemoryError.code if "bad_page" in outcome else _PAGE_ERRORS.get(end.ended_by)
            deaths += 1
            if not page or code is None or deaths > _MAX_DEATHS:
                raise self._as_error(end, task)
            _log.warning("page_ended_its_process", page_number=page, code=code, detail=end.detail)
            # Another page may be to blame that was read before in the same process, unless time ran out.
            if end.pages_read and page != suspect and code != ParseTimeoutError.code:
                suspect = page
                continue
            damaged[page] = code
            store.save_damaged(damaged)

    @contextlib.contextmanager
    def _open_store(self, path: Path) -> Iterator[tuple[Path, bool]]:
        """Yield a folder for what is read, and whether it outlives this call."""
        if self._cache is not None:
            # The limits decide which pages count as damaged.
            variant = f"ocr={self._ocr} {self._memory_bytes} {self._timeout_s:g} {self._page_timeout_s:g}"
            with self._cache.open(path, variant=variant) as folder:
                if folder is not None:
                    yield folder, True
                    return
        with tempfile.TemporaryDirectory(prefix="kb-pages-") as folder_name:
            yield Path(folder_name), False

    def _as_error(self, end: ChildEnd, task: ParseRequest) -> DocumentError:
        name = task.name
        if end.ended_by in (EndedBy.TIME, EndedBy.PAGE_TIME):
            return ParseTimeoutError(f"parsing {name!r} took longer than {self._timeout_s:g} s")
        if end.ended_by is EndedBy.CRASH:
            return DamagedFileError(f"parsing {name!r} ended its process ({end.detail})")
        return ParseMemoryError(f"{name!r} needs more memory than {task.memory_bytes} bytes")


def _ignore(pages_done: int, page_count: int) -> None:
    """Take progress and do nothing."""


def _never() -> bool:
    return False


def _to_error(raw: dict[str, str]) -> DocumentError:
    """Return the error that the process has told."""
    return ERRORS.get(raw["code"], DocumentError)(raw["message"], next_step=raw["next_step"])
