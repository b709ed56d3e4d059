"""The production shape: every process started by itself, PostgreSQL, and a runtime over HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from kb.private_redis import find_server_binary
from tests.runtime_server import USAGE, delta, serve_runtime
from tests.servers import find_free_port, fresh_database, running_chroma, running_postgresql
from tests.service import ROOT, find_models_dir, wait_until

NOTE = "四号空压机\n\n四号空压机的排气温度超过 105 °C 时，清洗冷却器翅片。\n"


@contextmanager
def running(*command: str, environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process and end it as a service manager does."""
    with log.open("wb") as sink:
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=sink, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail(f"{command} did not end on SIGTERM:\n{log.read_text('utf-8', 'replace')[-3000:]}")


def test_processes_started_one_by_one_make_the_same_service(tmp_path: Path) -> None:
    models = find_models_dir()
    with ExitStack() as stack:
        database = stack.enter_context(fresh_database(stack.enter_context(running_postgresql())))
        runtime = stack.enter_context(serve_runtime())
        runtime.events = (delta("清洗冷却器翅片 [1]。", finish="stop"), USAGE, "[DONE]")
        (tmp_path / "chroma").mkdir()
        chroma = stack.enter_context(running_chroma(tmp_path / "chroma"))
        redis_port, api_port = find_free_port(), find_free_port()
        url = f"http://127.0.0.1:{api_port}"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("KB_")} | {
            "KB_DATA_DIR": str(tmp_path / "data"),
            "KB_MODELS_DIR": str(models),
            "KB_REDIS_URL": f"redis://127.0.0.1:{redis_port}/0",
            "KB_CHROMA_URL": chroma.url,
            "KB_DATABASE_URL": database,
            "KB_GENERATOR_URL": runtime.url,
            "KB_API_PORT": str(api_port),
            "KB_API_KEY": "a-key-of-sixteen-characters",
        }
        (tmp_path / "redis").mkdir()
        redis_command = [
            str(find_server_binary()),
            *("--port", str(redis_port), "--bind", "127.0.0.1"),
            *("--appendonly", "yes", "--dir", str(tmp_path / "redis")),
        ]
        for name, command in {
            "redis": redis_command,
            "worker": [sys.executable, "-m", "workers"],
            "api": [sys.executable, "-m", "api"],
        }.items():
            log = tmp_path / f"{name}.log"
            stack.enter_context(running(*command, environment=environment, log=log))
        client = stack.enter_context(
            httpx.Client(base_url=url, timeout=60, headers={"X-API-Key": environment["KB_API_KEY"]})
        )
        wait_until(lambda: is_ready(client), limit_s=120, what="every dependency ready")

        assert httpx.get(f"{url}/v1/collections").status_code == 401
        upload = client.post(
            "/v1/collections/default/documents", files={"files": ("空压机.txt", NOTE.encode())}
        )
        document_id = upload.json()["results"][0]["document"]["id"]
        path = f"/v1/collections/default/documents/{document_id}"
        wait_until(lambda: client.get(path).json()["state"] == "ready", limit_s=120, what="the note ready")
        answer = client.post("/v1/ask", json={"question": "四号空压机排气温度过高怎么办？"}).json()

        assert answer["mode"] == "generated"
        assert answer["model"] == "qwen-test"
        assert answer["answer"] == "清洗冷却器翅片[1]。"
        assert answer["citations"][0]["document_name"] == "空压机.txt"
        assert "105 °C" in runtime.bodies[-1]["messages"][-1]["content"]


def is_ready(client: httpx.Client) -> bool:
    """Return whether every dependency answers, the worker included."""
    try:
        return all(item["ok"] for item in client.get("/health/ready").json()["dependencies"])
    except httpx.TransportError:
        return False
