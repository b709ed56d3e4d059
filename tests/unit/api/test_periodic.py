from __future__ import annotations

import threading

import pytest
import structlog

from api.periodic import PeriodicThread
from kb.errors import CatalogUnavailableError, QueueUnavailableError


class Script:
    """An action that raises what the script says, one entry a call, and then succeeds."""

    def __init__(self, *failures: Exception | None) -> None:
        self._failures = list(failures)
        self.over = threading.Event()

    def __call__(self) -> None:
        if not self._failures:
            self.over.set()
            return
        failure = self._failures.pop(0)
        if failure is not None:
            raise failure


def run(script: Script) -> list[tuple[str, str]]:
    """Run the script to its end and return (event, code) of what was logged."""
    with structlog.testing.capture_logs() as lines:
        thread = PeriodicThread("sweep", script, interval_s=0.001)
        thread.start()
        assert script.over.wait(30)
        thread.stop()
    return [(line["event"], line.get("code", "")) for line in lines]


def test_the_action_is_repeated_until_it_is_stopped() -> None:
    assert run(Script(None, None, None)) == []


def test_a_lasting_error_is_logged_once_and_its_end_once() -> None:
    down = CatalogUnavailableError("down")

    assert run(Script(down, down, down)) == [
        ("background_action_failed", "catalog_unavailable"),
        ("background_action_recovered", ""),
    ]


def test_another_kind_of_error_is_logged_again() -> None:
    assert run(Script(CatalogUnavailableError("down"), QueueUnavailableError("down"))) == [
        ("background_action_failed", "catalog_unavailable"),
        ("background_action_failed", "queue_unavailable"),
        ("background_action_recovered", ""),
    ]


def test_an_unexpected_exception_does_not_end_the_thread() -> None:
    assert run(Script(KeyError("x"), KeyError("y"))) == [
        ("background_action_crashed", ""),
        ("background_action_recovered", ""),
    ]


@pytest.mark.parametrize("timeout_s", [0.01])
def test_stopping_does_not_wait_for_an_action_that_hangs(timeout_s: float) -> None:
    entered, release = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        release.wait(30)

    thread = PeriodicThread("sweep", hang, interval_s=0.001)
    thread.start()
    assert entered.wait(30)

    thread.stop(timeout_s=timeout_s)

    release.set()
