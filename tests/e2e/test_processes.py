"""`kb up` as its user sees it: it starts, says what is wrong, ends cleanly and loses nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import psutil

from tests.service import KB_COMMAND, ROOT, start_service, wait_until

NOTE = "泵站点检\n\n三号泵的更换周期为 4321 小时。\n"


def list_processes(data_dir: Path) -> list[psutil.Process]:
    """Return the running processes that `kb up` started for this data folder."""
    state = json.loads((data_dir / "run" / "state.json").read_text())
    return [psutil.Process(p["pid"]) for p in state["processes"] if psutil.pid_exists(p["pid"])]


def test_ctrl_c_ends_every_process_and_the_next_start_knows_everything(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with start_service(data_dir) as service:
        result = service.upload("泵站.txt", NOTE.encode())
        service.wait_for_document(result["document"]["id"])
        processes = list_processes(data_dir)
        assert len(processes) >= 4
        tree = [child for process in processes for child in [process, *process.children(recursive=True)]]

        service.process.send_signal(signal.SIGINT)

        assert service.process.wait(30) == 0
        wait_until(lambda: not any(is_alive(process) for process in tree), what="no process left")

    with start_service(data_dir) as service:
        found = service.http.post("/v1/search", json={"query": "三号泵 更换周期"}).json()["passages"]
        assert "4321 小时" in found[0]["text"]


def is_alive(process: psutil.Process) -> bool:
    """Return whether the process still does something."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_killed_supervisor_leaves_no_orphans(tmp_path: Path) -> None:
    with start_service(tmp_path / "data") as service:
        tree = [
            child
            for process in list_processes(service.data_dir)
            for child in [process, *process.children(recursive=True)]
        ]

        service.process.kill()

        wait_until(lambda: not any(is_alive(process) for process in tree), what="no process left")


def test_a_busy_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]

        result = subprocess.run(
            [*KB_COMMAND, "up"],
            env=_environment(tmp_path, KB_API_PORT=str(port)),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert result.returncode not in (0, 130)
    assert str(port) in result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr


def test_missing_models_name_the_command_that_fetches_them(tmp_path: Path) -> None:
    result = subprocess.run(
        [*KB_COMMAND, "up"],
        env=_environment(tmp_path, KB_MODELS_DIR=str(tmp_path / "none")),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert result.returncode == 5
    assert "kb models pull" in result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr


def test_a_wrong_setting_stops_the_process_with_its_name(tmp_path: Path) -> None:
    result = subprocess.run(
        [*KB_COMMAND, "up"],
        env=_environment(tmp_path, KB_TOPK="3"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert result.returncode == 5
    assert "KB_TOPK" in result.stdout + result.stderr


def _environment(tmp_path: Path, **settings: str) -> dict[str, str]:
    base = {key: value for key, value in os.environ.items() if not key.startswith("KB_")}
    return base | {"KB_DATA_DIR": str(tmp_path / "data")} | settings
