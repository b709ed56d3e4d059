"""SubprocessReader keeps the port's promises with a real process."""

from __future__ import annotations

import functools
import io
import os
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from email.message import EmailMessage
from pathlib import Path

import psutil
import pytest
from pypdf import PdfWriter
from pypdf.generic import NameObject
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfgen.canvas import Canvas

from ingest.page_cache import PageCache
from ingest.page_store import PageStore
from ingest.parsers.pdf import PdfParser
from ingest.reader import SubprocessReader
from kb.errors import (
    DamagedFileError,
    EmptyFileError,
    JobCancelledError,
    JobPausedError,
    ParseMemoryError,
    ParseTimeoutError,
    PasswordProtectedError,
    TooManyPagesError,
    UnsupportedFormatError,
)
from kb.ports import AttachmentLimits, FoundAttachments, LeaveReason, LeftOut, ReadRequest
from kb.types import ParsedDocument
from tests.unit.ingest.pdf_samples import PROSE, draw, embed, paragraph

MIB = 1024**2
Children = Callable[[], list[psutil.Process]]


def make_reader(
    *,
    timeout_s: float = 120,
    page_timeout_s: float = 60,
    memory_bytes: int = 1024 * MIB,
    max_pages: int = 100,
    ocr: bool = False,
    cache: PageCache | None = None,
) -> SubprocessReader:
    return SubprocessReader(
        timeout_s=timeout_s,
        page_timeout_s=page_timeout_s,
        memory_bytes=memory_bytes,
        max_pages=max_pages,
        ocr=ocr,
        cache=cache,
        keep_from_s=0,
    )


def read(
    reader: SubprocessReader, path: Path, *, name: str = "sample.txt", password: str | None = None
) -> ParsedDocument:
    return reader.read(ReadRequest(path, name=name, password=password))


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


def draw_hanging(*, before: int, after: int) -> bytes:
    """A PDF with a page that takes minutes to read, and much memory, between good ones."""

    def hang(canvas: Canvas) -> None:
        canvas.beginForm("f0")
        paragraph(canvas, 72, 20, PROSE * 12)
        canvas.endForm()
        for depth in range(1, 6):
            canvas.beginForm(f"f{depth}")
            for _ in range(16):
                canvas.doForm(f"f{depth - 1}")
            canvas.endForm()
        canvas.doForm("f5")

    def good(canvas: Canvas) -> None:
        paragraph(canvas, 72, 100, PROSE)

    return draw(*[good] * before, hang, *[good] * after)


@pytest.fixture
def children() -> Children:
    """Return what lists the processes begun since; other tests may have left some of their own."""
    bystanders = frozenset(psutil.Process().children(recursive=True))
    return lambda: [child for child in psutil.Process().children(recursive=True) if child not in bystanders]


def test_a_document_comes_back_with_progress(tmp_path: Path, pdf: bytes) -> None:
    seen: list[tuple[int, int]] = []

    parsed = make_reader().read(
        ReadRequest(
            save(tmp_path, pdf), name="m.pdf", progress=lambda done, total: seen.append((done, total))
        )
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


def test_the_time_limit_ends_the_process(tmp_path: Path, children: Children) -> None:
    path = save(tmp_path, draw_hanging(before=0, after=0))

    with pytest.raises(ParseTimeoutError):
        read(make_reader(timeout_s=3), path, name="m.pdf")

    assert children() == []


def test_a_page_that_hangs_is_left_out_and_the_others_are_read(tmp_path: Path) -> None:
    path = save(tmp_path, draw_hanging(before=1, after=2))

    parsed = read(make_reader(page_timeout_s=3), path, name="m.pdf")

    assert [page.text != "" for page in parsed.pages] == [True, False, True, True]
    assert parsed.pages[1].quality.warnings[0].startswith("page_damaged: page 2")
    assert any(warning.startswith("pages_damaged: page(s) 2") for warning in parsed.warnings)


def test_a_page_that_needs_too_much_memory_is_left_out(tmp_path: Path) -> None:
    path = save(tmp_path, draw_hanging(before=1, after=1))

    parsed = read(make_reader(memory_bytes=192 * MIB), path, name="m.pdf")

    assert [page.text != "" for page in parsed.pages] == [True, False, True]
    assert parsed.pages[1].quality.warnings[0].startswith("page_damaged: page 2")


def test_the_memory_limit_ends_the_parse(tmp_path: Path) -> None:
    path = save(tmp_path, b"word,another\n" * 2_000_000)

    with pytest.raises(ParseMemoryError):
        read(make_reader(memory_bytes=64 * MIB), path, name="m.csv")


def test_cancellation_ends_the_process(endless: Path, children: Children) -> None:
    asked = threading.Event()

    def progress(done: int, total: int) -> None:
        asked.set()

    with pytest.raises(JobCancelledError):
        make_reader(max_pages=5000).read(
            ReadRequest(endless, name="m.pdf", progress=progress, is_cancelled=asked.is_set)
        )

    assert children() == []


def test_a_cancelled_job_starts_no_process(tmp_path: Path) -> None:
    with pytest.raises(JobCancelledError):
        make_reader().read(ReadRequest(save(tmp_path, b"x"), name="m.txt", is_cancelled=lambda: True))


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGSEGV, DamagedFileError), (signal.SIGKILL, ParseMemoryError)]
)
def test_a_process_that_dies_is_an_error_of_the_file(
    endless: Path, children: Children, number: signal.Signals, error: type[Exception]
) -> None:
    def progress(done: int, total: int) -> None:
        for child in children():
            child.send_signal(number)

    with pytest.raises(error):
        make_reader(max_pages=5000).read(ReadRequest(endless, name="m.pdf", progress=progress))


def test_the_process_ends_with_its_parent(endless: Path, tmp_path: Path) -> None:
    script = (
        "from ingest.reader import SubprocessReader; from kb.ports import ReadRequest\n"
        "from pathlib import Path\n"
        "SubprocessReader(timeout_s=300, memory_bytes=2**30, max_pages=5000, ocr=False).read(ReadRequest("
        f"Path({str(endless)!r}), name='m.pdf', progress=lambda d, t: print(d, flush=True), "
        "is_cancelled=lambda: False))"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        grandchildren = psutil.Process(parent.pid).children(recursive=True)
        os.kill(parent.pid, signal.SIGKILL)

        _, alive = psutil.wait_procs(grandchildren, timeout=30)

    assert grandchildren
    assert alive == []


def test_the_password_is_in_neither_arguments_nor_environment(tmp_path: Path, children: Children) -> None:
    secret = "secret-4711"
    seen: list[str] = []
    path = save(
        tmp_path,
        draw(*[lambda c: paragraph(c, 72, 100, PROSE)] * 300, encrypt=StandardEncryption(secret)),
    )

    def progress(done: int, total: int) -> None:
        for child in children():
            with suppress(psutil.NoSuchProcess):
                seen.extend([*child.cmdline(), *child.environ().values()])

    parsed = make_reader(max_pages=500).read(
        ReadRequest(path, name="m.pdf", password=secret, progress=progress)
    )

    assert len(parsed.pages) == 300
    assert seen
    assert not any(secret in value for value in seen)


def _chapter(number: int, canvas: Canvas) -> None:
    paragraph(canvas, 72, 100, [f"Chapter {number}", *PROSE])


def count_page_reads(reader: SubprocessReader, path: Path) -> tuple[ParsedDocument, int]:
    """Return the document, and how often a page was reported as read."""
    seen: set[int] = set()

    def progress(done: int, total: int) -> None:
        seen.add(done)

    parsed = reader.read(ReadRequest(path, name="m.pdf", progress=progress))
    return parsed, len(seen)


def test_a_document_in_ranges_is_the_same_as_in_one_piece(tmp_path: Path) -> None:
    pages = [functools.partial(_chapter, number) for number in range(90)]
    path = save(tmp_path, draw(*pages))
    whole = PdfParser(engine=None, max_pages=100).parse(
        path, name="m.pdf", password=None, progress=lambda done, total: None
    )

    assert read(make_reader(), path, name="m.pdf") == whole


def test_what_was_read_is_not_read_again(tmp_path: Path) -> None:
    path = save(tmp_path, draw(*[lambda canvas: paragraph(canvas, 72, 100, PROSE)] * 40))
    reader = make_reader(cache=PageCache(tmp_path / "cache", max_bytes=MIB))

    first = read(reader, path, name="m.pdf")
    again, reads = count_page_reads(reader, path)

    assert again == first
    assert reads == 1


def test_a_paused_document_goes_on_where_it_was(tmp_path: Path) -> None:
    path = save(tmp_path, draw(*[lambda canvas: paragraph(canvas, 72, 100, PROSE)] * 90))
    reader = make_reader(cache=PageCache(tmp_path / "cache", max_bytes=MIB))
    pauses, dones = 0, list[int]()
    while pauses < 200:
        try:
            parsed = reader.read(
                ReadRequest(
                    path,
                    name="m.pdf",
                    progress=lambda done, total: dones.append(done),
                    should_pause=lambda: True,
                )
            )
            break
        except JobPausedError:
            pauses += 1

    assert len(parsed.pages) == 90
    assert pauses > 0
    assert dones == sorted(dones)
    (pages,) = (tmp_path / "cache").glob("*/*/pages")
    assert len(pages.read_bytes().splitlines()) == 90


def test_a_cancelled_document_keeps_its_pages(tmp_path: Path, endless: Path) -> None:
    asked = threading.Event()
    reader = make_reader(max_pages=5000, cache=PageCache(tmp_path, max_bytes=MIB))

    with pytest.raises(JobCancelledError):
        reader.read(
            ReadRequest(
                endless,
                name="m.pdf",
                progress=lambda done, total: asked.set() if done > 3 else None,
                is_cancelled=asked.is_set,
            )
        )

    (pages,) = tmp_path.glob("*/*/pages")
    assert len(PageStore(pages.parent).list_pages()) > 3


def test_an_encrypted_document_is_given_from_the_cache_to_nobody_without_its_password(tmp_path: Path) -> None:
    data = draw(lambda c: paragraph(c, 72, 100, PROSE), encrypt=StandardEncryption("geheim"))
    reader = make_reader(cache=PageCache(tmp_path / "cache", max_bytes=MIB))
    path = save(tmp_path, data)
    read(reader, path, name="m.pdf", password="geheim")

    with pytest.raises(PasswordProtectedError):
        read(reader, path, name="m.pdf")


# -- what is attached


def read_attachments(
    reader: SubprocessReader,
    path: Path,
    *,
    name: str = "mail.eml",
    password: str | None = None,
) -> tuple[dict[str, bytes], FoundAttachments]:
    folder = path.parent / "attached"
    folder.mkdir()
    found = reader.read_attachments(
        ReadRequest(path, name=name, password=password),
        limits=AttachmentLimits(10, 1000, 10_000),
        folder=folder,
    )
    assert {path.parent for _, path in found.files} <= {folder}
    return {own: written.read_bytes() for own, written in found.files}, found


def build_mail(**files: bytes) -> bytes:
    message = EmailMessage()
    message["Subject"] = "Files"
    for name, content in files.items():
        message.add_attachment(content, "application", "octet-stream", filename=f"../{name}.bin")
    return message.as_bytes()


def test_attachments_come_out_of_their_process(tmp_path: Path) -> None:
    path = save(tmp_path, build_mail(a=b"one", b=b"2" * 1001))

    taken, found = read_attachments(make_reader(), path)

    assert taken == {"a.bin": b"one"}
    assert found.left_out == (LeftOut("b.bin", LeaveReason.TOO_LARGE),)
    assert not (tmp_path / "a.bin").exists()


def test_a_document_that_is_kept_remembers_that_files_are_attached(tmp_path: Path, pdf: bytes) -> None:
    path = save(tmp_path, embed(pdf, {"a.txt": b"one"}))
    reader = make_reader(cache=PageCache(tmp_path / "cache", max_bytes=10**9))

    counts = [read(reader, path, name="m.pdf").attachment_count for _ in range(2)]

    assert counts == [1, 1]
    assert read_attachments(reader, path, name="m.pdf")[0] == {"a.txt": b"one"}


def test_files_in_a_locked_pdf_need_its_password(tmp_path: Path, pdf: bytes) -> None:
    writer = PdfWriter(clone_from=io.BytesIO(embed(pdf, {"a.txt": b"one"})))
    writer.encrypt("secret", algorithm="AES-256")
    buffer = io.BytesIO()
    writer.write(buffer)
    path = save(tmp_path, buffer.getvalue())

    taken, _ = read_attachments(make_reader(), path, name="m.pdf", password="secret")

    assert taken == {"a.txt": b"one"}


def test_an_attachment_that_needs_too_much_memory_ends_only_its_process(tmp_path: Path, pdf: bytes) -> None:
    writer = PdfWriter(clone_from=io.BytesIO(embed(pdf, {"a.txt": b"one", "z.txt": b"two"})))
    stream = writer.add_attachment("bomb.txt", b"")._embedded_file
    stream[NameObject("/Filter")] = NameObject("/FlateDecode")
    stream._data = zlib.compress(bytes(700 * MIB), 1)
    buffer = io.BytesIO()
    writer.write(buffer)
    path = save(tmp_path, buffer.getvalue())

    taken, found = read_attachments(make_reader(memory_bytes=256 * MIB), path, name="m.pdf")

    assert taken == {"a.txt": b"one", "z.txt": b"two"}
    assert found.left_out == (LeftOut("bomb.txt", LeaveReason.UNREADABLE),)


def test_taking_attachments_out_stops_when_the_job_is_cancelled(tmp_path: Path) -> None:
    path = save(tmp_path, build_mail(a=b"one"))

    with pytest.raises(JobCancelledError):
        make_reader().read_attachments(
            ReadRequest(path, name="mail.eml", is_cancelled=lambda: True),
            limits=AttachmentLimits(10, 1000, 10_000),
            folder=tmp_path,
        )
