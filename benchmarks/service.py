"""A service for benchmarks: `kb up` in processes of its own, in a folder of its own, and their memory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from kb.cli.session import ExitCode
from kb.client import KbClient, ServiceUnreachableError

_START_LIMIT_S = 300.0
_MIB = 1024**2
_ROLES = {
    "ingest.parse_child": "parser",
    "workers": "worker",
    "api": "api",
    "chroma": "chroma",
    "chromadb": "chroma",
    "up": "supervisor",
}


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of all processes at one moment, in MiB, by role.

    Shared pages are counted once, divided among those that share them (PSS).
    """

    by_role: dict[str, float]

    @property
    def total_mib(self) -> float:
        """All processes together."""
        return sum(self.by_role.values())


@dataclass(frozen=True, slots=True)
class BenchmarkService:
    """A running service."""

    client: KbClient
    process: psutil.Process

    def measure_memory(self) -> Memory:
        """Return the memory of the process tree now."""
        by_role: defaultdict[str, float] = defaultdict(float)
        for process in (self.process, *self.process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                by_role[_find_role(process.cmdline())] += process.memory_full_info().pss / _MIB
        return Memory(dict(by_role))


@contextmanager
def start_service(folder: Path, **settings: str) -> Iterator[BenchmarkService]:
    """Run `kb up` until the end of the block; `settings` are `KB_…` variables beside those set here.

    The models are those of `KB_MODELS_DIR`, or of `data/models`.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    models = os.environ.get("KB_MODELS_DIR", str(Path(__file__).resolve().parents[1] / "data" / "models"))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KB_")}
    environment |= {
        "KB_DATA_DIR": str(folder / "data"),
        "KB_MODELS_DIR": models,
        "KB_API_PORT": str(port),
        "KB_GENERATOR": "extractive",
        **settings,
    }
    log = folder / "kb-up.log"
    with log.open("wb") as sink:
        started = subprocess.Popen(
            [sys.executable, "-c", "from kb.cli.main import main; main()", "up"],
            env=environment,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        with KbClient(f"http://127.0.0.1:{port}", timeout_s=120) as client:
            _wait_until_ready(client, started, log)
            yield BenchmarkService(client, psutil.Process(started.pid))
    finally:
        if started.poll() is None:
            started.terminate()
            try:
                started.wait(60)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


def _wait_until_ready(client: KbClient, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            sys.stderr.write(log.read_text("utf-8", "replace")[-3000:])
            raise SystemExit(ExitCode.FAILED)
        with suppress(ServiceUnreachableError):
            ready = client.get_ready()
            if all(dependency.ok for dependency in ready.dependencies if dependency.name == "workers"):
                return
        time.sleep(0.5)


def _find_role(command: list[str]) -> str:
    for part in command[1:]:
        role = _ROLES.get(Path(part).name)
        if role is not None:
            return role
    return Path(command[0]).name if command else "other"
