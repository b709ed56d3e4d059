"""The characters of a PDF page by PDFium, as lines with places in the page as it is shown."""

from __future__ import annotations

import ctypes
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pypdfium2.raw as pdfium_c

from ingest.characters import clean_line
from ingest.lines import TextLine, Word
from kb.types import Box

Point = tuple[float, float]
ToPage = Callable[[float, float], Point]

# Glyphs further apart than this many type sizes stand in different columns or cells.
_WIDE_GAP = 1.4
_BOLD_WEIGHT = 600
# PDFium marks a hyphen at the end of a line with one of these instead of the hyphen itself.
_LINE_HYPHENS = (0x02, 0xFFFE, 0xAD)
_LINE_BREAKS = (0x0A, 0x0D)


@dataclass(frozen=True, slots=True)
class Glyph:
    """One character; `index` is its number in PDFium's text page, the box has its origin at the top left."""

    text: str
    index: int
    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(frozen=True, slots=True)
class GlyphPage:
    """The characters of a page in PDFium's lines; `unmapped_share` (0..1) have no Unicode in the file."""

    lines: tuple[tuple[Glyph, ...], ...]
    unmapped_share: float


def page_transform(page: Any, *, turned: int = 0) -> tuple[ToPage, float, float]:
    """Return a function from PDF space to points from the top left of the page, and its size.

    The page is as it is shown, then turned clockwise by so many degrees.
    """
    left, bottom, right, top = page.get_bbox()
    width, height = right - left, top - bottom
    match (page.get_rotation() + turned) % 360:
        case 90:
            return (lambda x, y: (y - bottom, x - left)), height, width
        case 180:
            return (lambda x, y: (right - x, y - bottom)), width, height
        case 270:
            return (lambda x, y: (top - y, right - x)), height, width
        case _:
            return (lambda x, y: (x - left, top - y)), width, height


def read_glyphs(text_page: Any, to_page: ToPage) -> GlyphPage:
    """Return all characters of the page; PDFium takes those drawn twice to look bold once."""
    raw = text_page.raw
    count = max(pdfium_c.FPDFText_CountChars(raw), 0)
    rect = pdfium_c.FS_RECTF()
    loose = ctypes.byref(rect)
    lines: list[tuple[Glyph, ...]] = []
    line: list[Glyph] = []
    printed = unmapped = 0
    high = 0
    for index in range(count):
        code = pdfium_c.FPDFText_GetUnicode(raw, index)
        if code in _LINE_BREAKS:
            if line:
                lines.append(tuple(line))
                line = []
            continue
        if 0xD800 <= code < 0xDC00:
            high = code
            continue
        if 0xDC00 <= code < 0xE000:
            code = 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00) if high else 0xFFFD
        high = 0
        text = "-" if code in _LINE_HYPHENS else chr(code)
        if not pdfium_c.FPDFText_GetLooseCharBox(raw, index, loose):
            rect.left = rect.right = rect.top = rect.bottom = 0.0
        (xa, ya), (xb, yb) = to_page(rect.left, rect.bottom), to_page(rect.right, rect.top)
        x0, x1 = (xa, xb) if xa <= xb else (xb, xa)
        y0, y1 = (ya, yb) if ya <= yb else (yb, ya)
        if code > 0x20:
            printed += 1
            unmapped += pdfium_c.FPDFText_HasUnicodeMapError(raw, index) == 1
        line.append(Glyph(text, index, x0, y0, x1, y1))
    if line:
        lines.append(tuple(line))
    return GlyphPage(tuple(lines), unmapped / printed if printed else 0.0)


def split_at_gaps(line: Sequence[Glyph]) -> list[list[Glyph]]:
    """Return the parts of a line that wide gaps or a jump to another baseline part."""
    if _is_upright_column(line) or any(_is_right_to_left(glyph.text) for glyph in line):
        return [list(line)]
    parts: list[list[Glyph]] = []
    part: list[Glyph] = []
    former: Glyph | None = None
    for glyph in line:
        if glyph.text.isspace():
            part.append(glyph)
            continue
        if former is not None:
            size = max(former.y1 - former.y0, glyph.y1 - glyph.y0, 1.0)
            gap = glyph.x0 - former.x1
            shift = abs((glyph.y0 + glyph.y1) - (former.y0 + former.y1)) / 2
            if gap > _WIDE_GAP * size or shift > 0.9 * size or gap < -3 * size:
                parts.append(part)
                part = []
        part.append(glyph)
        former = glyph
    parts.append(part)
    return [part for part in parts if any(not glyph.text.isspace() for glyph in part)]


def make_line(glyphs: Sequence[Glyph], text_page: Any) -> TextLine | None:
    """Return the glyphs as a line with its type size and weight, None without printed characters."""
    printed = [glyph for glyph in glyphs if not glyph.text.isspace()]
    text = clean_line("".join(glyph.text for glyph in glyphs))
    if not printed or not text:
        return None
    box = Box(
        round(min(glyph.x0 for glyph in printed), 2),
        round(min(glyph.y0 for glyph in printed), 2),
        round(max(glyph.x1 for glyph in printed), 2),
        round(max(glyph.y1 for glyph in printed), 2),
    )
    middle = printed[len(printed) // 2]
    weight = pdfium_c.FPDFText_GetFontWeight(text_page.raw, middle.index)
    return TextLine(
        text=text,
        box=box,
        size=_type_size(text_page, middle, printed),
        bold=weight >= _BOLD_WEIGHT or _has_bold_name(text_page, middle.index),
        words=tuple(_words(glyphs)),
    )


def _words(glyphs: Sequence[Glyph]) -> Iterator[Word]:
    """Yield what stands between spaces, with its place in the line."""
    for is_space, group in itertools.groupby(glyphs, key=lambda glyph: glyph.text.isspace()):
        members = list(group)
        if not is_space:
            text = "".join(glyph.text for glyph in members)
            yield Word(text, min(glyph.x0 for glyph in members), max(glyph.x1 for glyph in members))


def _type_size(text_page: Any, glyph: Glyph, printed: Sequence[Glyph]) -> float:
    """Return the font size as scaled on the page, the height of the glyphs where that is unknown."""
    matrix = pdfium_c.FS_MATRIX()
    size = float(pdfium_c.FPDFText_GetFontSize(text_page.raw, glyph.index))
    if pdfium_c.FPDFText_GetMatrix(text_page.raw, glyph.index, ctypes.byref(matrix)):
        size *= math.sqrt(abs(matrix.a * matrix.d - matrix.b * matrix.c))
    height = statistics.median(min(g.y1 - g.y0, g.x1 - g.x0) if _is_tall(g) else g.y1 - g.y0 for g in printed)
    if not 0.3 * height <= size <= 3 * max(height, 1.0):
        size = height
    return max(round(size, 2), 1.0)


def _is_tall(glyph: Glyph) -> bool:
    return glyph.y1 - glyph.y0 > 4 * max(glyph.x1 - glyph.x0, 0.1)


def _has_bold_name(text_page: Any, index: int) -> bool:
    buffer = ctypes.create_string_buffer(128)
    flags = ctypes.c_int()
    length = pdfium_c.FPDFText_GetFontInfo(text_page.raw, index, buffer, 128, ctypes.byref(flags))
    if not 0 < length <= 128:
        return False
    name = buffer.value.decode("utf-8", errors="replace").lower()
    return any(word in name for word in ("bold", "heavy", "black", "semib", "simhei", "heiti"))


def _is_upright_column(line: Sequence[Glyph]) -> bool:
    """Return whether the glyphs stand under each other: vertical writing, or text turned by 90°."""
    printed = [glyph for glyph in line if not glyph.text.isspace()]
    if len(printed) < 2:
        return False
    width = max(glyph.x1 for glyph in printed) - min(glyph.x0 for glyph in printed)
    height = max(glyph.y1 for glyph in printed) - min(glyph.y0 for glyph in printed)
    return height > 2 * max(width, 1.0)


def _is_right_to_left(text: str) -> bool:
    return "\u0590" <= text <= "\u08ff" or "\ufb1d" <= text <= "\ufdff" or "\ufe70" <= text <= "\ufefc"
