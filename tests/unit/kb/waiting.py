"""Waits for a condition in tests of real processes."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_S = 60.0


def wait_for(condition: Callable[[], bool]) -> None:
    """Return once the condition holds; raises `TimeoutError` after a minute."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the condition did not come true")
        time.sleep(0.02)
