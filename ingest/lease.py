"""JobLease: keeps a job in the hands of the worker that runs it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from types import TracebackType

import structlog

from kb.errors import BackendError, JobCancelledError, KbError
from kb.ports import Catalog
from kb.progress import StageSpeed
from kb.types import DocumentState

_log = structlog.get_logger(__name__)

_LONGEST_SILENCE_S = 1.0
"""Progress is reported this often, so that a cancelled job stops within a second or two."""


class JobLease:
    """Reports progress from a thread of its own, which also renews the lease.

    A context manager: the thread runs inside the `with` block only. Parsing and embedding may
    take longer than a lease between two calls, so the renewal can't be left to them.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        job_id: str,
        lease_s: float,
        clock: Callable[[], datetime],
        should_stop: Callable[[], bool],
        pause_after_s: float,
    ) -> None:
        """Hold the lease that `Catalog.start_attempt` has taken."""
        self._catalog = catalog
        self._job_id = job_id
        self._lease_s = lease_s
        self._clock = clock
        self._should_stop = should_stop
        self._pause_after = timedelta(seconds=pause_after_s)
        self._entered_at = clock()
        self._state = DocumentState.PARSING
        self._stage = "parsing"
        self._pages = (0, 0)
        self._speed = StageSpeed()
        self._ended = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease-{job_id}", daemon=True)

    def __enter__(self) -> JobLease:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()

    @property
    def has_ended(self) -> bool:
        """True when the job is not ours any more: cancelled, deleted, or in other hands."""
        return self._ended.is_set()

    def enter(self, state: DocumentState, stage: str, *, page_count: int, pages_done: int = 0) -> None:
        """Report a new stage at once; raises like `check`."""
        self._state, self._stage, self._pages = state, stage, (pages_done, page_count)
        self._entered_at, self._speed = self._clock(), StageSpeed()
        self._report()
        self.check()

    def advance(self, pages_done: int, page_count: int) -> None:
        """Note progress; it is stored with the next report.

        The first call in a stage says where the stage begins.
        """
        self.advance_by_share(pages_done / max(page_count, 1), page_count)
        self._pages = (pages_done, page_count)

    def advance_by_share(self, share: float, page_count: int) -> None:
        """Note progress like `advance`, of work that is not done page by page; `share` is 0..1."""
        self._pages = (int(page_count * share), page_count)
        self._speed.note(share, now=self._clock())

    def should_end(self) -> bool:
        """Return whether the work must end now: `has_ended`, or this worker is being stopped."""
        return self._ended.is_set() or self._should_stop()

    def check(self) -> None:
        """Raise `JobCancelledError` when the work must end now."""
        if self.should_end():
            raise JobCancelledError(f"job {self._job_id!r} was told to stop")

    def should_pause(self) -> bool:
        """Return whether this stage has had its time while other jobs wait for a worker."""
        if self._clock() - self._entered_at < self._pause_after:
            return False
        try:
            return self._catalog.has_waiting_jobs(besides=self._job_id)
        except BackendError as error:
            _log.warning("waiting_jobs_unknown", job_id=self._job_id, code=error.code)
            return False

    def _report(self) -> None:
        pages_done, page_count = self._pages
        now = self._clock()
        goes_on = self._catalog.report_progress(
            self._job_id,
            state=self._state,
            stage=self._stage,
            pages_done=pages_done,
            page_count=page_count,
            rest_s=self._speed.estimate_rest_s(now=now),
            lease_s=self._lease_s,
            now=now,
        )
        if not goes_on:
            self._ended.set()

    def _renew(self) -> None:
        interval_s = min(self._lease_s / 3, _LONGEST_SILENCE_S)
        while not self._closed.wait(interval_s) and not self._ended.is_set():
            try:
                self._report()
            except BackendError as error:
                # the work may still get done: the lease outlives a short outage
                _log.warning("lease_not_renewed", job_id=self._job_id, code=error.code)
            except KbError:
                self._ended.set()
