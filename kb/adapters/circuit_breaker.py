"""Keeps calls away from a runtime that has just failed several times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class CircuitBreaker:
    """Open after `failures` failures in a row, for `pause_s`; then one call at a time may try."""

    def __init__(
        self, *, failures: int = 4, pause_s: float = 5.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = failures
        self._pause_s = pause_s
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = 0
        self._open_until = 0.0

    def try_enter(self) -> float:
        """Return 0 if the call may be made, else the seconds until the next try."""
        with self._lock:
            now = self._clock()
            if self._failed < self._most:
                return 0.0
            if now < self._open_until:
                return self._open_until - now
            self._open_until = now + self._pause_s  # this call is the trial; others wait for its end
            return 0.0

    def note(self, *, ok: bool) -> None:
        """Record how a call ended."""
        with self._lock:
            self._failed = 0 if ok else self._failed + 1
            if self._failed >= self._most:
                self._open_until = self._clock() + self._pause_s
