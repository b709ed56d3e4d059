"""The disposable process that parses one file: `python -m ingest.parse_child`, started by SubprocessReader.

It reads one line of JSON (`ParseRequest`) from its input, writes a line `done total` per page to its
output and the outcome as JSON to the file `result_path`. It ends by itself when its input is closed,
so that it never outlives its parent.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import threading
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from ingest.formats import CSV, DOCX, EMAIL, HTML, IMAGES, MARKDOWN, PDF, PPTX, XLSX, XML, detect_media_type
from ingest.parsed_json import to_json
from kb.errors import DamagedFileError, DocumentError, ParseMemoryError, TooManyPagesError
from kb.offline import go_offline
from kb.ports import Parser
from kb.types import ParsedDocument

MAX_OPEN_FILES = 128
MAX_OUTPUT_BYTES = 1024**3
OCR_THREADS = 2


@dataclass(frozen=True, slots=True)
class ParseRequest:
    """What to parse and within which limits."""

    path: str
    name: str
    result_path: str
    memory_bytes: int
    max_pages: int
    ocr: bool
    password: str | None = None

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
    so far have mapped, as mapped libraries are no memory of the document.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    _lower(resource.RLIMIT_FSIZE, MAX_OUTPUT_BYTES)
    _lower(resource.RLIMIT_AS, _mapped_bytes() + memory_bytes)


def parse(request: ParseRequest, progress_stream: TextIO) -> dict[str, Any]:
    """Return the outcome: `{"document": …}` or `{"error": {code, message, next_step}}`."""
    path = Path(request.path)

    def report(done: int, total: int) -> None:
        progress_stream.write(f"{done} {total}\n")
        progress_stream.flush()

    try:
        media_type = detect_media_type(path, request.name)
        parser = build_parser(media_type, max_pages=request.max_pages, ocr=request.ocr)
        limit_process(memory_bytes=request.memory_bytes)
        parsed: ParsedDocument = parser.parse(
            path, name=request.name, password=request.password, progress=report
        )
        return {"document": to_json(parsed)}
    except DocumentError as error:
        return _error(error)
    except MemoryError:
        gc.collect()
        return _error(
            ParseMemoryError(f"{request.name!r} needs more memory than {request.memory_bytes} bytes")
        )
    except RecursionError:
        return _error(DamagedFileError(f"{request.name!r} is nested too deeply"))
    except Exception as error:
        # The file decides what its parser meets: whatever a library raises is about the file.
        if _is_memory(error):
            return _error(
                ParseMemoryError(f"{request.name!r} needs more memory than {request.memory_bytes} bytes")
            )
        return _error(DamagedFileError(f"{request.name!r} cannot be parsed ({type(error).__name__})"))


def main() -> int:
    """Serve one request; returns the exit status."""
    go_offline()
    warnings.simplefilter("ignore")
    # Libraries print to standard output; the progress lines need it for themselves.
    progress_stream = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    request = ParseRequest(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    outcome = parse(request, progress_stream)
    result = Path(request.result_path)
    try:
        with result.open("w", encoding="utf-8", errors="surrogatepass") as file:
            json.dump(outcome, file)
    except (OSError, MemoryError) as error:
        kind = ParseMemoryError if isinstance(error, MemoryError) else TooManyPagesError
        outcome = _error(kind(f"the text of {request.name!r} exceeds the output limit"))
        result.write_text(json.dumps(outcome), encoding="utf-8")
    return 0


def _end_with_parent() -> None:
    """Kill this process and its children when the parent closes the input or dies."""
    # Not by sys.stdin: a thread that waits there holds a lock that the interpreter needs to end.
    while os.read(0, 4096):
        pass
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
