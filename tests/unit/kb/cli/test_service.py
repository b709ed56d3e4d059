from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from kb.cli.service import Service, signals_as_interrupt, watching
from kb.embedded import (
    AlreadyRunningError,
    DataFolderLock,
    EmbeddedProfile,
    build_profile,
    check_port,
    chroma_check,
    find_chroma_command,
    find_listener,
    raise_open_file_limit,
)
from kb.errors import ConfigurationError
from kb.private_redis import find_free_port
from kb.settings import load_settings
from kb.supervisor import ProcessDiedError, ProcessSpec, Supervisor
from tests.unit.kb.cli.fake_service import State, create_app, serve


def test_a_service_that_gives_up_interrupts_what_runs(tmp_path: Path) -> None:
    spec = ProcessSpec(
        name="worker",
        command=(sys.executable, "-c", "import time; time.sleep(600)"),
        log_path=tmp_path / "worker.log",
        check_ready=lambda: "",
    )
    supervisor = Supervisor(specs=[spec], stop_order=["worker"], environment=dict(os.environ), max_restarts=0)
    profile = EmbeddedProfile((spec,), {}, "http://api", "redis://", "http://chroma")
    service = Service(profile, tmp_path, ready_s=1.0)
    try:
        supervisor.start()
        pid = supervisor.get_reports()[0].pid
        assert pid is not None
        with pytest.raises(ProcessDiedError, match="SIGKILL"):
            serve_and_kill(supervisor, service, pid)
    finally:
        supervisor.stop()


def serve_and_kill(supervisor: Supervisor, service: Service, pid: int) -> None:
    with signals_as_interrupt(), watching(supervisor, service, on_restart=lambda: None):
        os.kill(pid, signal.SIGKILL)
        service.wait()


def test_chroma_is_ready_when_its_heartbeat_answers() -> None:
    app = create_app(State())
    app.get("/api/v2/heartbeat")(lambda: {"nanosecond heartbeat": 1})

    with serve(app) as url:
        assert chroma_check(url)() == ""
    assert chroma_check("http://127.0.0.1:1")() == "waits for its heartbeat"


def test_the_chroma_command_lies_beside_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = Path(find_chroma_command()[0])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigurationError, match="chroma"):
        find_chroma_command()

    assert beside.name == "chroma"
    assert beside.is_file()


def test_nobody_listens_on_a_free_port() -> None:
    assert find_listener(find_free_port()) is None


def test_a_port_that_cannot_be_used_says_why() -> None:
    with pytest.raises(ConfigurationError, match="cannot be used"):
        check_port("203.0.113.7", 8000)


def test_two_locks_on_one_folder_exclude_each_other(tmp_path: Path) -> None:
    first = DataFolderLock(tmp_path)

    with pytest.raises(AlreadyRunningError, match=str(os.getpid())):
        DataFolderLock(tmp_path)
    first.release()

    DataFolderLock(tmp_path).release()


def test_only_what_no_setting_names_is_started(tmp_path: Path) -> None:
    own = build_profile(load_settings(api_port=8123), tmp_path)
    foreign = build_profile(
        load_settings(
            redis_url="redis://cache", chroma_url="http://chroma", api_host="0.0.0.0", api_url="http://far"
        ),
        tmp_path,
    )

    assert own.stop_order == ("api", "worker", "chroma", "redis")
    assert own.environment["KB_CHROMA_URL"] == own.chroma_url
    assert own.environment["KB_REDIS_URL"] == f"unix://{tmp_path}/run/redis.sock"
    assert {spec.name: spec.after for spec in own.specs}["api"] == ("redis", "chroma")
    assert sum(spec.stop_grace_s for spec in own.specs) < 10
    assert foreign.stop_order == ("api", "worker")
    assert foreign.environment["KB_REDIS_URL"] == "redis://cache"
    assert foreign.api_url == "http://127.0.0.1:8000"


def test_the_open_file_limit_never_falls() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    raise_open_file_limit()

    after = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert after[0] >= before[0]
    assert after[1] == before[1]
