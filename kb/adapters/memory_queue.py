"""MemoryIngestQueue: jobs wait in this process until a test or a script takes them."""

from __future__ import annotations

import threading
from collections import deque


class MemoryIngestQueue:
    """Keeps `kb.ports.IngestQueue` without a broker; nobody works on it by itself."""

    def __init__(self, *, live_workers: int = 0) -> None:
        """`live_workers` is what `get_live_workers` returns."""
        self._live_workers = live_workers
        self._waiting: deque[str] = deque()
        self._lock = threading.Lock()

    def submit(self, job_id: str) -> None:
        with self._lock:
            if job_id not in self._waiting:
                self._waiting.append(job_id)

    def take(self) -> str | None:
        """Return the job that has waited longest and forget it, or None."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def count_waiting(self) -> int:
        with self._lock:
            return len(self._waiting)

    def get_live_workers(self) -> int:
        return self._live_workers

    def ping(self) -> str:
        return "in memory"
