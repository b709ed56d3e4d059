"""The disposable process that parses a file or a range of its pages: `python -m ingest.parse_child`.

SubprocessReader starts it. It reads one line of JSON (`ParseRequest`) from its input, writes lines to its
output (`@N` before page N is read, `@0` before anything that concerns the whole document, `done total`
after each page) and the outcome as JSON to the file `result_path`. Anything more on its input asks it to
stop after the current page. It ends by itself when its input is closed, so that it never outlives its
parent.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from ingest.formats import CSV, DOCX, EMAIL, HTML, IMAGES, MARKDOWN, PDF, PPTX, XLSX, XML, detect_media_type
from ingest.lines import PageContent
from ingest.page_store import PageStore, count_text_bytes
from ingest.paged import PagedParser, PageSource, damaged_page
from ingest.parsed_json import to_json
from kb.errors import (
    DamagedFileError,
    DocumentError,
    ParseMemoryError,
    ParseTimeoutError,
    TooManyPagesError,
)
from kb.offline import go_offline
from kb.ports import AttachmentLimits, Parser

MAX_OPEN_FILES = 128
MAX_OUTPUT_BYTES = 1024**3
OCR_THREADS = 2
# A range is 64 pages of text or 8 that need OCR, whose libraries keep what each page made them allocate.
RANGE_COST = 64
OCR_PAGE_COST = 8
_REASONS = {
    ParseTimeoutError.code: "it takes too long",
    ParseMemoryError.code: "it needs too much memory",
    DamagedFileError.code: "it ends the process that reads it",
}
# Many pages laid out beside the OCR models would not fit in the memory limit.
_MAX_PAGES_BESIDE_READING = 256


@dataclass(frozen=True, slots=True)
class ParseRequest:
    """What to parse and within which limits.

    With `attachments_folder` the file is not read: what is attached to it is written there.
    """

    path: str
    name: str
    result_path: str
    memory_bytes: int
    max_pages: int
    ocr: bool
    pages_folder: str
    max_text_bytes: int
    password: str | None = None
    attachments_folder: str = ""
    max_attachments: int = 0
    max_attachment_bytes: int = 0
    max_attachments_bytes: int = 0
    unreadable_attachments: tuple[int, ...] = ()

    def to_line(self) -> str:
        """Return the request as one line of JSON."""
        return json.dumps(asdict(self)) + "\n"


def build_parser(media_type: str, *, max_pages: int, ocr: bool) -> Parser:
    """Return the parser of a media type that `detect_media_type` returns."""
    if media_type == PDF or media_type in IMAGES:
        from ingest.ocr import OcrEngine

        engine = OcrEngine(threads=OCR_THREADS) if ocr else None
        if media_type == PDF:
            from ingest.parsers.pdf import PdfParser

            return PdfParser(engine=engine, max_pages=max_pages)
        from ingest.parsers.image import ImageParser

        return ImageParser(media_type=media_type, engine=engine, max_pages=max_pages)
    match media_type:
        case _ if media_type == DOCX:
            from ingest.parsers.docx import DocxParser

            return DocxParser()
        case _ if media_type == XLSX:
            from ingest.parsers.xlsx import XlsxParser

            return XlsxParser(max_pages=max_pages)
        case _ if media_type == PPTX:
            from ingest.parsers.pptx import PptxParser

            return PptxParser(max_pages=max_pages)
        case _ if media_type == CSV:
            from ingest.parsers.csv import CsvParser

            return CsvParser()
        case _ if media_type in (HTML, XML):
            from ingest.parsers.html import HtmlParser

            return HtmlParser(media_type=media_type)
        case _ if media_type == MARKDOWN:
            from ingest.parsers.markdown import MarkdownParser

            return MarkdownParser()
        case _ if media_type == EMAIL:
            from ingest.parsers.email import EmailParser

            return EmailParser()
        case _:
            from ingest.parsers.text import TextParser

            return TextParser()


def limit_process(*, memory_bytes: int) -> None:
    """Set the limits of this process.

    The address space may grow by `memory_bytes` over what the interpreter and the libraries loaded
    so far have mapped, as mapped libraries are no memory of the document. OCR is loaded later and
    counts: a page at 200 dpi fits in 1.5 GiB and not in 1 GiB (measured with rapidocr 3.10).
    """
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    _lower(resource.RLIMIT_FSIZE, MAX_OUTPUT_BYTES)
    _lower(resource.RLIMIT_AS, _mapped_bytes() + memory_bytes)


class Progress:
    """What the process tells its parent while it works."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def begin_page(self, page_number: int) -> None:
        """Say which page is read from now on; 0 for the document as a whole."""
        self._say(f"@{page_number}")

    def report(self, done: int, total: int) -> None:
        """Say how many pages are read."""
        self._say(f"{done} {total}")

    def _say(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


def parse(request: ParseRequest, progress: Progress, *, should_stop: Callable[[], bool]) -> dict[str, Any]:
    """Return the outcome.

    `{"document": …}`, `{"attachments": …}` as `ingest.extraction` returns it,
    `{"error": {code, message, next_step}}`, or, of a file that is read in ranges,
    `{"more": true}` and `{"bad_page": number}`: a page that this process had no memory for.
    """
    path = Path(request.path)
    try:
        media_type = detect_media_type(path, request.name)
        if request.attachments_folder:
            return {"attachments": _extract(request, media_type, progress)}
        parser = build_parser(media_type, max_pages=request.max_pages, ocr=request.ocr)
        limit_process(memory_bytes=request.memory_bytes)
        if isinstance(parser, PagedParser):
            return _parse_range(parser, request, progress, should_stop)
        parsed = parser.parse(path, name=request.name, password=request.password, progress=progress.report)
        if (
            sum(len(page.text.encode("utf-8", "surrogatepass")) for page in parsed.pages)
            > request.max_text_bytes
        ):
            raise _too_much_text(request)
        return {"document": to_json(parsed)}
    except Exception as error:
        return _error(_as_document_error(error, request))


def _extract(request: ParseRequest, media_type: str, progress: Progress) -> dict[str, Any]:
    from ingest.extraction import extract

    limit_process(memory_bytes=request.memory_bytes)
    return extract(
        Path(request.path),
        media_type,
        password=request.password,
        limits=AttachmentLimits(
            request.max_attachments, request.max_attachment_bytes, request.max_attachments_bytes
        ),
        folder=Path(request.attachments_folder),
        unreadable=request.unreadable_attachments,
        begin=progress.begin_page,
    )


def _parse_range(
    parser: PagedParser, request: ParseRequest, progress: Progress, should_stop: Callable[[], bool]
) -> dict[str, Any]:
    """Read pages that are not stored yet; lay the document out if none is missing after that."""
    store = PageStore(Path(request.pages_folder))
    damaged = store.load_damaged()
    stored = store.list_pages()
    text_bytes = sum(stored.values())
    done = set(stored) | set(damaged)
    cost = 0
    with parser.open(Path(request.path), name=request.name, password=request.password) as source:
        total = source.page_count
        progress.report(min(len(done), total), total)
        missing = [number for number in range(1, total + 1) if number not in done]
        for index, number in enumerate(missing):
            if index and (cost >= RANGE_COST or should_stop()):
                return {"more": True}
            progress.begin_page(number)
            content = _read_page(source, number)
            if content is None:
                return {"bad_page": number}
            store.add_page(content)
            cost += OCR_PAGE_COST if content.ocr_confidence is not None else 1
            text_bytes += count_text_bytes(content)
            if text_bytes > request.max_text_bytes:
                raise _too_much_text(request)
            progress.report(total - len(missing) + index + 1, total)
        if missing and total > _MAX_PAGES_BESIDE_READING:
            return {"more": True}
        progress.begin_page(0)
        pages = store.load_pages()
        if not pages and damaged:
            raise _page_error(request, damaged[min(damaged)])
        contents = [
            pages[number]
            if number in pages
            else damaged_page(number, _REASONS.get(damaged[number], "it was damaged"))
            for number in range(1, total + 1)
        ]
        return {"document": to_json(source.assemble(contents))}


def _page_error(request: ParseRequest, code: str) -> DocumentError:
    """Return the error of a document of which no page can be read."""
    error = next(
        kind for kind in (ParseTimeoutError, ParseMemoryError, DamagedFileError) if kind.code == code
    )
    return error(f"no page of {request.name!r} can be read: {_REASONS[code]}")


def _read_page(source: PageSource, number: int) -> PageContent | None:
    """Return the page, empty with a warning if it makes its reader fail; None for lack of memory."""
    try:
        return source.read_page(number)
    except Exception as error:
        if isinstance(error, MemoryError) or _is_memory(error):
            return None
        if isinstance(error, DocumentError) and source.page_count == 1:
            raise
        return damaged_page(number, type(error).__name__)


def _too_much_text(request: ParseRequest) -> DocumentError:
    return TooManyPagesError(
        f"{request.name!r} holds more than {request.max_text_bytes} bytes of text",
        next_step="Split the document, or raise KB_MAX_TEXT_BYTES.",
    )


def _as_document_error(error: Exception, request: ParseRequest) -> DocumentError:
    """Return the error as one about the file: it decides what its parser meets, whatever a library raises."""
    if isinstance(error, DocumentError):
        return error
    if isinstance(error, MemoryError) or _is_memory(error):
        gc.collect()
        return ParseMemoryError(f"{request.name!r} needs more memory than {request.memory_bytes} bytes")
    if isinstance(error, RecursionError):
        return DamagedFileError(f"{request.name!r} is nested too deeply")
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return TooManyPagesError(f"the text of {request.name!r} exceeds the output limit")
    return DamagedFileError(f"{request.name!r} cannot be parsed ({type(error).__name__})")


def main() -> int:
    """Serve one request; returns the exit status."""
    go_offline()
    warnings.simplefilter("ignore")
    # Libraries print to standard output; the progress lines need it for themselves.
    progress_stream = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    request = ParseRequest(**json.loads(sys.stdin.readline()))
    told_to_stop = threading.Event()
    threading.Thread(target=_follow_parent, args=(told_to_stop,), daemon=True).start()
    outcome = parse(request, Progress(progress_stream), should_stop=told_to_stop.is_set)
    result = Path(request.result_path)
    try:
        with result.open("w", encoding="utf-8", errors="surrogatepass") as file:
            json.dump(outcome, file)
    except (OSError, MemoryError) as error:
        kind = ParseMemoryError if isinstance(error, MemoryError) else TooManyPagesError
        outcome = _error(kind(f"the text of {request.name!r} exceeds the output limit"))
        result.write_text(json.dumps(outcome), encoding="utf-8")
    return 0


def _follow_parent(told_to_stop: threading.Event) -> None:
    """Note what the parent says; kill this process and its children when it closes the input or dies."""
    # Not by sys.stdin: a thread that waits there holds a lock that the interpreter needs to end.
    while os.read(0, 4096):
        told_to_stop.set()
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _lower(kind: int, limit: int) -> None:
    soft, hard = resource.getrlimit(kind)
    known = [value for value in (limit, soft, hard) if value != resource.RLIM_INFINITY]
    resource.setrlimit(kind, (min(known), hard))


def _mapped_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def _is_memory(error: BaseException) -> bool:
    text = f"{type(error).__name__} {error}".lower()
    return any(
        word in text
        for word in ("memoryerror", "bad_alloc", "cannot allocate", "out of memory", "insufficient memory")
    )


def _error(error: DocumentError) -> dict[str, Any]:
    return {"error": {"code": error.code, "message": error.message, "next_step": error.next_step}}


if __name__ == "__main__":
    sys.exit(main())
