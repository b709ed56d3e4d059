"""Which format a file is: by its content first, by its name where content leaves a choice."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path, PurePath

from ingest.encoding import decode
from kb.errors import DamagedFileError, EmptyFileError, UnsupportedFormatError

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
CSV = "text/csv"
HTML = "text/html"
XML = "application/xml"
MARKDOWN = "text/markdown"
TEXT = "text/plain"
EMAIL = "message/rfc822"
PNG = "image/png"
JPEG = "image/jpeg"
TIFF = "image/tiff"
BMP = "image/bmp"
WEBP = "image/webp"
GIF = "image/gif"

IMAGES = frozenset({PNG, JPEG, TIFF, BMP, WEBP, GIF})
OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

_HEAD_BYTES = 64 * 1024
_PDF_HEADER_WITHIN = 1024
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", PNG),
    (b"\xff\xd8\xff", JPEG),
    (b"II*\0", TIFF),
    (b"MM\0*", TIFF),
    (b"GIF87a", GIF),
    (b"GIF89a", GIF),
)
_OOXML_BY_PART = (("word/", DOCX), ("xl/", XLSX), ("ppt/", PPTX))
_OOXML_BY_SUFFIX = {
    ".docx": DOCX,
    ".docm": DOCX,
    ".dotx": DOCX,
    ".xlsx": XLSX,
    ".xlsm": XLSX,
    ".xltx": XLSX,
    ".pptx": PPTX,
    ".pptm": PPTX,
    ".ppsx": PPTX,
}
_TEXT_BY_SUFFIX = {
    ".csv": CSV,
    ".tsv": CSV,
    ".htm": HTML,
    ".html": HTML,
    ".xhtml": HTML,
    ".xml": XML,
    ".md": MARKDOWN,
    ".markdown": MARKDOWN,
    ".eml": EMAIL,
}
_LEGACY = {
    ".doc": ("Word 97–2003", "DOCX"),
    ".dot": ("Word 97–2003", "DOCX"),
    ".wps": ("WPS Writer", "DOCX"),
    ".xls": ("Excel 97–2003", "XLSX"),
    ".xlt": ("Excel 97–2003", "XLSX"),
    ".et": ("WPS Spreadsheets", "XLSX"),
    ".ppt": ("PowerPoint 97–2003", "PPTX"),
    ".pps": ("PowerPoint 97–2003", "PPTX"),
    ".dps": ("WPS Presentation", "PPTX"),
}
_HTML_START = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S
)
_XML_START = re.compile(r"\s*<\?xml\s", re.I)
_MAIL_HEADER = re.compile(r"(?:[A-Za-z][A-Za-z0-9-]*:[^\n]*\n(?:[ \t][^\n]*\n)*){2,}\r?\n?")
_MAIL_MARK = re.compile(r"^(?:from|received|return-path|mime-version|message-id|delivered-to):", re.I | re.M)


def detect_media_type(path: Path, name: str) -> str:
    """Return the media type of the file at `path`, uploaded as `name`.

    Raises `EmptyFileError` for 0 bytes, `UnsupportedFormatError` for what no parser reads, and
    `DamagedFileError` for an archive that cannot be opened.
    """
    size_bytes = path.stat().st_size
    if size_bytes == 0:
        raise EmptyFileError(f"{name!r} has 0 bytes")
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    suffix = PurePath(name).suffix.lower()
    if b"%PDF-" in head[:_PDF_HEADER_WITHIN]:
        return PDF
    for magic, media_type in _MAGIC:
        if head.startswith(magic):
            return media_type
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return WEBP
    if head.startswith(b"BM") and int.from_bytes(head[2:6], "little") == size_bytes:
        return BMP
    if head.startswith(OLE_MAGIC):
        return _detect_ole(path, name, suffix)
    if head.startswith(b"PK"):
        return _detect_zip(path, name)
    if suffix == ".pdf" and _is_text(head):
        raise DamagedFileError(f"{name!r} is named PDF but has no PDF header")
    if not _is_text(head):
        raise _unsupported(name, "its content is of no known format")
    return _detect_text(head, suffix)


def _detect_ole(path: Path, name: str, suffix: str) -> str:
    """Tell an encrypted OOXML file (returned as what its name says) from a legacy Office file."""
    content = path.read_bytes()
    if "EncryptedPackage".encode("utf-16-le") in content:
        return _OOXML_BY_SUFFIX.get(suffix, DOCX)
    kind, target = _LEGACY.get(suffix, ("an old Office or Outlook file", ""))
    if not target:
        for stream, found in (
            ("WordDocument", ("Word 97–2003", "DOCX")),
            ("Workbook", ("Excel 97–2003", "XLSX")),
            ("PowerPoint Document", ("PowerPoint 97–2003", "PPTX")),
        ):
            if stream.encode("utf-16-le") in content:
                kind, target = found
    if not target:
        raise _unsupported(name, f"it is {kind}")
    raise UnsupportedFormatError(
        f"{name!r} is a {kind} file, which is not read",
        next_step=f"Open it in Office, WPS or LibreOffice, save it as {target} and upload that file.",
    )


def _detect_zip(path: Path, name: str) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.namelist()
    except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
        raise DamagedFileError(
            f"{name!r} is an Office file or archive that cannot be opened: {error}"
        ) from error
    for prefix, media_type in _OOXML_BY_PART:
        if any(part.replace("\\", "/").startswith(prefix) for part in parts):
            return media_type
    raise _unsupported(name, "it is an archive")


def _is_text(head: bytes) -> bool:
    """Return whether the bytes decode to text: hardly any control or undecodable characters."""
    # A cut multi-byte character at the end of the sample must not count.
    text, encoding = decode(head[: len(head) // 4 * 4] if len(head) > 4 else head)
    if b"\0" in head and not encoding.startswith(("utf-16", "utf-32")):
        return False
    sample = text[:-2] or text
    bad = sum(1 for char in sample if char == "\ufffd" or (char < " " and char not in "\t\n\r\f\v\x1a\x1b"))
    return bad <= len(sample) * 0.02


def _detect_text(head: bytes, suffix: str) -> str:
    text, _ = decode(head)
    by_suffix = _TEXT_BY_SUFFIX.get(suffix)
    if by_suffix in (CSV, MARKDOWN, HTML, EMAIL):
        return by_suffix
    if _HTML_START.match(text):
        return HTML
    if by_suffix == XML or _XML_START.match(text):
        return XML
    if not suffix and _MAIL_HEADER.match(text) and _MAIL_MARK.search(text[:4000]):
        return EMAIL
    return TEXT


def _unsupported(name: str, why: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(f"{name!r} is not read: {why}")
