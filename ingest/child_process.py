"""One run of the parser's process: started, followed, ended."""

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
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

from ingest.parse_child import ParseRequest
from kb.errors import JobCancelledError
from kb.ports import PageProgress

_TICK_S = 0.2
_CHECK_S = 0.5
# A page that is nearly read when the process shall pause is better read to its end.
_PAUSE_PATIENCE_S = 15.0
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


class EndedBy(Enum):
    """Why a run ended."""

    RESULT = auto()
    TIME = auto()
    PAGE_TIME = auto()
    MEMORY = auto()
    CRASH = auto()
    PAUSE = auto()


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """How a run ended.

    `outcome` is the process's own, for `RESULT`; see `ingest.parse_child.parse`. `page` is the page
    that was being read, 0 for the document as a whole; `pages_read` counts those before it in this run.
    `detail` says how a process crashed.
    """

    ended_by: EndedBy
    page: int
    pages_read: int
    outcome: dict[str, Any] | None = None
    detail: str = ""


@dataclass(slots=True)
class _Follower:
    """What the process has said so far."""

    progress: PageProgress
    page: int = 0
    pages_begun: int = 0
    heard_s: float = 0.0
    pending: bytes = b""

    def hear(self, piece: bytes) -> None:
        *lines, self.pending = (self.pending + piece).split(b"\n")
        latest: tuple[int, int] | None = None
        for line in lines:
            self.heard_s = time.monotonic()
            done, _, total = line.partition(b" ")
            if line[:1] == b"@" and line[1:].isdigit():
                self.page = int(line[1:])
                self.pages_begun += self.page > 0
            elif done.isdigit() and total.isdigit():
                latest = int(done), int(total)
        if latest is not None:
            self.progress(*latest)

    @property
    def pages_read(self) -> int:
        return self.pages_begun - (self.page > 0)


def run_child(
    request: ParseRequest,
    *,
    timeout_s: float,
    page_timeout_s: float,
    progress: PageProgress,
    is_cancelled: Callable[[], bool],
    should_pause: Callable[[], bool],
) -> ChildEnd:
    """Run the process to its end; raises `JobCancelledError` soon after `is_cancelled` turns true."""
    follower = _Follower(progress)
    with (
        tempfile.TemporaryFile("w+b") as stderr,
        _start(str(Path(request.result_path).parent), stderr) as child,
    ):
        ended_by = _follow(
            child,
            request,
            follower,
            timeout_s=timeout_s,
            page_timeout_s=page_timeout_s,
            is_cancelled=is_cancelled,
            should_pause=should_pause,
        )
        outcome, detail = None, ""
        if ended_by is EndedBy.RESULT:
            stderr.seek(0)
            said = stderr.read(_KEPT_STDERR_BYTES).lower()
            ended_by, outcome, detail = _read_result(child.returncode, Path(request.result_path), said)
    return ChildEnd(ended_by, follower.page, follower.pages_read, outcome, detail)


def _follow(
    child: subprocess.Popen[bytes],
    request: ParseRequest,
    follower: _Follower,
    *,
    timeout_s: float,
    page_timeout_s: float,
    is_cancelled: Callable[[], bool],
    should_pause: Callable[[], bool],
) -> EndedBy:
    assert child.stdin is not None
    assert child.stdout is not None
    follower.heard_s = time.monotonic()
    deadline = time.monotonic() + timeout_s
    next_check = time.monotonic() + _CHECK_S
    pause_deadline: float | None = None
    _tell(child, request.to_line().encode())
    os.set_blocking(child.stdout.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            if selector.select(_TICK_S):
                piece = child.stdout.read(65536)
                if piece == b"":
                    break
                follower.hear(piece or b"")
            now = time.monotonic()
            if now >= next_check:
                if is_cancelled():
                    raise JobCancelledError(f"parsing of {request.name!r} was cancelled")
                # Not before a page is read: each run shall get ahead.
                if pause_deadline is None and follower.pages_read and should_pause():
                    pause_deadline = now + _PAUSE_PATIENCE_S
                    _tell(child, b"stop\n")
                next_check = now + _CHECK_S
            if pause_deadline is not None and now >= pause_deadline and follower.page:
                return EndedBy.PAUSE
            if follower.page and now - follower.heard_s >= page_timeout_s:
                return EndedBy.PAGE_TIME
            if now >= deadline:
                return EndedBy.TIME
    try:
        child.wait(timeout=max(deadline - time.monotonic(), _TICK_S))
    except subprocess.TimeoutExpired:
        return EndedBy.TIME
    return EndedBy.RESULT


def _tell(child: subprocess.Popen[bytes], line: bytes) -> None:
    """Write to the process; one that has died says more by how it died than by its broken pipe."""
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(line)
        child.stdin.flush()


def _read_result(returncode: int, result: Path, said: bytes) -> tuple[EndedBy, dict[str, Any] | None, str]:
    if returncode == 0 and result.is_file():
        outcome: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return EndedBy.RESULT, outcome, ""
    # The kernel's out-of-memory killer sends SIGKILL; our own kill never gets here.
    if returncode == -signal.SIGKILL or any(words in said for words in _OUT_OF_MEMORY):
        return EndedBy.MEMORY, None, ""
    if returncode < 0:
        known = -returncode in set(signal.Signals)
        return EndedBy.CRASH, None, signal.Signals(-returncode).name if known else str(returncode)
    return EndedBy.CRASH, None, f"status {returncode}"


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
