from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from kb.errors import CatalogUnavailableError
from kb.logs import bind_ids, configure_logging, describe_exception


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    names = ("kb", "api", "ingest", "workers", "uvicorn", "uvicorn.error", "uvicorn.access", "celery")
    levels = {name: logging.getLogger(name).level for name in names}
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, former in levels.items():
        logging.getLogger(name).setLevel(former)
    structlog.reset_defaults()


def read_lines(capture: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capture.readouterr().err.splitlines()]


def test_our_events_are_json_lines_with_ids(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(process="api", log_format="json", log_level="info")

    with bind_ids(request_id="r1", job_id="j1"):
        structlog.get_logger("kb.library").info("document_registered", name="故障.pdf", size_bytes=3)
    structlog.get_logger("kb.library").info("after")

    first, second = read_lines(capsys)
    assert first["event"] == "document_registered"
    assert first["level"] == "info"
    assert first["logger"] == "kb.library"
    assert first["process"] == "api"
    assert first["request_id"] == "r1"
    assert first["job_id"] == "j1"
    assert first["name"] == "故障.pdf"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", first["timestamp"])
    assert "request_id" not in second


@pytest.mark.parametrize("name", ["uvicorn.error", "celery.task", "celery", "some.library"])
def test_lines_of_libraries_have_the_same_shape(capsys: pytest.CaptureFixture[str], name: str) -> None:
    if name != "some.library":
        logging.getLogger(name).addHandler(logging.StreamHandler())
    configure_logging(process="worker", log_format="json", log_level="info")

    with bind_ids(job_id="j1"):
        logging.getLogger(name).warning("took %d s", 5, extra={"request_id": "r9", "secret": "x"})

    (line,) = read_lines(capsys)
    assert line | {"timestamp": ""} == {
        "event": "took 5 s",
        "level": "warning",
        "logger": name,
        "process": "worker",
        "job_id": "j1",
        "request_id": "r9",
        "timestamp": "",
    }


def test_debug_lines_of_libraries_are_never_shown(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(process="api", log_format="json", log_level="debug")

    logging.getLogger("sse_starlette.sse").debug("chunk: the answer")
    logging.getLogger("httpx").info("request with a body")
    logging.getLogger("uvicorn.error").debug("bytes")
    structlog.get_logger("kb.library").debug("ours")

    assert [line["event"] for line in read_lines(capsys)] == ["ours"]


def test_the_level_hides_our_lesser_events(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(process="api", log_format="json", log_level="warning")

    structlog.get_logger("kb.library").info("hidden")
    logging.getLogger("uvicorn.error").info("hidden")
    structlog.get_logger("kb.library").warning("shown")

    assert [line["event"] for line in read_lines(capsys)] == ["shown"]


def test_an_unexpected_exception_shows_type_and_place_but_not_its_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(process="api", log_format="json", log_level="info")

    try:
        raise ValueError("canary question")
    except ValueError:
        structlog.get_logger("api.errors").exception("request_failed")
        logging.getLogger("uvicorn.error").exception("crashed")

    text = capsys.readouterr().err
    assert "canary" not in text
    assert text.count("ValueError") == 2
    assert text.count("test_logs.py") == 2


def test_messages_of_our_own_errors_and_of_their_causes_are_shown() -> None:
    try:
        try:
            raise OSError("disk full")
        except OSError as error:
            raise CatalogUnavailableError("the catalog is away") from error
    except CatalogUnavailableError as error:
        text = describe_exception(error)

    assert "CatalogUnavailableError: the catalog is away" in text
    assert "OSError: disk full" in text


def test_warnings_become_log_lines(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(process="api", log_format="json", log_level="info")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("old way", UserWarning, stacklevel=1)

    (line,) = read_lines(capsys)
    assert line["logger"] == "py.warnings"
    assert "old way" in line["event"]


def test_the_console_format_is_one_readable_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(process="api", log_format="console", log_level="info")

    structlog.get_logger("api").info("ready", port=8000)

    (line,) = capsys.readouterr().err.splitlines()
    assert "ready" in line
    assert "port=8000" in line
    assert "\x1b" not in line


def test_configuring_twice_does_not_double_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(process="api", log_format="json", log_level="info")
    configure_logging(process="api", log_format="json", log_level="info")

    structlog.get_logger("kb").info("once")

    assert len(read_lines(capsys)) == 1
