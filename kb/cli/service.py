"""Runs the embedded profile in this process's care: start with a live view, watch, stop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from kb.supervisor import ProcessDiedError, ProcessReport, ProcessState, Supervisor

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from kb.embedded import EmbeddedProfile
    from kb.settings import Settings

ProfileBuilder = Callable[["Settings", Path], "EmbeddedProfile"]
JsonLine = Callable[[dict[str, Any]], None]

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Service:
    """A running service; `failure` is set when it gave up."""

    def __init__(self, profile: EmbeddedProfile, data_dir: Path, *, ready_s: float) -> None:
        self.url = profile.api_url
        self.data_dir = data_dir
        self.ready_s = ready_s
        self.failure: ProcessDiedError | None = None

    def wait(self) -> None:
        """Return only by an exception: Ctrl-C, a signal, or the service's failure."""
        while True:
            time.sleep(3600)


@contextmanager
def run_service(
    settings: Settings,
    *,
    console: Console,
    emit: JsonLine | None = None,
    build: ProfileBuilder | None = None,
) -> Iterator[Service]:
    """Start everything, yield when it is ready, and end everything on the way out, within 10 seconds.

    SIGTERM and SIGHUP act like Ctrl-C. When the service gives up later, the body is interrupted and
    `ProcessDiedError` is raised. `emit` takes each change as JSON instead of the live view.
    """
    from kb.embedded import (
        DataFolderLock,
        build_profile,
        check_before_start,
        prepare_data_dir,
        raise_open_file_limit,
        state_path,
        write_state,
    )
    from kb.offline import go_offline

    data_dir = prepare_data_dir(settings)
    lock = DataFolderLock(data_dir)
    try:
        check_before_start(settings)
        go_offline()
        raise_open_file_limit()
        profile = (build or build_profile)(settings, data_dir)
        view = _StartView(console, profile, emit=emit)
        supervisor = Supervisor(
            specs=profile.specs,
            stop_order=profile.stop_order,
            environment=profile.environment,
            on_change=view.note,
            kept_files=(lock.fileno(),),
        )
        started = time.monotonic()

        def save_state() -> None:
            write_state(data_dir, profile, supervisor.get_reports(), now=datetime.now(UTC))

        with signals_as_interrupt():
            try:
                with view.live():
                    supervisor.start()
                save_state()
                service = Service(profile, data_dir, ready_s=time.monotonic() - started)
                with watching(supervisor, service, on_restart=save_state):
                    yield service
            finally:
                with signals_ignored():
                    view.begin_stop()
                    supervisor.stop()
                    state_path(data_dir).unlink(missing_ok=True)
                    view.end_stop()
    finally:
        lock.release()


@contextmanager
def watching(supervisor: Supervisor, service: Service, *, on_restart: Callable[[], None]) -> Iterator[None]:
    """Watch in a thread while the body runs; turn the watcher's failure into the body's.

    The body must run in the main thread, with SIGTERM raising `KeyboardInterrupt`.
    """
    stop = threading.Event()
    main_thread = threading.main_thread().ident
    assert main_thread is not None

    def watch() -> None:
        pids = [report.pid for report in supervisor.get_reports()]
        try:
            while not stop.wait(supervisor.poll_interval_s):
                supervisor.poll()
                now = [report.pid for report in supervisor.get_reports()]
                if now != pids:
                    pids = now
                    on_restart()
        except ProcessDiedError as error:
            service.failure = error
            signal.pthread_kill(main_thread, signal.SIGTERM)

    thread = threading.Thread(target=watch, name="kb-watch", daemon=True)
    thread.start()
    try:
        yield
    except BaseException as error:
        if service.failure is not None:
            raise service.failure from error
        raise
    finally:
        stop.set()
        thread.join()


@contextmanager
def signals_as_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `KeyboardInterrupt` while the body runs."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handlers(interrupt, _SIGNALS):
        yield


@contextmanager
def signals_ignored() -> Iterator[None]:
    """Let a second Ctrl-C not cut the ending short, which is bounded anyway."""
    with _handlers(signal.SIG_IGN, (*_SIGNALS, signal.SIGINT)):
        yield


@contextmanager
def _handlers(handler: Any, numbers: tuple[signal.Signals, ...]) -> Iterator[None]:
    former = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in former.items():
            signal.signal(number, old)


class _StartView:
    """A line per process while the service starts; afterwards only what a person must know."""

    def __init__(self, console: Console, profile: EmbeddedProfile, *, emit: JsonLine | None) -> None:
        self._console = console
        self._emit = emit
        self._started = time.monotonic()
        self._reports: dict[str, ProcessReport | None] = {spec.name: None for spec in profile.specs}
        self._logs = {spec.name: spec.log_path for spec in profile.specs}
        self._live = False
        self._stopping = False

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show the live view while the body runs, where there is a terminal."""
        from rich.live import Live

        if self._emit is not None or not self._console.is_terminal:
            yield
            return
        self._live = True
        try:
            with Live(console=self._console, get_renderable=self._render, refresh_per_second=8):
                yield
        finally:
            self._live = False

    def note(self, report: ProcessReport) -> None:
        """Take a change of one process."""
        former = self._reports[report.name]
        self._reports[report.name] = report
        if self._emit is not None:
            if former is None or (former.state, former.detail) != (report.state, report.detail):
                self._emit({"process": report.name, "state": report.state, "detail": report.detail})
            return
        if self._live or self._stopping:
            return
        if report.state is ProcessState.RESTARTING:
            self._say(f"[bold red]{report.name}[/] {_plain(report.detail)}. Log: {_plain(report.log_path)}")
        elif report.state is ProcessState.READY:
            self._say(f"[green]✓[/] {report.name} is ready after {report.ready_s:.1f} s")

    def begin_stop(self) -> None:
        """Say that everything ends now."""
        self._stopping = True
        if self._emit is None:
            self._console.print("\nStopping…", style="dim", highlight=False)

    def end_stop(self) -> None:
        """Say that everything has ended."""
        if self._emit is None:
            self._console.print(
                "Stopped. Nothing is lost: unfinished documents go on at the next start.", style="dim"
            )

    def _say(self, markup: str) -> None:
        self._console.print(f"[dim]{datetime.now().astimezone():%H:%M:%S}[/] {markup}", highlight=False)

    def _render(self) -> Table:
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 1))
        elapsed = time.monotonic() - self._started
        for name, report in self._reports.items():
            if report is None or report.state is ProcessState.WAITING:
                grid.add_row(" ", Text(f"{name:<7}", "dim"), Text("waits for its stores", "dim"), "")
            elif report.state is ProcessState.READY:
                took = Text(f"{report.ready_s:.1f} s" if report.ready_s is not None else "", "dim")
                grid.add_row(Text("✓", "green"), Text(f"{name:<7}"), Text("ready", "green"), took)
            elif report.state is ProcessState.STOPPED:
                grid.add_row(Text("✗", "bold red"), Text(f"{name:<7}"), Text(report.detail, "red"), "")
            else:
                frame = Spinner("dots").render(elapsed)
                grid.add_row(
                    frame,
                    Text(f"{name:<7}"),
                    Text(report.detail or "starts"),
                    Text(f"{elapsed:.0f} s", "dim"),
                )
        return grid


def _plain(value: object) -> str:
    from rich.markup import escape

    return escape(str(value))
