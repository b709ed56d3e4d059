"""SubprocessReader: parses a file in a disposable process, so that a bad file ends only that process."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ingest.parse_child import ParseRequest
from ingest.parsed_json import from_json
from kb.errors import (
    DamagedFileError,
    DocumentError,
    EmptyFileError,
    GarbledTextError,
    JobCancelledError,
    NoTextFoundError,
    ParseMemoryError,
    ParseTimeoutError,
    PasswordProtectedError,
    TooManyPagesError,
    UnsupportedFormatError,
)
from kb.ports import PageProgress
from kb.types import ParsedDocument

_ERRORS: dict[str, type[DocumentError]] = {
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
_TICK_S = 0.2
_CANCEL_CHECK_S = 0.5
_OUT_OF_MEMORY = (b"bad_alloc", b"memoryerror", b"cannot allocate memory", b"out of memory")
_KEPT_STDERR_BYTES = 65536
# Each library would otherwise start a thread per core and reserve address space for each.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    "PYTHONUNBUFFERED": "1",
    "PYTHONIOENCODING": "utf-8",
}


class SubprocessReader:
    """Starts one process per document; may be used from several threads."""

    def __init__(self, *, timeout_s: float, memory_bytes: int, max_pages: int, ocr: bool) -> None:
        self._timeout_s = timeout_s
        self._memory_bytes = memory_bytes
        self._max_pages = max_pages
        self._ocr = ocr

    def read(
        self,
        path: Path,
        *,
        name: str,
        password: str | None,
        progress: PageProgress,
        is_cancelled: Callable[[], bool],
    ) -> ParsedDocument:
        """See the port; `memory_bytes` comes on top of what the libraries map when they are loaded."""
        if not path.is_file():
            raise DamagedFileError(
                f"the stored bytes of {name!r} are gone", next_step="Upload the file again."
            )
        if is_cancelled():
            raise JobCancelledError(f"parsing of {name!r} was cancelled")
        with tempfile.TemporaryDirectory(prefix="kb-parse-") as folder:
            request = ParseRequest(
                path=str(path.absolute()),
                name=name,
                result_path=str(Path(folder) / "result.json"),
                memory_bytes=self._memory_bytes,
                max_pages=self._max_pages,
                ocr=self._ocr,
                password=password,
            )
            with (Path(folder) / "stderr").open("w+b") as stderr, _start(folder, stderr) as child:
                self._follow(child, request, progress, is_cancelled)
                stderr.seek(0)
                return self._outcome(child.returncode, request, stderr.read(_KEPT_STDERR_BYTES))

    def _follow(
        self,
        child: subprocess.Popen[bytes],
        request: ParseRequest,
        progress: PageProgress,
        is_cancelled: Callable[[], bool],
    ) -> None:
        """Pass on progress until the child ends; raises on the time limit and on cancellation."""
        assert child.stdin is not None
        assert child.stdout is not None
        deadline = time.monotonic() + self._timeout_s
        next_check = time.monotonic() + _CANCEL_CHECK_S
        # A child that died at once breaks the pipe; how it died says more than the pipe does.
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(request.to_line().encode())
            child.stdin.flush()
        os.set_blocking(child.stdout.fileno(), False)
        pending = b""
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while True:
                if selector.select(_TICK_S):
                    piece = child.stdout.read(65536)
                    if piece == b"":
                        break
                    *lines, pending = (pending + (piece or b"")).split(b"\n")
                    _report(lines, progress)
                now = time.monotonic()
                if now >= next_check:
                    if is_cancelled():
                        raise JobCancelledError(f"parsing of {request.name!r} was cancelled")
                    next_check = now + _CANCEL_CHECK_S
                if now >= deadline:
                    raise ParseTimeoutError(
                        f"parsing {request.name!r} took longer than {self._timeout_s:g} s"
                    )
        try:
            child.wait(timeout=max(deadline - time.monotonic(), _TICK_S))
        except subprocess.TimeoutExpired:
            raise ParseTimeoutError(
                f"parsing {request.name!r} took longer than {self._timeout_s:g} s"
            ) from None

    def _outcome(self, returncode: int, request: ParseRequest, stderr: bytes) -> ParsedDocument:
        result = Path(request.result_path)
        if returncode == 0 and result.is_file():
            outcome: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
            if "document" in outcome:
                return from_json(outcome["document"])
            error = outcome["error"]
            raise _ERRORS.get(error["code"], DocumentError)(error["message"], next_step=error["next_step"])
        said = stderr.lower()
        # The kernel's out-of-memory killer sends SIGKILL; our own kill never gets here.
        if returncode == -signal.SIGKILL or any(words in said for words in _OUT_OF_MEMORY):
            raise ParseMemoryError(f"{request.name!r} needs more memory than {request.memory_bytes} bytes")
        if returncode < 0:
            how = signal.Signals(-returncode).name if -returncode in set(signal.Signals) else str(returncode)
            raise DamagedFileError(f"parsing {request.name!r} ended its process ({how})")
        raise DamagedFileError(f"parsing {request.name!r} ended without a result (status {returncode})")


@contextlib.contextmanager
def _start(folder: str, stderr: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start the child in a session of its own; whatever is left of it is killed at the end."""
    root = str(Path(__file__).resolve().parents[1])
    python_path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    child = subprocess.Popen(
        [sys.executable, "-m", "ingest.parse_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=folder,
        env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": python_path},
        start_new_session=True,
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _report(lines: list[bytes], progress: PageProgress) -> None:
    """Pass on the last progress line; earlier ones are out of date already."""
    for line in reversed(lines):
        done, _, total = line.partition(b" ")
        if done.isdigit() and total.isdigit():
            progress(int(done), int(total))
            return
