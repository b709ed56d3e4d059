from __future__ import annotations

import io
import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ingest import parse_child
from ingest.page_store import PageStore
from ingest.parse_child import RANGE_COST, ParseRequest, Progress
from ingest.parsed_json import from_json
from tests.unit.ingest.pdf_samples import PROSE, draw, paragraph

_KINDS = (resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)


@pytest.fixture(autouse=True)
def _own_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give this process its soft limits back, as `parse` lowers them; it may hold files of other tests."""
    held = psutil.Process().num_fds()
    monkeypatch.setattr(parse_child, "MAX_OPEN_FILES", parse_child.MAX_OPEN_FILES + held)
    before = {kind: resource.getrlimit(kind) for kind in _KINDS}
    yield
    for kind, (soft, _) in before.items():
        resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))


def request(
    path: Path, *, name: str = "a.txt", memory_bytes: int = 2**40, max_text_bytes: int = 2**30
) -> ParseRequest:
    return ParseRequest(
        path=str(path),
        name=name,
        result_path="",
        memory_bytes=memory_bytes,
        max_pages=100,
        ocr=False,
        pages_folder=str(path.parent),
        max_text_bytes=max_text_bytes,
    )


def parse(
    request: ParseRequest, stream: io.StringIO, *, should_stop: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    return parse_child.parse(request, Progress(stream), should_stop=should_stop)


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
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == parse_child.MAX_OPEN_FILES
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


@pytest.fixture
def manual(tmp_path: Path) -> Path:
    """A PDF of a few pages more than a range."""
    path = tmp_path / "a"
    path.write_bytes(draw(*[lambda canvas: paragraph(canvas, 72, 100, PROSE)] * (RANGE_COST + 3)))
    return path


def test_a_range_ends_after_its_pages_and_the_next_one_completes_the_document(manual: Path) -> None:
    first, second = io.StringIO(), io.StringIO()

    outcome = parse(request(manual), first)
    document = parse(request(manual), second)["document"]

    assert outcome == {"more": True}
    assert first.getvalue().splitlines()[-2:] == [f"@{RANGE_COST}", f"{RANGE_COST} {RANGE_COST + 3}"]
    begun = [int(line[1:]) for line in second.getvalue().splitlines() if line[0] == "@"]
    assert begun == [RANGE_COST + 1, RANGE_COST + 2, RANGE_COST + 3, 0]
    assert len(from_json(document).pages) == RANGE_COST + 3


def test_a_process_that_is_told_to_stop_keeps_the_page_it_has_read(manual: Path) -> None:
    outcome = parse(request(manual), io.StringIO(), should_stop=lambda: True)

    assert outcome == {"more": True}
    assert list(PageStore(manual.parent).list_pages()) == [1]


def test_pages_that_shall_not_be_tried_are_empty_and_said_to_be_damaged(manual: Path) -> None:
    PageStore(manual.parent).save_damaged(
        {2: "timeout"} | dict.fromkeys(range(4, RANGE_COST + 4), "memory_limit")
    )

    pages = from_json(parse(request(manual), io.StringIO())["document"]).pages

    assert [page.text != "" for page in pages[:4]] == [True, False, True, False]
    assert pages[1].quality.warnings == ("page_damaged: page 2 cannot be read (it takes too long)",)


@pytest.mark.parametrize("code", ["timeout", "memory_limit", "damaged_file"])
def test_a_document_of_damaged_pages_only_fails_with_their_code(manual: Path, code: str) -> None:
    PageStore(manual.parent).save_damaged(dict.fromkeys(range(1, RANGE_COST + 4), code))

    assert parse(request(manual), io.StringIO())["error"]["code"] == code


@pytest.mark.parametrize("name", ["a.pdf", "a.txt"])
def test_too_much_text_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(draw(lambda c: paragraph(c, 72, 100, PROSE)) if name == "a.pdf" else b"pump " * 30)

    error = parse(request(path, name=name, max_text_bytes=100), io.StringIO())["error"]

    assert error["code"] == "too_large"
    assert "KB_MAX_TEXT_BYTES" in error["next_step"]
