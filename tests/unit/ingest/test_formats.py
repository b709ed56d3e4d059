from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from ingest import formats
from ingest.formats import detect_media_type
from kb.errors import DamagedFileError, EmptyFileError, UnsupportedFormatError


def office(part: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr(part, "<x/>")
    return buffer.getvalue()


def save(folder: Path, data: bytes) -> Path:
    path = folder / "bytes"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "name", "media_type"),
    [
        (b"junk\n%PDF-1.7\n", "manual.txt", formats.PDF),
        (b"\x89PNG\r\n\x1a\n....", "scan.pdf", formats.PNG),
        (b"\xff\xd8\xff\xe0....", "x", formats.JPEG),
        (b"II*\0....", "x", formats.TIFF),
        (b"MM\0*....", "x", formats.TIFF),
        (b"GIF89a....", "x", formats.GIF),
        (b"RIFF\0\0\0\0WEBPVP8 ", "x", formats.WEBP),
        (b"BM\x0a\0\0\0\0\0\0\0", "x", formats.BMP),
        (office("word/document.xml"), "no suffix", formats.DOCX),
        (office("xl/workbook.xml"), "a.docx", formats.XLSX),
        (office("ppt/presentation.xml"), "x", formats.PPTX),
        (b"a;b\n1;2\n", "TABLE.CSV", formats.CSV),
        (b"# Title\n", "note.md", formats.MARKDOWN),
        (b"<!DOCTYPE html><html></html>", "page", formats.HTML),
        (b"<?xml version='1.0'?><html></html>", "page", formats.HTML),
        (b"<?xml version='1.0'?><parts/>", "parts", formats.XML),
        (b"<parts/>", "parts.xml", formats.XML),
        (b"From: a@b\nTo: c@d\nSubject: x\n\nbody\n", "message", formats.EMAIL),
        (b"Subject: x\n\nbody\n", "message.eml", formats.EMAIL),
        ("检查油位".encode("gb18030"), "点检.txt", formats.TEXT),
        ("检查油位\n再启动".encode("utf-16-le"), "x.log", formats.TEXT),
        (b"a", "x", formats.TEXT),
        (("检" * 40000).encode(), "long.txt", formats.TEXT),
    ],
)
def test_content_decides_and_then_the_name(tmp_path: Path, data: bytes, name: str, media_type: str) -> None:
    assert detect_media_type(save(tmp_path, data), name) == media_type


def test_no_bytes_are_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(EmptyFileError):
        detect_media_type(save(tmp_path, b""), "x.pdf")


@pytest.mark.parametrize(
    ("name", "content", "target"),
    [
        ("old.doc", b"", "DOCX"),
        ("old.XLS", b"", "XLSX"),
        ("old.ppt", b"", "PPTX"),
        ("old", "WordDocument".encode("utf-16-le"), "DOCX"),
        ("old", "Workbook".encode("utf-16-le"), "XLSX"),
    ],
)
def test_a_legacy_office_file_names_the_way_out(
    tmp_path: Path, name: str, content: bytes, target: str
) -> None:
    path = save(tmp_path, formats.OLE_MAGIC + b"\0" * 100 + content)

    with pytest.raises(UnsupportedFormatError) as caught:
        detect_media_type(path, name)

    assert target in caught.value.next_step


@pytest.mark.parametrize(
    ("name", "media_type"), [("a.xlsx", formats.XLSX), ("a.pptx", formats.PPTX), ("a", formats.DOCX)]
)
def test_an_encrypted_office_file_keeps_its_format(tmp_path: Path, name: str, media_type: str) -> None:
    path = save(tmp_path, formats.OLE_MAGIC + "EncryptedPackage".encode("utf-16-le"))

    assert detect_media_type(path, name) == media_type


@pytest.mark.parametrize(
    "data",
    [
        bytes(range(256)) * 20,
        b"\x7fELF" + b"\0\1\2\3" * 50,
        formats.OLE_MAGIC + b"\0" * 50,
        office("data.bin"),
    ],
)
def test_what_no_parser_reads_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UnsupportedFormatError) as caught:
        detect_media_type(save(tmp_path, data), "firmware.bin")

    assert "firmware.bin" in caught.value.message
    assert caught.value.next_step


def test_a_cut_archive_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError):
        detect_media_type(save(tmp_path, office("word/document.xml")[:60]), "a.docx")


def test_text_named_pdf_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError):
        detect_media_type(save(tmp_path, b"just text"), "a.pdf")
