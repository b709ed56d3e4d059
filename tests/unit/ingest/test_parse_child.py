from __future__ import annotations

import io
import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.parse_child import ParseRequest, parse
from ingest.parsed_json import from_json

_KINDS = (resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)


@pytest.fixture(autouse=True)
def _own_limits() -> Iterator[None]:
    """Give this process its soft limits back, as `parse` lowers them."""
    before = {kind: resource.getrlimit(kind) for kind in _KINDS}
    yield
    for kind, (soft, _) in before.items():
        resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))


def request(path: Path, *, name: str = "a.txt", memory_bytes: int = 2**40) -> ParseRequest:
    return ParseRequest(
        path=str(path), name=name, result_path="", memory_bytes=memory_bytes, max_pages=10, ocr=False
    )


def test_a_document_is_the_outcome_and_pages_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("Check the oil.", encoding="utf-8")
    progress = io.StringIO()

    outcome = parse(request(path), progress)

    assert from_json(outcome["document"]).pages[0].text == "Check the oil."
    assert progress.getvalue() == "1 1\n"


def test_limits_are_lowered_before_the_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("x", encoding="utf-8")

    parse(request(path, memory_bytes=2**36), io.StringIO())

    assert resource.getrlimit(resource.RLIMIT_CORE)[0] == 0
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= 128
    assert 2**36 < resource.getrlimit(resource.RLIMIT_AS)[0] < 2**37


@pytest.mark.parametrize(
    ("data", "name", "code"),
    [
        (b"", "a.pdf", "empty_file"),
        (b"%PDF-1.7", "a.pdf", "damaged_file"),
        (bytes(range(256)) * 9, "a.bin", "unsupported_format"),
    ],
)
def test_an_error_is_an_outcome_with_its_code_and_next_step(
    tmp_path: Path, data: bytes, name: str, code: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)

    error = parse(request(path, name=name), io.StringIO())["error"]

    assert error["code"] == code
    assert error["next_step"]
    assert name in error["message"]


class _Failing(io.StringIO):
    """A stream whose writing raises what a parser might raise."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def write(self, text: str) -> int:
        raise self._error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), "memory_limit"),
        (RuntimeError("std::bad_alloc"), "memory_limit"),
        (RecursionError(), "damaged_file"),
        (ZeroDivisionError(), "damaged_file"),
    ],
)
def test_whatever_happens_is_about_the_file(tmp_path: Path, error: BaseException, code: str) -> None:
    path = tmp_path / "a"
    path.write_text("x", encoding="utf-8")

    assert parse(request(path), _Failing(error))["error"]["code"] == code


def test_a_request_is_one_line_of_json(tmp_path: Path) -> None:
    line = request(tmp_path, name="a\nb").to_line()

    assert line.count("\n") == 1
    assert ParseRequest(**json.loads(line)).name == "a\nb"
