"""SubprocessReader keeps the port's promises with a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfgen.canvas import Canvas

from ingest.reader import SubprocessReader
from kb.errors import (
    DamagedFileError,
    EmptyFileError,
    JobCancelledError,
    ParseMemoryError,
    ParseTimeoutError,
    PasswordProtectedError,
    TooManyPagesError,
    UnsupportedFormatError,
)
from kb.types import ParsedDocument
from tests.unit.ingest.pdf_samples import PROSE, draw, paragraph

MIB = 1024**2


def make_reader(
    *, timeout_s: float = 120, memory_bytes: int = 1024 * MIB, max_pages: int = 100, ocr: bool = False
) -> SubprocessReader:
    return SubprocessReader(timeout_s=timeout_s, memory_bytes=memory_bytes, max_pages=max_pages, ocr=ocr)


def read(
    reader: SubprocessReader, path: Path, *, name: str = "sample.txt", password: str | None = None
) -> ParsedDocument:
    return reader.read(
        path, name=name, password=password, progress=lambda done, total: None, is_cancelled=lambda: False
    )


def save(folder: Path, data: bytes) -> Path:
    path = folder / "sample"
    path.write_bytes(data)
    return path


@pytest.fixture
def pdf() -> bytes:
    return draw(*[lambda canvas: paragraph(canvas, 72, 100, PROSE)] * 3)


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that takes longer to read than any test waits."""

    def first(canvas: Canvas) -> None:
        canvas.beginForm("page")
        paragraph(canvas, 72, 20, PROSE * 12)
        canvas.endForm()
        canvas.doForm("page")

    data = draw(first, *[lambda canvas: canvas.doForm("page")] * 3000)
    return save(tmp_path_factory.mktemp("endless"), data)


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if child.is_running()]


def test_a_document_comes_back_with_progress(tmp_path: Path, pdf: bytes) -> None:
    seen: list[tuple[int, int]] = []

    parsed = make_reader().read(
        save(tmp_path, pdf),
        name="m.pdf",
        password=None,
        progress=lambda done, total: seen.append((done, total)),
        is_cancelled=lambda: False,
    )

    assert [page.text for page in parsed.pages] == [" ".join(PROSE)] * 3
    assert seen[-1] == (3, 3)
    assert seen == sorted(seen)


def test_lone_surrogates_and_any_name_survive_the_way(tmp_path: Path) -> None:
    parsed = read(make_reader(), save(tmp_path, "检查 油位 ☸ 𠮷".encode()), name="空压机\n'\"..\\x.txt")

    assert parsed.pages[0].text == "检查 油位 ☸ 𠮷"


def test_the_password_reaches_the_parser(tmp_path: Path) -> None:
    path = save(
        tmp_path, draw(lambda c: paragraph(c, 72, 100, PROSE), encrypt=StandardEncryption("geheim 密码"))
    )

    with pytest.raises(PasswordProtectedError):
        read(make_reader(), path, name="m.pdf")


@pytest.mark.parametrize(
    ("data", "name", "error"),
    [
        (b"", "m.pdf", EmptyFileError),
        (bytes(range(256)) * 9, "m.bin", UnsupportedFormatError),
        (b"%PDF-1.7 nothing", "m.pdf", DamagedFileError),
    ],
)
def test_errors_of_the_file_come_back_as_they_are(
    tmp_path: Path, data: bytes, name: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        read(make_reader(), save(tmp_path, data), name=name)

    assert name in str(caught.value)


def test_too_many_pages_are_refused(tmp_path: Path, pdf: bytes) -> None:
    with pytest.raises(TooManyPagesError):
        read(make_reader(max_pages=2), save(tmp_path, pdf), name="m.pdf")


def test_missing_bytes_are_said(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError):
        read(make_reader(), tmp_path / "gone")


def test_the_time_limit_ends_the_process(endless: Path) -> None:
    with pytest.raises(ParseTimeoutError):
        read(make_reader(timeout_s=1.5, max_pages=5000), endless, name="m.pdf")

    assert children() == []


def test_the_memory_limit_ends_the_parse(tmp_path: Path) -> None:
    path = save(tmp_path, b"word,another\n" * 2_000_000)

    with pytest.raises(ParseMemoryError):
        read(make_reader(memory_bytes=64 * MIB), path, name="m.csv")


def test_cancellation_ends_the_process(endless: Path) -> None:
    asked = threading.Event()

    def progress(done: int, total: int) -> None:
        asked.set()

    with pytest.raises(JobCancelledError):
        make_reader(max_pages=5000).read(
            endless, name="m.pdf", password=None, progress=progress, is_cancelled=asked.is_set
        )

    assert children() == []


def test_a_cancelled_job_starts_no_process(tmp_path: Path) -> None:
    with pytest.raises(JobCancelledError):
        make_reader().read(
            save(tmp_path, b"x"),
            name="m.txt",
            password=None,
            progress=lambda done, total: None,
            is_cancelled=lambda: True,
        )


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGSEGV, DamagedFileError), (signal.SIGKILL, ParseMemoryError)]
)
def test_a_process_that_dies_is_an_error_of_the_file(
    endless: Path, number: signal.Signals, error: type[Exception]
) -> None:
    def progress(done: int, total: int) -> None:
        for child in children():
            child.send_signal(number)

    with pytest.raises(error):
        make_reader(max_pages=5000).read(
            endless, name="m.pdf", password=None, progress=progress, is_cancelled=lambda: False
        )


def test_the_process_ends_with_its_parent(endless: Path, tmp_path: Path) -> None:
    script = (
        "from ingest.reader import SubprocessReader; from pathlib import Path\n"
        "SubprocessReader(timeout_s=300, memory_bytes=2**30, max_pages=5000, ocr=False).read("
        f"Path({str(endless)!r}), name='m.pdf', password=None, progress=lambda d, t: print(d, flush=True), "
        "is_cancelled=lambda: False)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        grandchildren = psutil.Process(parent.pid).children(recursive=True)
        os.kill(parent.pid, signal.SIGKILL)

        _, alive = psutil.wait_procs(grandchildren, timeout=30)

    assert grandchildren
    assert alive == []


def test_the_password_is_in_neither_arguments_nor_environment(tmp_path: Path) -> None:
    secret = "secret-4711"
    seen: list[str] = []
    path = save(
        tmp_path,
        draw(*[lambda c: paragraph(c, 72, 100, PROSE)] * 300, encrypt=StandardEncryption(secret)),
    )

    def progress(done: int, total: int) -> None:
        for child in children():
            seen.extend([*child.cmdline(), *child.environ().values()])

    parsed = make_reader(max_pages=500).read(
        path, name="m.pdf", password=secret, progress=progress, is_cancelled=lambda: False
    )

    assert len(parsed.pages) == 300
    assert seen
    assert not any(secret in value for value in seen)
