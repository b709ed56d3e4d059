"""What stands on a page before it has an order: lines and tables with their places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ingest.tables import Grid
from kb.types import Box, TextSource


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a line and where it begins and ends."""

    text: str
    x0: float
    x1: float


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of one column, or the part of a line up to a wide gap; `size` is the type size in points."""

    text: str
    box: Box
    size: float
    bold: bool = False
    words: tuple[Word, ...] = ()

    @property
    def is_vertical(self) -> bool:
        """True for text set from top to bottom."""
        return len(self.text) > 1 and self.box.y1 - self.box.y0 > 2 * (self.box.x1 - self.box.x0)


@dataclass(frozen=True, slots=True)
class PlacedTable:
    """A table found on a page; `edges` are the x of its column borders, left and right included."""

    grid: Grid
    box: Box
    edges: tuple[float, ...]


Item = TextLine | PlacedTable


@dataclass(frozen=True, slots=True)
class PageContent:
    """All that was read from one page, in no certain order.

    `turned` says by how many degrees clockwise the page was turned for it: size and boxes are those of
    the turned page.
    """

    page_number: int
    width: float
    height: float
    lines: tuple[TextLine, ...]
    tables: tuple[PlacedTable, ...] = ()
    label: str | None = None
    source: TextSource = TextSource.TEXT
    undecodable: float | None = None
    ocr_confidence: float | None = None
    warnings: tuple[str, ...] = ()
    pinned_files: int = 0
    turned: int = 0
    outline: dict[str, int] = field(default_factory=dict)


def group_rows(lines: Sequence[TextLine]) -> list[list[TextLine]]:
    """Return the lines by common baseline, rows from top to bottom, each from left to right."""
    rows: list[list[TextLine]] = []
    tops: list[float] = []
    bottoms: list[float] = []
    for line in sorted(lines, key=lambda line: (line.box.y0 + line.box.y1) / 2):
        if rows:
            overlap = min(bottoms[-1], line.box.y1) - max(tops[-1], line.box.y0)
            smaller = min(bottoms[-1] - tops[-1], line.box.y1 - line.box.y0)
            if overlap > 0.5 * smaller:
                rows[-1].append(line)
                # The first line rules: a row must not creep down the page line by line.
                continue
        rows.append([line])
        tops.append(line.box.y0)
        bottoms.append(line.box.y1)
    for row in rows:
        row.sort(key=lambda line: line.box.x0)
    return rows
