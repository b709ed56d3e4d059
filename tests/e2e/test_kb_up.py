"""`kb up` and `kb demo` as processes, with a small API and worker, and a real private Redis."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from kb.embedded import AlreadyRunningError, DataFolderLock
from kb.private_redis import find_free_port
from tests.unit.kb.cli.fake_processes import write_packages
from tests.unit.kb.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
KB = [sys.executable, "-c", "from kb.cli.main import main; main()"]


class Place:
    """A folder where `kb` finds the small API and worker, and a data folder with a free port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.port = find_free_port()
        self.started: list[subprocess.Popen[str]] = []
        write_packages(folder)
        embedder = folder / "models" / "embedder"
        embedder.mkdir(parents=True)
        (embedder / "modules.json").write_text("[]")

    def environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KB_")}
        return {
            **kept,
            "PYTHONPATH": str(ROOT),
            "KB_DATA_DIR": str(self.data_dir),
            "KB_MODELS_DIR": str(self.folder / "models"),
            "KB_API_PORT": str(self.port),
            "KB_CHROMA_URL": "http://127.0.0.1:1",
            **settings,
        }

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*KB, *arguments],
            cwd=self.folder,
            env=self.environment(settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str, **settings: str) -> tuple[int, str]:
        process = self.start(*arguments, **settings)
        out, _ = process.communicate(timeout=100)
        return process.returncode, out

    def start_ready(self, **settings: str) -> subprocess.Popen[str]:
        process = self.start("up", **settings)
        wait_for(lambda: self.state_file.exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        return process

    @property
    def state_file(self) -> Path:
        return self.data_dir / "run" / "state.json"

    def read_state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.state_file.read_text())
        return state

    def pid(self, name: str) -> int:
        pid: int = next(item["pid"] for item in self.read_state()["processes"] if item["name"] == name)
        return pid


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
        assert process.stdout is not None
        process.stdout.close()


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_starts_everything_and_a_signal_ends_everything(place: Place, number: signal.Signals) -> None:
    process = place.start_ready()
    state = place.read_state()
    mode = stat.S_IMODE(place.state_file.stat().st_mode)
    pids = [item["pid"] for item in state["processes"]]
    alive_before = [is_alive(pid) for pid in pids]
    status = place.run("status")

    process.send_signal(number)
    out, _ = process.communicate(timeout=30)

    assert [item["name"] for item in state["processes"]] == ["redis", "worker", "api"]
    assert all(alive_before)
    assert mode == 0o600
    assert status[0] == 0
    assert process.returncode == 0
    assert not any(is_alive(pid) for pid in pids)
    assert not place.state_file.exists()
    for words in (
        "api is ready",
        f"on http://127.0.0.1:{place.port}",
        "/docs",
        "Ctrl-C stops it",
        "Stopped.",
    ):
        assert words in out
    log = (place.data_dir / "logs" / "api.log").read_text()
    assert f"KB_REDIS_URL {state['redis_url']}" in log
    assert f"KB_DATA_DIR {place.data_dir}" in log
    assert "HF_HUB_OFFLINE 1" in log


def test_on_a_terminal_each_process_has_a_line(place: Place) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*KB, "up"], cwd=place.folder, env=place.environment({"TERM": "xterm"}), stdout=slave, stderr=slave
    )
    os.close(slave)
    shown = b""
    while b"Ctrl-C stops it" not in shown:
        shown += os.read(master, 4096)

    process.send_signal(signal.SIGINT)
    while piece := read_pty(master):
        shown += piece
    os.close(master)

    assert process.wait(30) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    for name in ("redis", "worker", "api"):
        assert re.search(rf"✓ {name} +ready +[0-9.]+ s", text)
    assert "waits for its stores" in text


def read_pty(master: int) -> bytes:
    """Return the next bytes, none once the other side is closed."""
    try:
        return os.read(master, 4096)
    except OSError:
        return b""


def test_a_second_up_on_the_same_data_is_refused(place: Place) -> None:
    first = place.start_ready()

    code, out = place.run("up", KB_API_PORT=str(find_free_port()))

    assert code == 5
    assert f"already runs on the data folder '{place.data_dir}' (process {first.pid})" in out
    assert first.poll() is None


def test_a_killed_child_is_started_again_and_reported(place: Place) -> None:
    process = place.start_ready()
    first = place.pid("worker")

    os.kill(first, signal.SIGKILL)
    wait_for(lambda: place.pid("worker") not in (first, None))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)

    assert process.returncode == 0
    assert "worker was killed by SIGKILL; restart 1 of 5 in 1 s. Log:" in out


def test_the_data_folder_is_free_again_after_a_kill(place: Place) -> None:
    first = place.start_ready()
    pids = [item["pid"] for item in place.read_state()["processes"]]
    first.kill()
    first.wait()
    place.state_file.unlink()
    # until the last child of the killed one is gone, its guard holds the lock
    wait_for(lambda: not any(is_alive(pid) for pid in pids))
    wait_for(lambda: is_free(place.data_dir))

    second = place.start_ready()

    assert second.poll() is None


def is_free(data_dir: Path) -> bool:
    try:
        DataFolderLock(data_dir).release()
    except AlreadyRunningError:
        return False
    return True


def test_a_busy_port_is_named_with_its_process(place: Place) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", place.port))
        busy.listen()

        code, out = place.run("up")

    assert code == 5
    assert f"port {place.port} on 127.0.0.1 cannot be used: used by" in out
    assert f"(process {os.getpid()})" in out
    assert "KB_API_PORT" in out
    assert "Traceback" not in out


def test_a_missing_embedder_names_the_command_that_fetches_it(place: Place) -> None:
    code, out = place.run("up", KB_MODELS_DIR=str(place.folder / "none"))

    assert code == 5
    assert "no embedding model" in out
    assert "kb models pull" in out


def test_two_problems_are_told_at_once(place: Place) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", place.port))
        busy.listen()

        code, out = place.run("up", "--json", KB_MODELS_DIR=str(place.folder / "none"))

    error = json.loads(out)["error"]
    assert code == 5
    assert str(place.port) in error["message"]
    assert "no embedding model" in error["message"]
    assert "kb models pull" in error["next_step"]


def test_a_data_folder_that_cannot_be_used_is_named(place: Place) -> None:
    place.data_dir.write_text("a file")

    code, out = place.run("up")

    assert code == 5
    assert str(place.data_dir) in out


def test_a_child_that_dies_at_the_start_is_one_line_with_its_log(place: Place) -> None:
    code, out = place.run("up", FAKE_API_DIES="1")

    assert code == 1
    assert "the process api ended with exit code 7" in out
    assert "cannot open the catalog" in out
    assert str(place.data_dir / "logs" / "api.log") in out
    assert "Traceback" not in out


def test_ctrl_c_during_the_start_is_130(place: Place) -> None:
    process = place.start("up", "--json", FAKE_CATALOG_DOWN="1")
    assert process.stdout is not None
    lines: list[dict[str, Any]] = []
    while not (lines and lines[-1]["detail"] == "waits for catalog (locked)"):
        lines.append(json.loads(process.stdout.readline()))

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)

    assert process.returncode == 130


def test_as_json_each_change_is_a_line(place: Place) -> None:
    process = place.start("up", "--json")
    assert process.stdout is not None
    lines: list[dict[str, Any]] = []
    while not (lines and lines[-1].get("event") == "ready"):
        lines.append(json.loads(process.stdout.readline()))

    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)

    assert lines[-1]["url"] == f"http://127.0.0.1:{place.port}"
    assert {"process": "redis", "state": "ready", "detail": ""} in lines
    assert {"process": "api", "state": "stopped", "detail": ""} in [
        json.loads(line) for line in out.splitlines()
    ]


# -- the demonstration

QUESTIONS = """
[[question]]
id = "press-e0471"
lang = "zh"
kind = "code"
text = "E-0471 是什么故障，怎么处理？"
answerable = true
answers = ["吸油滤芯"]
evidence = [{ document = "press_manual_zh.pdf", page = 9 }]

[[question]]
id = "moon"
lang = "en"
kind = "unanswerable"
text = "How far is the moon?"
answerable = false
"""


@pytest.fixture
def samples(place: Place) -> Path:
    folder = place.folder / "sample_docs"
    folder.mkdir()
    (folder / "press_manual_zh.pdf").write_text("press")
    (folder / "README.md").write_text("about")
    (folder / "build.py").write_text("pass")
    (folder / "questions.toml").write_text(QUESTIONS, encoding="utf-8")
    return folder


def test_the_demonstration_ingests_asks_and_ends(place: Place, samples: Path) -> None:
    code, out = place.run("demo", "--once")

    assert code == 0, out
    for words in (
        "Ingesting 1 sample",
        "1 document: 1 ready",
        "1/2 E-0471 是什么故障",
        "[1] 《press_manual_zh.pdf》第 9 页",
    ):
        assert words in out
    for words in ("press_manual_zh.pdf p. 9", "refused", "2 of 2 as expected", "Stopped."):
        assert words in out


def test_the_demonstration_serves_until_it_is_stopped(place: Place, samples: Path) -> None:
    process = place.start("demo")
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    seen = next(line for line in lines if "Ctrl-C stops it" in line)
    status = place.run("status")

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)

    assert seen
    assert status[0] == 0
    assert process.returncode == 0


def test_a_failed_sample_fails_the_demonstration(place: Place, samples: Path) -> None:
    (samples / "broken.pdf").write_text("cut off")

    code, out = place.run("demo", "--once", "--json", "--questions", "1")

    report = json.loads(out)
    assert code == 1
    assert [row["state"] for row in report["documents"]] == ["failed", "ready"]
    assert [answer["as_expected"] for answer in report["answers"]] == [True]
