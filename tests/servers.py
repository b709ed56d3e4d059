"""Real servers for tests: started on free ports or sockets in temporary folders, killed at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import httpx
import pytest
import sqlalchemy as sa

from kb.adapters.sql_database import parse_url

_READY_WITHIN_S = 60.0
_POLL_S = 0.05
_INITDB_OPTIONS = ("--no-sync", "--auth=trust", "--locale=C.UTF-8")


def skip_without(what: str) -> NoReturn:
    """Skip on a laptop that lacks a server; fail in CI, where all must be there."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}: needed in CI")
    pytest.skip(what)


def find_free_port() -> int:
    """Return a loopback port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(condition: Callable[[], bool], *, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for a starting server; fails with its log when it ends or takes too long."""
    pause = threading.Event()
    for _ in range(int(_READY_WITHIN_S / _POLL_S)):
        if condition():
            return
        if process.poll() is not None:
            break
        pause.wait(_POLL_S)
    pytest.fail(f"server not ready: {log.read_text(errors='replace')[-2000:]}")


class ChromaServer:
    """A `chroma run` process that can be killed and started again on the same folder and port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = find_free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = shutil.which("chroma", path=str(Path(sys.executable).parent)) or shutil.which("chroma")
        if command is None:
            skip_without("the chroma command is not installed")
        log = self._folder / "chroma.log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [command, "run", "--path", "chroma", "--host", "127.0.0.1", "--port", str(self._port)],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={**os.environ, "ANONYMIZED_TELEMETRY": "False", "DO_NOT_TRACK": "1"},
            )
        wait_until(self._answers, process=self._process, log=log)

    def kill(self) -> None:
        """End the process as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/api/v2/heartbeat", trust_env=False).is_success
        except httpx.TransportError:
            return False


@contextlib.contextmanager
def running_chroma(folder: Path) -> Iterator[ChromaServer]:
    """Run a Chroma server with its data in `folder`."""
    server = ChromaServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def running_postgresql() -> Iterator[str]:
    """Run a PostgreSQL server on a unix socket; yields the URL of its first database.

    `KB_TEST_POSTGRES_URL` names a server to use instead.
    """
    if url := os.environ.get("KB_TEST_POSTGRES_URL"):
        yield url
        return
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not binaries:
        skip_without("no PostgreSQL: set KB_TEST_POSTGRES_URL or install the package postgresql")
    home = binaries[-1].parent
    # The server refuses to run as root, and its user cannot enter pytest's folders.
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="kb-pg-"))
    if user is not None:
        shutil.chown(folder, user)
    data, log = folder / "data", folder / "log"
    try:
        subprocess.run(
            [str(home / "initdb"), "-D", str(data), "-U", "postgres", "-E", "UTF8", *_INITDB_OPTIONS],
            check=True,
            capture_output=True,
            user=user,
            cwd=folder,
        )
        with log.open("wb") as out:
            process = subprocess.Popen(
                [home / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-F"],
                stdout=out,
                stderr=subprocess.STDOUT,
                user=user,
                cwd=folder,
            )
        url = f"postgresql://postgres@/postgres?host={folder}"
        try:
            wait_until(lambda: _accepts(url), process=process, log=log)
            yield url
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """Create an empty database in the server; yields its URL, drops it at the end."""
    name = f"kb_{uuid.uuid4().hex}"
    head, _, options = server_url.partition("?")
    url = f"{head.rpartition('/')[0]}/{name}" + (f"?{options}" if options else "")
    _administer(server_url, f'CREATE DATABASE "{name}"')
    yield url
    _administer(server_url, f'DROP DATABASE "{name}" WITH (FORCE)')


def _administer(server_url: str, statement: str) -> None:
    """Run one statement outside of a transaction."""
    engine = sa.create_engine(parse_url(server_url), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


def _accepts(url: str) -> bool:
    try:
        _administer(url, "SELECT 1")
    except sa.exc.DBAPIError:
        return False
    return True
