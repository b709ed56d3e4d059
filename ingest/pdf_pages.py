"""One PDF page at a time: its text layer, a repaired reading of it, or OCR, whichever serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pypdfium2
import pypdfium2.raw as pdfium_c

from ingest.characters import clean_line, count_words, undecodable_share
from ingest.lines import PageContent, PlacedTable, TextLine
from ingest.ocr import OcrEngine
from ingest.paged import damaged_page
from ingest.parsers.image import lines_from_picture
from ingest.pdf_annotations import count_pinned_files, has_text_annotations
from ingest.pdf_glyphs import make_line, page_transform, read_glyphs, split_at_gaps
from ingest.pdf_repair import read_repaired_lines
from ingest.pdf_rulings import find_cell_groups, read_tables
from ingest.turning import find_turn
from kb.types import Box, TextSource

_POINTS_PER_INCH = 72.0
_OCR_DPI = 200
_OCR_MAX_SIDE_PIXELS = 2600
# Shares of characters without Unicode in the file: doubtful, and too many to trust a text that reads well.
_UNMAPPED_LIMIT = 0.10
_UNMAPPED_CERTAIN = 0.5
_UNDECODABLE_LIMIT = 0.3
_FEW_WORDS = 12
_SCAN_COVERAGE = 0.5
_MAX_PAGE_CHARS = 200_000


@dataclass(slots=True)
class _Reading:
    """What is known of a page so far; shares are 0..1 of its characters."""

    lines: list[TextLine]
    tables: list[PlacedTable] = field(default_factory=list)
    source: TextSource = TextSource.TEXT
    unmapped: float = 0.0
    undecodable: float = 0.0
    confidence: float | None = None
    warnings: list[str] = field(default_factory=list)
    turned: int = 0

    @property
    def text(self) -> str:
        """All text in no certain order."""
        return _whole_text(self.lines, self.tables)


class PdfPageReader:
    """Reads the pages of one open document; `engine` None means that OCR is switched off."""

    def __init__(self, document: Any, *, path: Path, password: str | None, engine: OcrEngine | None) -> None:
        self._document = document
        self._path = path
        self._password = password
        self._engine = engine

    def read(self, page_number: int) -> PageContent:
        """Return what stands on the page; a page that cannot be loaded is empty with a warning."""
        try:
            page, pinned = _load_page(self._document, page_number)
        except pypdfium2.PdfiumError as error:
            return damaged_page(page_number, str(error))
        try:
            return replace(self._read(page, page_number), pinned_files=pinned)
        finally:
            page.close()

    def _read(self, page: Any, page_number: int) -> PageContent:
        reading, width, height = _read_text_layer(page, page_number)
        unmapped_doubt = reading.unmapped > _UNMAPPED_LIMIT or reading.undecodable > _UNDECODABLE_LIMIT
        doubtful = bool(reading.text) and unmapped_doubt
        if doubtful:
            doubtful = not self._repair(reading, page_number)
        if doubtful or (
            count_words(reading.text) < _FEW_WORDS and _needs_ocr(page, reading.text, width, height)
        ):
            self._read_picture(reading, page, page_number, (width, height), garbled=doubtful)
        if not reading.lines and not reading.tables:
            reading.source = TextSource.NONE
            if not reading.warnings and _draws_something(page):
                reading.warnings.append(f"page_without_text: no text was found on page {page_number}")
        if reading.turned in (90, 270):
            width, height = height, width
        return PageContent(
            page_number=page_number,
            width=round(width, 2),
            height=round(height, 2),
            lines=tuple(reading.lines),
            tables=tuple(reading.tables),
            label=_label(self._document, page_number),
            source=reading.source,
            undecodable=round(reading.undecodable, 4),
            ocr_confidence=reading.confidence,
            warnings=tuple(reading.warnings),
            turned=reading.turned,
        )

    def _repair(self, reading: _Reading, page_number: int) -> bool:
        """Replace a doubtful reading by a better one, or clear the doubt; returns False if doubt remains."""
        lines = read_repaired_lines(self._path, page_number=page_number, password=self._password)
        text = _whole_text(lines, ())
        if _is_better(text, reading.text, unmapped=reading.unmapped):
            reading.lines, reading.tables, reading.source = list(lines), [], TextSource.REPAIRED
            reading.turned = 0
            reading.undecodable = undecodable_share(text)
            return True
        if reading.unmapped > _UNMAPPED_CERTAIN or reading.undecodable > _UNDECODABLE_LIMIT:
            return False
        reading.undecodable = max(reading.undecodable, reading.unmapped)
        reading.warnings.append(
            f"undecodable_characters: {reading.unmapped:.0%} of the characters on page {page_number} have no "
            "Unicode in the file and may be wrong"
        )
        return True

    def _read_picture(
        self, reading: _Reading, page: Any, page_number: int, size: tuple[float, float], *, garbled: bool
    ) -> None:
        """Replace the reading by OCR's when that shows more, or when the text layer is garbage."""
        lines, confidence = self._ocr(page, *size)
        if garbled or _word_count(lines) > count_words(reading.text):
            reading.lines, reading.tables, reading.source = list(lines), [], TextSource.OCR
            reading.turned = 0
            reading.confidence = confidence
            reading.undecodable = 0.0 if lines else reading.undecodable
        if garbled and not lines:
            reading.warnings.append(f"garbled_text: the text of page {page_number} is undecodable")
        elif self._engine is None:
            reading.warnings.append(
                f"page_without_text: page {page_number} is a picture and OCR is switched off"
            )

    def _ocr(self, page: Any, width: float, height: float) -> tuple[tuple[TextLine, ...], float | None]:
        if self._engine is None or width <= 0 or height <= 0:
            return (), None
        scale = min(_OCR_DPI / _POINTS_PER_INCH, _OCR_MAX_SIDE_PIXELS / max(width, height))
        bitmap = page.render(scale=scale, rev_byteorder=True)
        try:
            picture = bitmap.to_pil().convert("RGB")
        finally:
            bitmap.close()
        return lines_from_picture(np.asarray(picture), self._engine, points_per_pixel=1 / scale)


def _read_text_layer(page: Any, page_number: int) -> tuple[_Reading, float, float]:
    """Return PDFium's text with the ruled tables, and the size of the shown page."""
    _, width, height = page_transform(page)
    text_page = page.get_textpage()
    try:
        turned = find_turn(page, text_page)
        to_page, _, _ = page_transform(page, turned=turned)
        if text_page.count_chars() > _MAX_PAGE_CHARS:
            reading = _Reading(lines=_plain_lines(text_page, width))
            reading.warnings.append(
                f"page_too_dense: page {page_number} holds over {_MAX_PAGE_CHARS} characters; "
                "tables and columns were not looked for"
            )
        else:
            glyphs = read_glyphs(text_page, to_page)
            tables, rest = read_tables(find_cell_groups(page, to_page), glyphs.lines, text_page)
            made = (make_line(part, text_page) for line in rest for part in split_at_gaps(line))
            reading = _Reading(
                lines=[line for line in made if line is not None],
                tables=tables,
                unmapped=glyphs.unmapped_share,
                turned=turned,
            )
    finally:
        text_page.close()
    reading.undecodable = undecodable_share(reading.text)
    return reading, width, height


def _load_page(document: Any, page_number: int) -> tuple[Any, int]:
    """Return the page, with the text of its annotations and form fields made part of it.

    Also how many files are pinned to it, of which a flattened page knows nothing.
    """
    page = document[page_number - 1]
    if not has_text_annotations(page):
        return page, 0
    pinned = count_pinned_files(page)
    # Not pypdfium2's own method: it wants a form environment, which documents without forms lack.
    pdfium_c.FPDFPage_Flatten(page.raw, pdfium_c.FLAT_NORMALDISPLAY)
    page.close()
    # A flattened page shows its new content only when it is loaded again.
    return document[page_number - 1], pinned


def _plain_lines(text_page: Any, width: float) -> list[TextLine]:
    """Return PDFium's own lines without places, for pages too dense to analyse."""
    text = text_page.get_text_bounded()
    lines = [clean_line(line) for line in text.splitlines()]
    return [
        TextLine(line, Box(0.0, 12.0 * number, width, 12.0 * number + 10.0), 10.0)
        for number, line in enumerate(filter(None, lines))
    ]


def _whole_text(lines: Sequence[TextLine], tables: Sequence[PlacedTable]) -> str:
    parts = [line.text for line in lines]
    parts.extend(cell for table in tables for row in table.grid.shown for cell in row)
    return "\n".join(parts)


def _is_better(repaired: str, text: str, *, unmapped: float) -> bool:
    """Return whether the second reading replaces the first: it says something else, and is no worse."""
    if not repaired.strip() or undecodable_share(repaired) > min(undecodable_share(text), _UNDECODABLE_LIMIT):
        return False
    first, second = "".join(text.split()), "".join(repaired.split())
    if sorted(first) == sorted(second):
        return False
    if undecodable_share(text) > undecodable_share(repaired):
        return True
    return unmapped > _UNMAPPED_CERTAIN and _looks_like_language(repaired) >= _looks_like_language(text)


def _looks_like_language(text: str) -> float:
    """Return the share of printed characters that are lower-case letters or of scripts without case."""
    printed = [char for char in text if not char.isspace()]
    if not printed:
        return 0.0
    return sum(char.isalpha() and not char.isupper() for char in printed) / len(printed)


def _needs_ocr(page: Any, text: str, width: float, height: float) -> bool:
    """Return whether a page with few words is a picture of text."""
    if not text.strip():
        return _draws_something(page)
    covered = 0.0
    for item in page.get_objects(filter=(pdfium_c.FPDF_PAGEOBJ_IMAGE,), max_depth=4):
        left, bottom, right, top = item.get_bounds()
        covered += max(right - left, 0.0) * max(top - bottom, 0.0)
    return covered >= _SCAN_COVERAGE * max(width * height, 1.0)


def _draws_something(page: Any) -> bool:
    return int(pdfium_c.FPDFPage_CountObjects(page.raw)) > 0


def _word_count(lines: Sequence[TextLine]) -> int:
    return count_words("\n".join(line.text for line in lines))


def _label(document: Any, page_number: int) -> str | None:
    try:
        label = clean_line(document.get_page_label(page_number - 1))
    except UnicodeDecodeError:
        return None
    return label if label and label != str(page_number) else None
