"""PDF: page by page PDFium's text, tables by their rules, OCR where no text layer serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pypdfium2
import pypdfium2.raw as pdfium_c

from ingest.characters import clean_line, undecodable_share
from ingest.formats import PDF
from ingest.layout import find_title, lay_out_pages, normalise_heading
from ingest.lines import PageContent
from ingest.ocr import OcrEngine
from ingest.paged import parse_paged
from ingest.pdf_pages import PdfPageReader
from kb.errors import (
    DamagedFileError,
    GarbledTextError,
    NoTextFoundError,
    PasswordProtectedError,
    TooManyPagesError,
)
from kb.ports import PageProgress
from kb.types import ParsedDocument

_OUTLINE_DEPTH = 8
_NO_TITLES = frozenset(
    {"untitled", "(anonymous)", "untitled document", "无标题", "无标题文档", "document1", "unknown"}
)
_MAX_OUTLINE_ENTRIES = 20_000
_METADATA = {
    "Author": "author",
    "Subject": "subject",
    "Keywords": "keywords",
    "Creator": "creator",
    "Producer": "producer",
    "CreationDate": "created",
}


class PdfParser:
    """Reads PDF; `engine` None means that pages without text stay unread, with a warning."""

    def __init__(self, *, engine: OcrEngine | None, max_pages: int) -> None:
        self._engine = engine
        self._max_pages = max_pages

    def parse(self, path: Path, *, name: str, password: str | None, progress: PageProgress) -> ParsedDocument:
        """Return the pages.

        Raises `PasswordProtectedError`, `DamagedFileError`, `TooManyPagesError`, `NoTextFoundError`, or
        `GarbledTextError` when the text layer is undecodable and OCR read nothing.
        """
        return parse_paged(self, path, name=name, password=password, progress=progress)

    @contextmanager
    def open(self, path: Path, *, name: str, password: str | None) -> Iterator[PdfSource]:
        """See `ingest.paged.PagedParser`."""
        document = _open(path, name, password)
        try:
            total = len(document)
            if total == 0:
                raise DamagedFileError(f"{name!r} has no page that can be read")
            if total > self._max_pages:
                raise TooManyPagesError(f"{name!r} has {total} pages, the limit is {self._max_pages}")
            reader = PdfPageReader(document, path=path, password=password, engine=self._engine)
            yield PdfSource(document, reader, name=name, reads_pictures=self._engine is not None)
        finally:
            document.close()


class PdfSource:
    """An open PDF; see `ingest.paged.PageSource`."""

    def __init__(self, document: Any, reader: PdfPageReader, *, name: str, reads_pictures: bool) -> None:
        self._document = document
        self._reader = reader
        self._name = name
        self._reads_pictures = reads_pictures

    @property
    def page_count(self) -> int:
        """How many pages there are."""
        return len(self._document)

    def read_page(self, page_number: int) -> PageContent:
        """Return what stands on one page, without its outline entries."""
        return self._reader.read(page_number)

    def assemble(self, contents: Sequence[PageContent]) -> ParsedDocument:
        """Lay the pages out, with the document's outline, title and metadata."""
        outline = _read_outline(self._document)
        pages = tuple(
            lay_out_pages([replace(page, outline=outline.get(page.page_number, {})) for page in contents])
        )
        attachment_count = self._count_attachments(contents)
        if not any(page.text for page in pages):
            self._refuse(contents, attachment_count)
        metadata = _read_metadata(self._document)
        title = clean_line(metadata.pop("title", ""))
        return ParsedDocument(
            pages=pages,
            media_type=PDF,
            title=title if _is_title(title, self._name) else find_title(pages),
            metadata=metadata,
            warnings=tuple(_document_warnings(contents)),
            attachment_count=attachment_count,
        )

    def _count_attachments(self, contents: Sequence[PageContent]) -> int:
        """Count files of the document, and those pinned to its pages."""
        own = max(int(self._document.count_attachments()), 0)
        return own + sum(content.pinned_files for content in contents)

    def _refuse(self, contents: Sequence[PageContent], attachment_count: int) -> None:
        name = self._name
        codes = [warning.split(":")[0] for content in contents for warning in content.warnings]
        if codes and all(code == "page_damaged" for code in codes) and len(codes) == len(contents):
            raise DamagedFileError(f"no page of {name!r} can be read")
        if "garbled_text" in codes:
            raise GarbledTextError(f"the text of {name!r} is undecodable and OCR read nothing")
        if attachment_count:
            return  # a cover for the files in it
        if not self._reads_pictures and "page_without_text" in codes:
            raise NoTextFoundError(
                f"{name!r} holds pictures only and OCR is switched off",
                next_step="Set KB_OCR=true and upload it again.",
            )
        raise NoTextFoundError(f"no text was found on the {len(contents)} page(s) of {name!r}")


def _open(path: Path, name: str, password: str | None) -> Any:
    try:
        return pypdfium2.PdfDocument(path, password=password)
    except pypdfium2.PdfiumError as error:
        code = getattr(error, "err_code", None)
        if code == pdfium_c.FPDF_ERR_PASSWORD:
            given = "the password given does not open it" if password else "it needs a password"
            raise PasswordProtectedError(f"{name!r} is encrypted: {given}") from error
        if code == pdfium_c.FPDF_ERR_SECURITY:
            raise PasswordProtectedError(f"{name!r} is encrypted in a way that is not supported") from error
        raise DamagedFileError(f"{name!r} cannot be opened as PDF") from error


def _read_outline(document: Any) -> dict[int, dict[str, int]]:
    """Return, by page number, the outline's entries in comparable form with their levels from 1."""
    entries: dict[int, dict[str, int]] = {}
    try:
        for count, bookmark in enumerate(document.get_toc(max_depth=_OUTLINE_DEPTH)):
            if count >= _MAX_OUTLINE_ENTRIES:
                break
            target = bookmark.get_dest()
            index = target.get_index() if target is not None else None
            title = normalise_heading(_read_string(bookmark.get_title))
            if index is not None and title:
                entries.setdefault(index + 1, {}).setdefault(title, bookmark.level + 1)
    except pypdfium2.PdfiumError:
        return entries
    return entries


def _read_metadata(document: Any) -> dict[str, str]:
    wanted = {"Title": "title", **_METADATA}
    raw = {name: _read_string(partial(document.get_metadata_value, key)) for key, name in wanted.items()}
    return {name: value for name, value in ((name, clean_line(text)) for name, text in raw.items()) if value}


def _read_string(read: Callable[[], str]) -> str:
    """Return a string of the file, empty if it is no valid UTF-16: one broken bookmark is no broken file."""
    try:
        return read()
    except UnicodeDecodeError:
        return ""


def _is_title(title: str, name: str) -> bool:
    """Return whether the metadata's title is one and not left by the program that wrote the file."""
    if not title or undecodable_share(title) > 0 or title.casefold() in _NO_TITLES:
        return False
    if title.casefold() == Path(name).name.casefold():
        return False
    return not title.casefold().startswith(
        ("microsoft word", "microsoft powerpoint")
    ) and not title.lower().endswith(
        (".doc", ".docx", ".ppt", ".pptx", ".xls", ".xlsx", ".dvi", ".tex", ".indd", ".qxd", ".fm", ".cdr")
    )


def _document_warnings(contents: Sequence[PageContent]) -> Iterator[str]:
    unread = [content.page_number for content in contents if _has(content, "page_without_text")]
    damaged = [content.page_number for content in contents if _has(content, "page_damaged")]
    garbled = [content.page_number for content in contents if _has(content, "garbled_text")]
    doubtful = [content.page_number for content in contents if _has(content, "undecodable_characters")]
    if unread:
        yield f"pages_without_text: no text was read on page(s) {_ranges(unread)}"
    if damaged:
        yield f"pages_damaged: page(s) {_ranges(damaged)} cannot be read"
    if garbled:
        yield f"garbled_text: the text of page(s) {_ranges(garbled)} is undecodable"
    if doubtful:
        yield f"undecodable_characters: some characters on page(s) {_ranges(doubtful)} may be wrong"


def _has(content: PageContent, code: str) -> bool:
    return any(warning.startswith(f"{code}:") for warning in content.warnings)


def _ranges(numbers: list[int]) -> str:
    """Return `1-3, 7` for [1, 2, 3, 7]."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)
