from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest
import redis

from kb.embedded import redis_check
from kb.errors import ConfigurationError
from kb.private_redis import MAX_SOCKET_PATH_BYTES, find_server_binary, prepare_private_redis
from tests.unit.kb.waiting import wait_for


def make_executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_server_on_the_path_comes_first(tmp_path: Path) -> None:
    valkey = make_executable(tmp_path / "b" / "valkey-server")
    found_one = find_server_binary(search_path=str(tmp_path / "b"))
    redis_server = make_executable(tmp_path / "a" / "redis-server")

    found_both = find_server_binary(search_path=f"{tmp_path / 'b'}:{tmp_path / 'a'}")

    assert found_one == valkey
    assert found_both == redis_server


def test_without_one_on_the_path_the_wheel_brings_it(tmp_path: Path) -> None:
    assert find_server_binary(search_path=str(tmp_path)).name == "valkey-server"


def test_no_server_at_all_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Plan9")

    with pytest.raises(ConfigurationError, match="no Redis-protocol server") as caught:
        find_server_binary(search_path=str(tmp_path))

    assert "KB_REDIS_URL" in caught.value.next_step


def wait_until_ready(url: str) -> None:
    check = redis_check(url)
    wait_for(lambda: not check())


@pytest.mark.parametrize("depth", ["short", 'long "quoted" 路径 ' + "x" * MAX_SOCKET_PATH_BYTES])
def test_the_server_keeps_what_it_was_given_over_a_kill(tmp_path: Path, depth: str) -> None:
    data_dir = tmp_path / depth
    for round_ in range(2):
        private = prepare_private_redis(data_dir, binary=find_server_binary())
        server = subprocess.Popen(private.command, stdout=subprocess.DEVNULL)
        try:
            wait_until_ready(private.url)
            with redis.Redis.from_url(private.url) as client:
                if round_ == 0:
                    client.set("key", "kept")
                assert client.get("key") == b"kept"
                assert client.config_get("appendonly") == {"appendonly": "yes"}
        finally:
            server.kill()
            server.wait()

    assert (private.port is None) == (depth == "short")


def test_only_this_user_can_use_it(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * MAX_SOCKET_PATH_BYTES)

    private = prepare_private_redis(deep, binary=Path("redis-server"))

    config = Path(private.command[1])
    password = private.url.split(":")[2].split("@")[0]
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert len(password) >= 32
    assert f"requirepass {password}" in config.read_text()
    assert "bind 127.0.0.1" in config.read_text()
    assert password not in " ".join(private.command)


def test_a_server_that_does_not_answer_is_not_ready(tmp_path: Path) -> None:
    assert redis_check(f"unix://{tmp_path}/none.sock")().startswith("waits for its first answer")
