"""The API process: `python -m api`."""

from __future__ import annotations

import ipaddress
import sys
from typing import Final

import structlog

from kb.errors import ConfigurationError, KbError
from kb.keyring import KeyRing
from kb.logs import configure_logging
from kb.offline import go_offline
from kb.ports import Generator
from kb.settings import Settings, load_settings

GRACEFUL_SHUTDOWN_S: Final = 8
"""Longest wait for open requests after SIGTERM; streams end by themselves before that."""

_LOOPBACK: Final = "127.0.0.1"
_EXIT_FAILURE: Final = 1
_EXIT_CONFIGURATION: Final = 2

_log = structlog.get_logger("api")


def main() -> int:
    """Serve until SIGTERM or Ctrl-C.

    Returns the exit code: 2 if the installation is wrong, 1 if a dependency could not be reached.
    """
    go_offline()
    try:
        settings = load_settings()
        configure_logging(process="api", log_format=settings.log_format, log_level=settings.log_level)
        serve(settings)
    except KbError as error:
        sys.stderr.write(f"{error.message}\n{error.next_step}\n")
        return _EXIT_CONFIGURATION if isinstance(error, ConfigurationError) else _EXIT_FAILURE
    return 0


def serve(settings: Settings, *, generator: Generator | None = None) -> None:
    """Wire the parts and serve them from this one process; a generator given here replaces the configured one."""
    # heavy imports, after the switches that keep libraries off the network
    import uvicorn
    from prometheus_client import disable_created_metrics

    from api.app import create_app
    from kb.bootstrap import build

    spool_dir = settings.data_dir / "spool"
    spool_dir.mkdir(parents=True, exist_ok=True)
    disable_created_metrics()  # type: ignore[no-untyped-call]  # time stamps that nobody reads
    knowledge = build(settings, generator=generator)
    try:
        app = create_app(
            knowledge,
            top_k=settings.top_k,
            answer_tokens=settings.answer_tokens,
            spool_dir=spool_dir,
        )
        uvicorn.run(
            app,
            host=_choose_host(settings, knowledge.keys),
            port=settings.api_port,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
        )
    finally:
        knowledge.close()


def _choose_host(settings: Settings, keys: KeyRing) -> str:
    """Return the address to listen on: the configured one, or this machine only while nobody has a key."""
    if is_loopback(settings.api_host) or keys.is_locked():
        return settings.api_host
    _log.warning(
        "api_on_loopback_only",
        reason="nobody has a key yet",
        configured_host=settings.api_host,
        next_step="Run `kb keys create NAME --role admin`, then start the service again.",
    )
    return _LOOPBACK


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    sys.exit(main())
