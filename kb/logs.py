"""Structured log lines of every process: one format for our own events and for libraries.

Our modules log through `structlog.get_logger()`: an event name and values. Ids are bound to the
context with `bind_ids` and appear on every line that is logged below. Texts of documents and
questions are never logged, so an unexpected exception is shown as its type and the places it
passed, without its message: the message may quote what was being worked on.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

import structlog

from kb.errors import KbError

_OWN_LOGGERS: Final = ("kb", "api", "ingest", "workers")
# servers whose notices about starting and stopping are worth reading
_SERVER_LOGGERS: Final = ("uvicorn", "uvicorn.error", "uvicorn.access", "celery", "celery.task")
_SAFE_EXCEPTIONS: Final = (KbError, OSError, ImportError)
_MAX_FRAMES: Final = 20

ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def configure_logging(*, process: str, log_format: str, log_level: str) -> None:
    """Send the log of this process to standard error as `json` or `console` lines.

    Our own loggers use `log_level`; libraries never go below warning (servers: info), because
    their debug lines quote requests and answers. Calling it again replaces the former setting.
    """
    level = logging.getLevelNamesMapping()[log_level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        _add_process(process),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(allow={"request_id", "job_id"})],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _describe_exception,
            _make_renderer(log_format),
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for former in root.handlers[:]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(max(level, logging.WARNING))
    for name in _OWN_LOGGERS:
        logging.getLogger(name).setLevel(level)
    for name in _SERVER_LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(max(level, logging.INFO))
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


@contextmanager
def bind_ids(**ids: str) -> Iterator[None]:
    """Show these ids (`request_id`, `job_id`, …) on every line logged inside the block."""
    with structlog.contextvars.bound_contextvars(**ids):
        yield


def describe_exception(error: BaseException) -> str:
    """Return type and places of an exception, and its message only where it can't quote a text."""
    lines: list[str] = []
    current: BaseException | None = error
    while current is not None and len(lines) < _MAX_FRAMES:
        kind = type(current).__qualname__
        lines.append(f"{kind}: {current}" if isinstance(current, _SAFE_EXCEPTIONS) else kind)
        frames = traceback.extract_tb(current.__traceback__)[-_MAX_FRAMES:]
        lines += [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\n".join(lines)


def _make_renderer(log_format: str) -> structlog.typing.Processor:
    if log_format == "console":
        return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    return structlog.processors.JSONRenderer(ensure_ascii=False, default=str)


def _add_process(process: str) -> structlog.typing.Processor:
    def add(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["process"] = process
        return event

    return add


def _describe_exception(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Replace exception information by its description, before a renderer prints messages and locals."""
    info = event.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    error = info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        event["exception"] = describe_exception(error)
    return event
