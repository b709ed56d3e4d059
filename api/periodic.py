"""A thread that repeats an action until it is told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from kb.errors import KbError

_log = structlog.get_logger("api.periodic")


class PeriodicThread:
    """Calls `action` at once and then every `interval_s`; an error is logged once until it is over."""

    def __init__(self, name: str, action: Callable[[], object], *, interval_s: float) -> None:
        self._name = name
        self._action = action
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._known_failure = ""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; once only."""
        self._thread.start()

    def stop(self, *, timeout_s: float = 2.0) -> None:
        """Let the current call end, but wait for it no longer than `timeout_s`."""
        self._stop.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._call()
            self._stop.wait(self._interval_s)

    def _call(self) -> None:
        try:
            self._action()
        except KbError as error:
            if self._known_failure != error.code:
                _log.warning("background_action_failed", action=self._name, code=error.code, exc_info=error)
            self._known_failure = error.code
        except Exception as error:
            kind = type(error).__name__
            if self._known_failure != kind:
                _log.exception("background_action_crashed", action=self._name)
            self._known_failure = kind
        else:
            if self._known_failure:
                _log.info("background_action_recovered", action=self._name)
            self._known_failure = ""
