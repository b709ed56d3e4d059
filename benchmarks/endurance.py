"""What ingestion does to a whole service over time: `python -m benchmarks.endurance documents|scan|queue`.

Each starts a service of its own with real processes, sends documents and looks at the memory of all of them.

documents  1,000 small documents of ten formats: does memory grow from the first quarter to the last?
scan       a scanned PDF of 500 pages: how much memory do all processes take together at most?
queue      a big manual, and a page of text sent while it is at work: how long does that page wait?
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.drawing import draw_mixed, draw_pdf
from benchmarks.service import BenchmarkService, Memory, start_service
from kb.schemas import JobOut
from kb.types import DocumentState

_COLLECTION = "benchmark"
_WAITING_DOCUMENTS = 40
_DOCUMENTS_A_SEARCH = 25
_POLL_S = 0.2


@dataclass(slots=True)
class Samples:
    """Memory over time, each look with what was done by then."""

    done: int = 0
    looks: list[tuple[int, Memory]] = field(default_factory=list)

    def list_quarters(self, role: str) -> list[float]:
        """Return the median MiB of a role in each quarter of what was done."""
        quarters: list[list[float]] = [[], [], [], []]
        for done, memory in self.looks:
            quarters[min(3, 4 * done // max(1, self.done))].append(memory.by_role.get(role, 0.0))
        return [statistics.median(quarter) if quarter else 0.0 for quarter in quarters]

    @property
    def peak(self) -> Memory:
        """The look at which all processes together had most."""
        return max((memory for _, memory in self.looks), key=lambda memory: memory.total_mib)


@contextmanager
def watch_memory(service: BenchmarkService, *, interval_s: float) -> Iterator[Samples]:
    """Yield samples that grow until the end of the block."""
    samples, ended = Samples(), threading.Event()

    def look() -> None:
        while not ended.wait(interval_s):
            samples.looks.append((samples.done, service.measure_memory()))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def measure_documents(service: BenchmarkService, folder: Path, *, count: int) -> dict[str, Any]:
    """Ingest small documents of ten formats, until Ctrl-C at most; return memory by quarter and role."""
    started_s = time.monotonic()
    waiting: list[str] = []
    states: dict[str, int] = {}
    with watch_memory(service, interval_s=2.0) as samples, suppress(KeyboardInterrupt):
        for number in range(count):
            path = draw_mixed(folder, number)
            document = service.client.upload(_COLLECTION, path).document
            path.unlink()
            if document is None:
                raise RuntimeError(f"{path.name} was refused")
            waiting.append(document.job_id)
            if number % _DOCUMENTS_A_SEARCH == 0:
                service.client.search(f"check pump E-{number:03d}01", collection=_COLLECTION)
            while len(waiting) > (_WAITING_DOCUMENTS if number + 1 < count else 0):
                state = wait_for_job(service, waiting.pop(0)).document_state
                states[state] = states.get(state, 0) + 1
                samples.done += 1
    roles = sorted({role for _, memory in samples.looks for role in memory.by_role} - {"parser"})
    return {
        "documents": samples.done,
        "states": states,
        "seconds": time.monotonic() - started_s,
        "mib_by_quarter": {role: samples.list_quarters(role) for role in roles},
        "peak_mib": samples.peak.total_mib,
    }


def measure_scan(service: BenchmarkService, folder: Path, *, pages: int, dpi: int) -> dict[str, Any]:
    """Ingest a scan; return the most memory that all processes had together."""
    path = folder / "scan.pdf"
    draw_pdf(path, pages=pages, scanned=True, lines=4, dpi=dpi)
    started_s = time.monotonic()
    with watch_memory(service, interval_s=0.5) as samples:
        job = wait_for_job(service, send(service, path))
    document = service.client.get_document(_COLLECTION, job.document_id)
    return {
        "pages": document.page_count,
        "state": document.state,
        "attempts": len(job.attempts),
        "file_mib": path.stat().st_size / 1024**2,
        "seconds": time.monotonic() - started_s,
        "peak_mib": samples.peak.total_mib,
        "peak_mib_by_role": samples.peak.by_role,
    }


def measure_queue(service: BenchmarkService, folder: Path, *, big: Path, notes: int) -> dict[str, Any]:
    """Ingest a big file, until Ctrl-C at most, and pages beside it; return how long each of these took."""
    big_job = send(service, big)
    waits_s: list[float] = []
    progress: list[tuple[float, str, int]] = []
    started_s = time.monotonic()
    for number in range(notes):
        # the first as soon as the big one is at work, the others later, whatever stage it is in
        job = wait_for_progress(service, big_job, since_s=started_s, seen=progress)
        if DocumentState(job.document_state).is_terminal:
            break
        note = folder / f"note-{number}.pdf"
        draw_pdf(note, pages=1, scanned=False, lines=20, seed=900 + number)
        sent_s = time.monotonic()
        ended = wait_for_job(service, send(service, note))
        if ended.document_state != DocumentState.READY:
            raise RuntimeError(f"{note.name} ended as {ended.document_state}")
        waits_s.append(time.monotonic() - sent_s)
    with suppress(KeyboardInterrupt):
        wait_for_job(service, big_job, since_s=started_s, seen=progress)
    job = service.client.get_job(big_job)
    steps = [later[0] - earlier[0] for earlier, later in pairwise(progress)]
    return {
        "file": big.name,
        "pages": job.page_count,
        "state": job.document_state,
        "attempts": len(job.attempts),
        "seconds": time.monotonic() - started_s,
        "one_page_ready_after_s": waits_s,
        "progress_steps": len(steps),
        "longest_without_progress_s": max(steps, default=0.0),
    }


def send(service: BenchmarkService, path: Path) -> str:
    """Upload a file; return the id of its job."""
    document = service.client.upload(_COLLECTION, path).document
    if document is None:
        raise RuntimeError(f"{path.name} was refused")
    return document.job_id


def wait_for_progress(
    service: BenchmarkService, job_id: str, *, since_s: float, seen: list[tuple[float, str, int]]
) -> JobOut:
    """Return once the job has done a page more than at the call, or has ended."""
    before = len(seen)
    while True:
        job = note_progress(service, job_id, since_s=since_s, seen=seen)
        if DocumentState(job.document_state).is_terminal or (len(seen) > before and job.pages_done):
            return job
        time.sleep(_POLL_S)


def wait_for_job(
    service: BenchmarkService,
    job_id: str,
    *,
    since_s: float = 0.0,
    seen: list[tuple[float, str, int]] | None = None,
) -> JobOut:
    """Return the job once it has ended, noting progress until then."""
    while True:
        job = note_progress(service, job_id, since_s=since_s, seen=[] if seen is None else seen)
        if DocumentState(job.document_state).is_terminal:
            return job
        time.sleep(_POLL_S)


def note_progress(
    service: BenchmarkService, job_id: str, *, since_s: float, seen: list[tuple[float, str, int]]
) -> JobOut:
    """Return the job; add its stage and pages to `seen` when they are new."""
    job = service.client.get_job(job_id)
    stage = job.stage or ""
    if not seen or seen[-1][1:] != (stage, job.pages_done):
        seen.append((time.monotonic() - since_s, stage, job.pages_done))
    return job


def render(result: dict[str, Any]) -> str:
    """Return the figures as lines."""
    return "\n".join(f"{name:<28}{_show(value)}" for name, value in result.items())


def _show(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(_show(item) for item in value)
    if isinstance(value, dict):
        return "".join(f"\n  {name:<26}{_show(item)}" for name, item in value.items())
    return str(value)


def main() -> int:
    """Run from the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    commands = parser.add_subparsers(dest="command", required=True)
    documents = commands.add_parser("documents", help="memory over many small documents")
    documents.add_argument("--count", type=int, default=1000)
    scan = commands.add_parser("scan", help="memory during a long scan")
    scan.add_argument("--pages", type=int, default=500)
    scan.add_argument("--dpi", type=int, default=300, help="of the pictures in the drawn scan")
    queue = commands.add_parser("queue", help="a page of text beside a big manual")
    queue.add_argument("file", type=Path, nargs="?", help="the big manual; default: one that is drawn")
    queue.add_argument("--pages", type=int, default=551, help="of the drawn manual")
    queue.add_argument("--notes", type=int, default=5, help="pages sent, one after the other")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kb-benchmark-") as name:
        folder = Path(name)
        with start_service(folder) as service:
            service.client.ensure_collection(_COLLECTION)
            match given.command:
                case "documents":
                    result = measure_documents(service, folder, count=given.count)
                case "scan":
                    result = measure_scan(service, folder, pages=given.pages, dpi=given.dpi)
                case _:
                    big = given.file or folder / "manual.pdf"
                    if given.file is None:
                        draw_pdf(big, pages=given.pages, scanned=False)
                    result = measure_queue(service, folder, big=big, notes=given.notes)
    print(json.dumps(result, indent=2) if given.json else render(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
