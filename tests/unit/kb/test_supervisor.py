from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kb.orphan_guard import end_groups, follow
from kb.supervisor import (
    ProcessDiedError,
    ProcessReport,
    ProcessSpec,
    ProcessState,
    Supervisor,
    describe_exit,
    read_tail,
    rotate_log,
)
from tests.unit.kb.waiting import wait_for

# Says that it runs by touching a file, then waits for signals; `deaf` ignores SIGTERM.
CHILD = """
import pathlib, signal, subprocess, sys, time
mark, kind = pathlib.Path(sys.argv[1]), sys.argv[2]
if kind == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if kind == "parent":
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    mark.with_suffix(".helper").write_text(str(helper.pid))
if kind == "dies":
    print("\\x1b[31mno such host\\x1b[0m", flush=True)
    sys.exit(3)
mark.touch()
time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Bench:
    """Builds supervisors of small children, and ends what a failing test leaves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports: list[ProcessReport] = []
        self.supervisors: list[Supervisor] = []

    def spec(self, name: str, kind: str = "plain", **changes: Any) -> ProcessSpec:
        mark = self.folder / f"{name}.mark"
        fields: dict[str, Any] = {
            "name": name,
            "command": (sys.executable, "-c", CHILD, str(mark), kind),
            "log_path": self.folder / "logs" / f"{name}.log",
            "check_ready": lambda: "" if mark.exists() else "loads",
            "stop_grace_s": 10.0,
        }
        return ProcessSpec(**fields | changes)

    def supervise(self, *specs: ProcessSpec, **changes: Any) -> Supervisor:
        fields: dict[str, Any] = {
            "specs": specs,
            "stop_order": [spec.name for spec in reversed(specs)],
            "environment": dict(os.environ),
            "on_change": self.reports.append,
            "poll_interval_s": 0.02,
            "backoff_s": 0.0,
        }
        supervisor = Supervisor(**fields | changes)
        self.supervisors.append(supervisor)
        return supervisor

    def pid(self, supervisor: Supervisor, name: str) -> int:
        pid = next(report.pid for report in supervisor.get_reports() if report.name == name)
        assert pid is not None
        return pid


def poll_until(supervisor: Supervisor, condition: Callable[[], bool]) -> None:
    def polled() -> bool:
        supervisor.poll()
        return condition()

    wait_for(polled)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for supervisor in made.supervisors:
        supervisor.stop()


def test_children_start_in_order_and_all_end(bench: Bench) -> None:
    supervisor = bench.supervise(bench.spec("store"), bench.spec("api", after=("store",)))

    supervisor.start()
    pids = [bench.pid(supervisor, name) for name in ("store", "api")]
    alive = [is_alive(pid) for pid in pids]
    supervisor.stop()
    supervisor.stop()

    became_ready = [report.name for report in bench.reports if report.state is ProcessState.READY]
    ended = [report.name for report in bench.reports if report.state is ProcessState.STOPPED]
    assert alive == [True, True]
    assert became_ready == ["store", "api"]
    assert ended == ["api", "store"]
    assert not any(is_alive(pid) for pid in pids)


def test_a_child_waits_until_what_it_needs_is_ready(bench: Bench) -> None:
    gate = threading.Event()
    store = bench.spec("store", check_ready=lambda: "" if gate.is_set() else "loads its rows")
    supervisor = bench.supervise(store, bench.spec("api", after=("store",)))

    supervisor.poll()
    supervisor.poll()
    first = {report.name: report for report in supervisor.get_reports()}
    gate.set()
    supervisor.poll()
    supervisor.poll()
    second = {report.name: report for report in supervisor.get_reports()}

    assert first["store"].detail == "loads its rows"
    assert (first["api"].state, first["api"].pid) == (ProcessState.WAITING, None)
    assert second["store"].state is ProcessState.READY
    assert second["api"].pid is not None


def test_a_child_that_dies_at_the_start_is_named_with_its_last_words(bench: Bench) -> None:
    supervisor = bench.supervise(bench.spec("worker", "dies"))

    with pytest.raises(ProcessDiedError, match="worker ended with exit code 3") as caught:
        supervisor.start()

    assert caught.value.tail == ("no such host",)
    assert str(caught.value.log_path) in caught.value.next_step


def test_a_command_that_does_not_exist_is_named(bench: Bench) -> None:
    supervisor = bench.supervise(bench.spec("worker", command=("/no/such/program",)))

    with pytest.raises(ProcessDiedError, match="could not be started"):
        supervisor.start()


def test_a_child_that_never_gets_ready_is_given_up(bench: Bench) -> None:
    supervisor = bench.supervise(
        bench.spec("api", check_ready=lambda: "waits for chroma", ready_timeout_s=0.0)
    )

    with pytest.raises(ProcessDiedError, match="not ready after 0 s: waits for chroma"):
        supervisor.start()

    assert all(report.pid is None for report in supervisor.get_reports())


def test_a_child_that_dies_later_is_started_again(bench: Bench) -> None:
    supervisor = bench.supervise(bench.spec("worker"))
    supervisor.start()
    first = bench.pid(supervisor, "worker")
    stop = threading.Event()
    watcher = threading.Thread(target=supervisor.watch, args=(stop,))
    watcher.start()

    os.kill(first, signal.SIGKILL)
    wait_for(lambda: any(report.state is ProcessState.RESTARTING for report in bench.reports))
    wait_for(lambda: bench.reports[-1].state is ProcessState.READY)
    stop.set()
    watcher.join()

    restarting = next(report for report in bench.reports if report.state is ProcessState.RESTARTING)
    assert restarting.detail == "was killed by SIGKILL; restart 1 of 5 in 0 s"
    assert bench.pid(supervisor, "worker") != first


def test_restarts_back_off_and_end(bench: Bench) -> None:
    now = 0.0
    supervisor = bench.supervise(bench.spec("worker"), backoff_s=1.0, max_restarts=3, clock=lambda: now)
    supervisor.start()
    pauses: list[float] = []

    def kill_and_see() -> None:
        nonlocal now
        os.kill(bench.pid(supervisor, "worker"), signal.SIGKILL)
        begun = len(bench.reports)
        poll_until(supervisor, lambda: len(bench.reports) > begun)
        pause = 0.0
        while bench.reports[-1].state is not ProcessState.READY:
            now += 0.5
            pause += 0.5
            supervisor.poll()
            if bench.reports[-1].state is ProcessState.STARTING:
                pauses.append(pause)
                poll_until(supervisor, lambda: supervisor.all_ready)

    for _ in range(3):
        kill_and_see()
    with pytest.raises(ProcessDiedError, match="killed by SIGKILL, after 3 restarts"):
        kill_and_see()

    assert pauses == [1.0, 2.0, 4.0]


def test_a_long_quiet_time_forgets_former_restarts(bench: Bench) -> None:
    now = 0.0
    supervisor = bench.supervise(bench.spec("worker"), clock=lambda: now, stable_after_s=100.0)
    supervisor.start()
    os.kill(bench.pid(supervisor, "worker"), signal.SIGKILL)
    poll_until(supervisor, lambda: supervisor.get_reports()[0].restarts == 1)
    poll_until(supervisor, lambda: supervisor.all_ready)

    now = 101.0
    supervisor.poll()

    assert supervisor.get_reports()[0].restarts == 0


def test_a_child_deaf_to_the_request_is_killed(bench: Bench) -> None:
    supervisor = bench.supervise(bench.spec("api", "deaf", stop_grace_s=0.1))
    supervisor.start()
    pid = bench.pid(supervisor, "api")

    supervisor.stop()

    assert not is_alive(pid)


def test_helpers_of_a_child_end_with_it(bench: Bench) -> None:
    supervisor = bench.supervise(bench.spec("worker", "parent"))
    supervisor.start()
    helper = int((bench.folder / "worker.helper").read_text())
    alive_before = is_alive(helper)

    supervisor.stop()

    assert alive_before
    wait_for(lambda: not is_alive(helper))


SUPERVISOR_PROCESS = """
import os, pathlib, sys, time
from kb.supervisor import ProcessSpec, Supervisor
folder = pathlib.Path(sys.argv[1])
mark = folder / "child.mark"
lock = (folder / "lock").open("w")
spec = ProcessSpec(
    name="child", command=(sys.executable, "-c", sys.argv[2], str(mark), sys.argv[3]),
    log_path=folder / "child.log", check_ready=lambda: "" if mark.exists() else "loads",
)
supervisor = Supervisor(
    specs=[spec], stop_order=["child"], environment=dict(os.environ), kept_files=(lock.fileno(),)
)
supervisor.start()
print(supervisor.get_reports()[0].pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["plain", "parent"])
def test_children_and_their_helpers_end_when_the_supervisor_is_killed(tmp_path: Path, kind: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR_PROCESS, str(tmp_path), CHILD, kind], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    pids = [int(process.stdout.readline())]
    if kind == "parent":
        pids.append(int((tmp_path / "child.helper").read_text()))
    alive_before = [is_alive(pid) for pid in pids]

    process.kill()
    process.wait()
    process.stdout.close()

    assert all(alive_before)
    wait_for(lambda: not any(is_alive(pid) for pid in pids))


def test_the_guard_knows_who_is_left() -> None:
    assert follow(["+10\n", "+11\n", "-10\n", "+12\n", "-99\n"]) == {11, 12}


def test_the_guard_kills_who_does_not_listen(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    deaf = subprocess.Popen([sys.executable, "-c", CHILD, str(mark), "deaf"], start_new_session=True)
    wait_for(mark.exists)

    end_groups({deaf.pid, 2**22 - 3}, grace_s=0.1)

    assert deaf.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("code", "said"),
    [(0, "ended with exit code 0"), (-9, "was killed by SIGKILL"), (-250, "was killed by signal 250")],
)
def test_exit_codes_are_said_in_words(code: int, said: str) -> None:
    assert describe_exit(code) == said


def test_logs_move_on_when_they_are_large_and_the_oldest_goes(tmp_path: Path) -> None:
    log = tmp_path / "new" / "api.log"
    rotate_log(log, max_bytes=3)
    for text in ("one!", "two!", "three", "four!", "ok"):
        rotate_log(log, max_bytes=3, kept=2)
        log.write_text(text)
    rotate_log(log, max_bytes=3, kept=2)

    assert {path.name: path.read_text() for path in log.parent.iterdir()} == {
        "api.log": "ok",
        "api.log.1": "four!",
        "api.log.2": "three",
    }


def test_the_tail_is_what_this_run_said_last(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    log.write_bytes(b"former run\n")
    offset = log.stat().st_size
    with log.open("ab") as file:
        file.write(b"\x1b[1mone\x1b[0m\n\ntwo \xff\nthree\n")

    assert read_tail(log, offset=offset, lines=2) == ["two \ufffd", "three"]
    assert read_tail(log, offset=offset) == ["one", "two \ufffd", "three"]
    assert read_tail(tmp_path / "none.log") == []
