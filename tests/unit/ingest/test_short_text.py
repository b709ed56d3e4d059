from __future__ import annotations

from pathlib import Path

import pytest

from ingest.short_text import MAX_BYTES, ShortTextReader
from kb.errors import DamagedFileError, EmptyFileError, JobCancelledError
from kb.ports import AttachmentLimits, DocumentReader, FoundAttachments, ReadRequest
from kb.types import ParsedDocument


class Elsewhere:
    """Reads nothing, and says that it was asked."""

    def read(self, request: ReadRequest) -> ParsedDocument:
        raise DamagedFileError(f"{request.name} was left to the other reader")

    def read_attachments(
        self, request: ReadRequest, *, limits: AttachmentLimits, folder: Path
    ) -> FoundAttachments:
        return FoundAttachments(files=(("a.txt", request.path),))


def read(path: Path, *, name: str = "note.txt", cancelled: bool = False) -> ParsedDocument:
    other: DocumentReader = Elsewhere()
    return ShortTextReader(other).read(ReadRequest(path, name=name, is_cancelled=lambda: cancelled))


@pytest.mark.parametrize("name", ["note.txt", "说明.TXT"])
def test_short_text_is_read_at_once(tmp_path: Path, name: str) -> None:
    path = tmp_path / "abc"
    path.write_text("阀门 V2\n\n关闭后排气。\n", encoding="utf-8")

    parsed = read(path, name=name)

    assert [page.text for page in parsed.pages] == ["阀门 V2\n关闭后排气。"]
    assert parsed.media_type == "text/plain"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("note.md", b"# Pump"),
        ("note.txt", b"x" * (MAX_BYTES + 1)),
        ("note.txt", "阀门".encode("gb18030")),
        ("note.txt", b"a\0b"),
        ("note.txt", b"%PDF-1.7 and so on"),
        ("note.txt", b"<html><body>x</body></html>"),
        ("note.txt", b""),
    ],
)
def test_everything_else_is_left_to_the_other_reader(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / "abc"
    path.write_bytes(content)

    with pytest.raises(DamagedFileError, match="left to the other reader"):
        read(path, name=name)


def test_bytes_that_are_gone_are_left_to_the_other_reader(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match="left to the other reader"):
        read(tmp_path / "none")


def test_white_space_alone_is_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_text(" \n\n\t\n", encoding="utf-8")

    with pytest.raises(EmptyFileError):
        read(path)


def test_a_cancelled_job_ends_before_it_reads(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_text("text", encoding="utf-8")

    with pytest.raises(JobCancelledError):
        read(path, cancelled=True)
