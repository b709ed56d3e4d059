"""A real service for tests: `kb up` in its own processes, on free ports, in a temporary folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_docs"
START_LIMIT_S = 240.0
KB_COMMAND = [sys.executable, "-c", "from kb.cli.main import main; main()"]


def find_models_dir() -> Path:
    """Return the folder of the starter models; skips the test without them, fails it in CI."""
    path = Path(os.environ.get("KB_TEST_MODELS", ROOT / "data" / "models"))
    if not (path / "embedder").is_dir():
        reason = f"no starter models in {path}; run `make models`"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def find_free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def load_questions() -> list[dict[str, Any]]:
    """Return the sample questions."""
    return list(tomllib.loads((SAMPLES / "questions.toml").read_text("utf-8"))["question"])


def wait_until(condition: Callable[[], bool], *, limit_s: float = 60.0, what: str) -> None:
    """Return once the condition holds; fails the test after the limit."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"after {limit_s:g} s still not: {what}")
        time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Service:
    """A running service."""

    url: str
    data_dir: Path
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes]
    http: httpx.Client

    def run_kb(self, *arguments: str, limit_s: float = 300.0) -> subprocess.CompletedProcess[str]:
        """Run the kb command against this service."""
        return subprocess.run(
            [*KB_COMMAND, *arguments],
            env=dict(self.environment),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )

    def upload(self, name: str, content: bytes, *, collection: str = "default") -> dict[str, Any]:
        """Upload one file and return its result."""
        response = self.http.post(f"/v1/collections/{collection}/documents", files={"files": (name, content)})
        assert response.status_code == 202, response.text
        result: dict[str, Any] = response.json()["results"][0]
        return result

    def wait_for_document(self, document_id: str, *, collection: str = "default") -> dict[str, Any]:
        """Return the document once no worker will change it any more."""
        detail: dict[str, Any] = {}

        def is_done() -> bool:
            response = self.http.get(f"/v1/collections/{collection}/documents/{document_id}")
            assert response.status_code == 200, response.text
            detail.update(response.json())
            return detail["state"] in ("ready", "ready_with_warnings", "failed", "cancelled")

        wait_until(is_done, limit_s=240, what=f"{document_id} at an end")
        return detail

    def read_logs(self) -> str:
        """Return the end of each process's log."""
        logs = sorted((self.data_dir / "logs").glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text('utf-8', 'replace')[-3000:]}" for log in logs)


@contextmanager
def start_service(data_dir: Path, **settings: str) -> Iterator[Service]:
    """Run `kb up` and yield once it is ready; ends it as Ctrl-C does."""
    port = find_free_port()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KB_")}
    environment |= {
        "KB_DATA_DIR": str(data_dir),
        "KB_MODELS_DIR": str(find_models_dir()),
        "KB_API_PORT": str(port),
        "KB_JOB_LEASE_S": "5",
        **settings,
    }
    url = f"http://127.0.0.1:{port}"
    output = data_dir.parent / f"{data_dir.name}.out"
    with (
        output.open("wb") as sink,
        httpx.Client(base_url=url, timeout=120, trust_env=False) as http,
    ):
        process = subprocess.Popen(
            [*KB_COMMAND, "up"], env=environment, cwd=ROOT, stdout=sink, stderr=subprocess.STDOUT
        )
        service = Service(url, data_dir, environment, process, http)
        try:
            wait_until(lambda: _is_ready(service, output), limit_s=START_LIMIT_S, what="the service ready")
            state = data_dir / "run" / "state.json"
            wait_until(state.exists, what="the process list written")
            yield service
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _is_ready(service: Service, output: Path) -> bool:
    if service.process.poll() is not None:
        pytest.fail(f"kb up ended:\n{output.read_text('utf-8', 'replace')}\n{service.read_logs()}")
    try:
        response = service.http.get("/health/ready")
    except httpx.TransportError:
        return False
    workers = [d for d in response.json().get("dependencies", []) if d["name"] == "workers"]
    return response.status_code == 200 and all(d["ok"] for d in workers)
