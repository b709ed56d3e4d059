"""What holds for every test run."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes that tests start, also when this run was started in the background.

    A shell starts background commands with SIGINT ignored, and every child inherits that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
