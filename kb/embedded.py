"""The embedded profile: which processes `kb up` runs on this machine, from where, in which order."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kb.errors import ConfigurationError, ModelMissingError
from kb.private_redis import find_free_port, find_server_binary, prepare_private_redis
from kb.settings import Settings
from kb.supervisor import ProcessReport, ProcessSpec

STOP_ORDER = ("api", "worker", "chroma", "redis")
_OPEN_FILES = 65_536


@dataclass(frozen=True, slots=True)
class EmbeddedProfile:
    """Everything `kb up` runs, and where it can be reached."""

    specs: tuple[ProcessSpec, ...]
    environment: dict[str, str]
    api_url: str
    redis_url: str
    chroma_url: str

    @property
    def stop_order(self) -> tuple[str, ...]:
        """Names of the processes that run here, in the order in which they end."""
        names = {spec.name for spec in self.specs}
        return tuple(name for name in STOP_ORDER if name in names)


class PortBusyError(ConfigurationError):
    """The API's port is taken."""

    code = "port_busy"


class AlreadyRunningError(ConfigurationError):
    """Another `kb up` works on this data folder."""

    code = "already_running"


class DataFolderLock:
    """Keeps a second `kb up` away from a data folder, also after a crash of the first."""

    def __init__(self, data_dir: Path) -> None:
        """Take the lock; raises `AlreadyRunningError`, naming the holder, when it is taken."""
        run = data_dir / "run"
        run.mkdir(parents=True, exist_ok=True)
        self._file = (run / "kb.lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise AlreadyRunningError(
                f"kb already runs on the data folder {str(data_dir)!r} (process {holder})",
                next_step="Use the running one, stop it first, or set KB_DATA_DIR to another folder.",
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def fileno(self) -> int:
        """Return the descriptor that holds the lock."""
        return self._file.fileno()

    def release(self) -> None:
        """Give the lock back."""
        self._file.close()


def prepare_data_dir(settings: Settings) -> Path:
    """Create the data folder and return its absolute path; raises `ConfigurationError`."""
    data_dir = settings.data_dir.absolute()
    try:
        for name in ("run", "logs"):
            (data_dir / name).mkdir(parents=True, exist_ok=True)
        (data_dir / "run").chmod(0o700)
    except OSError as error:
        raise ConfigurationError(
            f"the data folder {str(data_dir)!r} cannot be used: {error}",
            next_step="Make it writable, or set KB_DATA_DIR to another folder.",
        ) from error
    return data_dir


def check_before_start(settings: Settings) -> None:
    """Find what would stop the service, before anything runs.

    Raises `ModelMissingError` or `PortBusyError`; a `ConfigurationError` that names both if need be.
    """
    problems = list[ConfigurationError]()
    for check in (_check_embedder, _check_api_port):
        try:
            check(settings)
        except ConfigurationError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ConfigurationError(
            "; also, ".join(problem.message for problem in problems),
            next_step=" ".join(problem.next_step for problem in problems),
        )


def _check_embedder(settings: Settings) -> None:
    embedder = settings.embedder_path or settings.resolved_models_dir / "embedder"
    if not any((embedder / name).is_file() for name in ("modules.json", "config.json")):
        raise ModelMissingError(
            f"there is no embedding model in {str(embedder)!r}",
            next_step="Run `kb models pull`, or point KB_EMBEDDER_PATH at a model folder.",
        )


def _check_api_port(settings: Settings) -> None:
    check_port(settings.api_host, settings.api_port)


def check_port(host: str, port: int, *, setting: str = "KB_API_PORT") -> None:
    """Raise `PortBusyError` when a server could not listen there, naming who does if that can be seen.

    `setting` is what the user has to change.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            holder = find_listener(port)
            reason = f"used by {holder}" if holder else error.strerror or str(error)
            raise PortBusyError(
                f"port {port} on {host} cannot be used: {reason}",
                next_step=f"Stop that program, or set {setting} to a free port.",
            ) from error


def find_listener(port: int) -> str | None:
    """Return the name and id of the process that listens on a TCP port, if this user may see it."""
    import psutil

    try:
        for connection in psutil.net_connections(kind="tcp"):
            listens = connection.status == psutil.CONN_LISTEN
            if listens and connection.pid and getattr(connection.laddr, "port", None) == port:
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    except psutil.Error:
        pass
    return None


def build_profile(
    settings: Settings,
    data_dir: Path,
    *,
    worker_command: Sequence[str] = (sys.executable, "-m", "workers"),
    api_command: Sequence[str] = (sys.executable, "-m", "api"),
) -> EmbeddedProfile:
    """Choose the processes: Redis and Chroma only where the settings name none, worker and API always.

    `data_dir` is the absolute data folder. Writes the private Redis's configuration.
    """
    logs = data_dir / "logs"
    local = settings.model_copy(update={"api_url": None})
    specs: list[ProcessSpec] = []
    redis_url, chroma_url = settings.redis_url, settings.chroma_url
    if redis_url is None:
        redis = prepare_private_redis(data_dir, binary=find_server_binary())
        redis_url = redis.url
        specs.append(
            ProcessSpec(
                name="redis",
                command=redis.command,
                log_path=logs / "redis.log",
                check_ready=redis_check(redis_url),
                ready_timeout_s=60,
                stop_grace_s=1.5,
                port=redis.port,
            )
        )
    if chroma_url is None:
        port = find_free_port()
        chroma_url = f"http://127.0.0.1:{port}"
        specs.append(
            ProcessSpec(
                name="chroma",
                command=(
                    *find_chroma_command(),
                    *("run", "--path", str(data_dir / "chroma")),
                    *("--host", "127.0.0.1", "--port", str(port)),
                ),
                log_path=logs / "chroma.log",
                check_ready=chroma_check(chroma_url),
                ready_timeout_s=120,
                stop_grace_s=1.5,
                port=port,
            )
        )
    stores = tuple(spec.name for spec in specs)
    specs += [
        ProcessSpec(
            name="worker",
            command=tuple(worker_command),
            log_path=logs / "worker.log",
            check_ready=worker_check(local.resolved_api_url),
            after=stores,
            ready_timeout_s=300,
            stop_grace_s=3.0,
        ),
        ProcessSpec(
            name="api",
            command=tuple(api_command),
            log_path=logs / "api.log",
            check_ready=api_check(local.resolved_api_url),
            after=stores,
            ready_timeout_s=300,
            stop_grace_s=2.5,
            port=settings.api_port,
        ),
    ]
    environment = {
        **os.environ,
        "KB_DATA_DIR": str(data_dir),
        "KB_REDIS_URL": redis_url,
        "KB_CHROMA_URL": chroma_url,
        "PYTHONUNBUFFERED": "1",
    }
    return EmbeddedProfile(
        specs=tuple(specs),
        environment=environment,
        api_url=local.resolved_api_url,
        redis_url=redis_url,
        chroma_url=chroma_url,
    )


def find_chroma_command() -> tuple[str, ...]:
    """Return the `chroma` command beside this Python, else from the PATH; raises `ConfigurationError`."""
    beside = Path(sys.executable).parent / "chroma"
    found = str(beside) if beside.is_file() else shutil.which("chroma")
    if found is None:
        raise ConfigurationError(
            "the `chroma` command was not found",
            next_step="Install chromadb into this environment, or set KB_CHROMA_URL to a running server.",
        )
    return (found,)


def raise_open_file_limit() -> None:
    """Allow children as many open files as the system lets this user have; Chroma needs 4 a collection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def write_state(
    data_dir: Path, profile: EmbeddedProfile, reports: Sequence[ProcessReport], *, now: datetime
) -> None:
    """Write `run/state.json` (mode 600): pids, ports and URLs of what runs, for scripts and tests."""
    state = {
        "pid": os.getpid(),
        "started_at": now.isoformat(),
        "api_url": profile.api_url,
        "redis_url": profile.redis_url,
        "chroma_url": profile.chroma_url,
        "processes": [
            {"name": item.name, "pid": item.pid, "port": item.port, "log": str(item.log_path)}
            for item in reports
        ],
    }
    target = state_path(data_dir)
    partial = target.with_suffix(".part")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(state, file, indent=2)
    partial.replace(target)


def state_path(data_dir: Path) -> Path:
    """Return where the state of a running service is written."""
    return data_dir / "run" / "state.json"


# -- readiness; each returns "" when ready, else what is awaited


def redis_check(url: str) -> Callable[[], str]:
    """Ready when the server answers PING; while it loads its append-only file it does not."""

    def check() -> str:
        import redis

        try:
            with redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1) as client:
                client.ping()
        except redis.RedisError as error:
            return f"waits for its first answer ({type(error).__name__})"
        return ""

    return check


def chroma_check(url: str) -> Callable[[], str]:
    """Ready when the server's heartbeat answers."""

    def check() -> str:
        import httpx

        try:
            with httpx.Client(trust_env=False, timeout=1) as client:
                client.get(f"{url}/api/v2/heartbeat").raise_for_status()
        except httpx.HTTPError:
            return "waits for its heartbeat"
        return ""

    return check


def api_check(url: str) -> Callable[[], str]:
    """Ready when the API answers and reports that every required dependency but the worker does."""

    def check() -> str:
        from kb.client import KbClient
        from kb.errors import KbError

        try:
            with KbClient(url, timeout_s=8) as client:
                client.get_live()
                ready = client.get_ready()
        except KbError:
            return "loads"
        missing = [item for item in ready.dependencies if item.required and not item.ok]
        missing = [item for item in missing if not item.name.startswith("worker")]
        return "waits for " + ", ".join(f"{item.name} ({item.detail})" for item in missing) if missing else ""

    return check


def worker_check(url: str) -> Callable[[], str]:
    """Ready when the API reports that a worker answers its ping, or that nothing is missing."""

    def check() -> str:
        from kb.client import KbClient
        from kb.errors import KbError

        try:
            with KbClient(url, timeout_s=8) as client:
                ready = client.get_ready()
        except KbError:
            return "loads"
        answers = [item.ok for item in ready.dependencies if item.name.startswith("worker")]
        return "" if (answers and all(answers)) or (not answers and ready.ready) else "loads"

    return check
