"""Starts, watches, restarts and stops a handful of child processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from kb.errors import KbError

MAX_LOG_BYTES = 10 * 1024 * 1024
KEPT_LOGS = 3
TAIL_LINES = 8
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class ProcessState(StrEnum):
    """Where a child stands."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One child: how to start it, how to know that it is ready, how long it may take to stop.

    `check_ready` returns "" when the child serves, else what it still waits for; it must not block
    for longer than about a second. `after` names the children that must be ready before.
    """

    name: str
    command: tuple[str, ...]
    log_path: Path
    check_ready: Callable[[], str]
    after: tuple[str, ...] = ()
    ready_timeout_s: float = 180.0
    stop_grace_s: float = 2.0
    port: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """What is known about a child right now; `ready_s` is how long its last start took."""

    name: str
    state: ProcessState
    detail: str
    pid: int | None
    port: int | None
    log_path: Path
    restarts: int
    ready_s: float | None


class ProcessDiedError(KbError):
    """A child ended by itself, or did not become ready in time."""

    code = "process_died"

    def __init__(self, name: str, *, outcome: str, log_path: Path, tail: Sequence[str]) -> None:
        super().__init__(f"the process {name} {outcome}", next_step=f"Read its log: {log_path}")
        self.name = name
        self.outcome = outcome
        self.log_path = log_path
        self.tail = tuple(tail)


@dataclass(slots=True)
class _Child:
    spec: ProcessSpec
    state: ProcessState = ProcessState.WAITING
    detail: str = ""
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    due_at: float = 0.0
    ready_s: float | None = None
    restarts: int = 0
    log_offset: int = 0


@dataclass(slots=True)
class Supervisor:
    """Owns the children in `specs`; they are stopped in the order of `stop_order`.

    Every child leads its own process group and session, so that Ctrl-C in the terminal reaches the
    supervisor alone. A guard process ends the groups if the supervisor is killed. `kept_files` are
    descriptors that the guard holds open: a lock on one of them lasts until the last child is gone.

    Not for several threads at once: end `watch` before calling `stop`.
    """

    specs: Sequence[ProcessSpec]
    stop_order: Sequence[str]
    environment: Mapping[str, str]
    on_change: Callable[[ProcessReport], None] = lambda _report: None
    kept_files: Sequence[int] = ()
    max_restarts: int = 5
    backoff_s: float = 1.0
    stable_after_s: float = 600.0
    poll_interval_s: float = 0.15
    clock: Callable[[], float] = time.monotonic
    _children: dict[str, _Child] = field(init=False)
    _guard: subprocess.Popen[bytes] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._children = {spec.name: _Child(spec) for spec in self.specs}

    def start(self) -> None:
        """Start all children and return when each is ready.

        Raises `ProcessDiedError` for the first that ends or takes too long; call `stop` then too.
        """
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "kb.orphan_guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=tuple(self.kept_files),
        )
        while not self.all_ready:
            self.poll()
            time.sleep(self.poll_interval_s)

    def watch(self, stop: threading.Event) -> None:
        """Restart children that end, until `stop` is set.

        Raises `ProcessDiedError` when one ended more often than `max_restarts`.
        """
        while not stop.wait(self.poll_interval_s):
            self.poll()

    @property
    def all_ready(self) -> bool:
        """True when every child is ready."""
        return all(child.state is ProcessState.READY for child in self._children.values())

    def get_reports(self) -> list[ProcessReport]:
        """Return one report per child, in the order of the specs."""
        return [self._report(child) for child in self._children.values()]

    def poll(self) -> None:
        """Look at each child once and take the next step: start, note readiness, restart."""
        for child in self._children.values():
            match child.state:
                case ProcessState.WAITING:
                    if all(self._children[name].state is ProcessState.READY for name in child.spec.after):
                        self._spawn(child)
                case ProcessState.RESTARTING:
                    if self.clock() >= child.due_at:
                        self._spawn(child)
                case ProcessState.STARTING | ProcessState.READY:
                    self._check(child)
                case ProcessState.STOPPING | ProcessState.STOPPED:
                    pass

    def stop(self) -> None:
        """End all children in `stop_order`: ask, then kill the whole group. May be called twice."""
        for name in self.stop_order:
            child = self._children[name]
            if child.process is not None:
                self._set(child, ProcessState.STOPPING, "")
                self._end(child, grace_s=child.spec.stop_grace_s)
            self._set(child, ProcessState.STOPPED, "")
        guard, self._guard = self._guard, None
        if guard is not None:
            assert guard.stdin is not None
            with suppress(BrokenPipeError):
                guard.stdin.close()
            guard.wait()

    # -- one child
    def _spawn(self, child: _Child) -> None:
        spec = child.spec
        rotate_log(spec.log_path)
        with spec.log_path.open("ab") as log:
            child.log_offset = log.tell()
            try:
                child.process = subprocess.Popen(
                    spec.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=dict(self.environment),
                    start_new_session=True,
                )
            except OSError as error:
                raise ProcessDiedError(
                    spec.name, outcome=f"could not be started: {error}", log_path=spec.log_path, tail=()
                ) from error
        self._tell_guard(f"+{child.process.pid}")
        child.started_at = self.clock()
        self._set(child, ProcessState.STARTING, "")

    def _check(self, child: _Child) -> None:
        assert child.process is not None
        exit_code = child.process.poll()
        if exit_code is not None:
            self._handle_end(child, describe_exit(exit_code))
            return
        elapsed = self.clock() - child.started_at
        if child.state is ProcessState.READY:
            if child.restarts and elapsed > self.stable_after_s:
                child.restarts = 0
            return
        awaited = child.spec.check_ready()
        if not awaited:
            child.ready_s = elapsed
            self._set(child, ProcessState.READY, "")
        elif elapsed > child.spec.ready_timeout_s:
            self._handle_end(child, f"was not ready after {elapsed:.0f} s: {awaited}")
        else:
            self._set(child, ProcessState.STARTING, awaited)

    def _handle_end(self, child: _Child, outcome: str) -> None:
        self._end(child, grace_s=child.spec.stop_grace_s)
        was_ready_once = child.ready_s is not None
        if not was_ready_once or child.restarts >= self.max_restarts:
            if was_ready_once:
                outcome += f", after {child.restarts} restarts"
            self._set(child, ProcessState.STOPPED, outcome)
            tail = read_tail(child.spec.log_path, offset=child.log_offset)
            raise ProcessDiedError(child.spec.name, outcome=outcome, log_path=child.spec.log_path, tail=tail)
        pause_s = self.backoff_s * 2**child.restarts
        child.restarts += 1
        child.due_at = self.clock() + pause_s
        self._set(
            child,
            ProcessState.RESTARTING,
            f"{outcome}; restart {child.restarts} of {self.max_restarts} in {pause_s:g} s",
        )

    def _end(self, child: _Child, *, grace_s: float) -> None:
        process, child.process = child.process, None
        assert process is not None
        # Only the leader is asked: it ends its own helpers in an orderly way, or they die with the group.
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=grace_s)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._tell_guard(f"-{process.pid}")

    def _tell_guard(self, line: str) -> None:
        if self._guard is not None:
            assert self._guard.stdin is not None
            with suppress(BrokenPipeError):
                self._guard.stdin.write(f"{line}\n".encode())
                self._guard.stdin.flush()

    def _set(self, child: _Child, state: ProcessState, detail: str) -> None:
        if (state, detail) != (child.state, child.detail):
            child.state, child.detail = state, detail
            self.on_change(self._report(child))

    def _report(self, child: _Child) -> ProcessReport:
        return ProcessReport(
            name=child.spec.name,
            state=child.state,
            detail=child.detail,
            pid=child.process.pid if child.process else None,
            port=child.spec.port,
            log_path=child.spec.log_path,
            restarts=child.restarts,
            ready_s=child.ready_s,
        )


def describe_exit(exit_code: int) -> str:
    """Return an exit code as the end of a sentence; negative ones are signals."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"


def rotate_log(path: Path, *, max_bytes: int = MAX_LOG_BYTES, kept: int = KEPT_LOGS) -> None:
    """Move a log that grew beyond `max_bytes` to `<name>.1` and so on; older than `kept` are dropped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.stat().st_size <= max_bytes:
        return
    for number in range(kept, 0, -1):
        source = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
        if source.exists():
            source.replace(path.with_name(f"{path.name}.{number}"))


def read_tail(path: Path, *, offset: int = 0, lines: int = TAIL_LINES) -> list[str]:
    """Return the last lines written after byte `offset`, without colours and empty lines."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            text = _read_from(file, max(offset, end - 16_384))
    except OSError:
        return []
    stripped = (_ANSI.sub("", line).rstrip() for line in text.splitlines())
    return [line for line in stripped if line][-lines:]


def _read_from(file: BinaryIO, position: int) -> str:
    file.seek(position)
    return file.read().decode("utf-8", errors="replace")
