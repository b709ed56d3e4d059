"""Tables: cells with spans become rows that say, column by column, what stands in them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingest.characters import clean_line
from kb.codes import canonicalise, iter_codes
from kb.types import Box

_VALUE = re.compile(
    r"[-+±≤≥<>~≈$€£¥￥]*\s*\d[\d.,:/\s%×x*~-]*(?:\s?(?:[A-Za-zµΩ°℃%‰]{1,4}|[℃元年月日时分秒个台件次级]))?(?:/[A-Za-z]{1,4})?"
)
_MAX_HEADER_CELL = 80


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell; `row` and `column` count from 0, the spans from 1."""

    row: int
    column: int
    text: str
    row_span: int = 1
    column_span: int = 1
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of equal length, ready for a page.

    `shown` is what stands in the page text: a cell merged downwards is repeated in each row, one
    merged sideways stands once. `records` has one entry per row after the `header_count` header
    rows, with merged cells filled in both directions. `row_boxes` is empty or has a box per row.
    """

    shown: tuple[tuple[str, ...], ...]
    header_count: int
    columns: tuple[str, ...]
    records: tuple[Mapping[str, str], ...]
    row_boxes: tuple[Box | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells laid out: filled text and shown text by row and column.

    `section_rows` are the rows that one merged cell covers whole, as titles inside a table do.
    """

    filled: tuple[tuple[str, ...], ...]
    shown: tuple[tuple[str, ...], ...]
    cells: tuple[Cell, ...]
    row_boxes: tuple[Box | None, ...]
    section_rows: frozenset[int] = frozenset()

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.filled[0]) if self.filled else 0


def lay_out(cells: Sequence[Cell]) -> Grid:
    """Return the grid of the cells without its empty columns and rows."""
    if not cells:
        return Grid((), (), (), ())
    clean = [
        Cell(cell.row, cell.column, clean_line(cell.text), cell.row_span, cell.column_span, cell.box)
        for cell in cells
    ]
    height = max(cell.row + cell.row_span for cell in clean)
    width = max(cell.column + cell.column_span for cell in clean)
    filled = [[""] * width for _ in range(height)]
    shown = [[""] * width for _ in range(height)]
    boxes: list[Box | None] = [None] * height
    for cell in clean:
        for row in range(cell.row, cell.row + cell.row_span):
            for column in range(cell.column, cell.column + cell.column_span):
                filled[row][column] = cell.text
            shown[row][cell.column] = cell.text
            if cell.box is not None and cell.row_span == 1:
                boxes[row] = _around(boxes[row], cell.box)
    rows = [row for row in range(height) if any(filled[row])]
    columns = [column for column in range(width) if any(filled[row][column] for row in rows)]
    kept = _renumber(clean, rows, columns)
    return Grid(
        filled=tuple(tuple(filled[row][column] for column in columns) for row in rows),
        shown=tuple(tuple(shown[row][column] for column in columns) for row in rows),
        cells=kept,
        row_boxes=tuple(boxes[row] for row in rows),
        section_rows=_section_rows(kept, len(columns)),
    )


def split_titles(grid: Grid) -> tuple[list[str], Grid]:
    """Return the title rows above the table (one cell over all columns, or alone) and the rest.

    A lone cell at the very left over a table of several columns counts as a title too, as people
    write titles in spreadsheets without merging.
    """
    titles: list[str] = []
    count = 0
    for row in grid.filled[:-1]:
        texts = {text for text in row if text}
        if grid.width < 2 or len(texts) != 1:
            break
        if any(cell.row == count and cell.row_span > 1 for cell in grid.cells):
            break
        titles.append(texts.pop())
        count += 1
    return titles, without_first_rows(grid, count)


def without_first_rows(grid: Grid, count: int) -> Grid:
    """Return the grid without its first `count` rows."""
    if not count:
        return grid
    kept = tuple(
        Cell(cell.row - count, cell.column, cell.text, cell.row_span, cell.column_span, cell.box)
        for cell in grid.cells
        if cell.row >= count
    )
    return Grid(
        grid.filled[count:],
        grid.shown[count:],
        kept,
        grid.row_boxes[count:],
        _section_rows(kept, grid.width),
    )


def count_header_rows(grid: Grid) -> int:
    """Return how many leading rows name the columns: 0 when the first row already holds data."""
    if len(grid.filled) < 2 or not _names_columns(grid.filled[0], strict=True):
        return 0
    first = [cell for cell in grid.cells if cell.row == 0 and cell.text]
    depth = max((cell.row_span for cell in first), default=1)
    if depth > 1 and any(cell.row_span < depth for cell in first):
        return min(depth, len(grid.filled) - 1)
    grouped = any(1 < cell.column_span < grid.width for cell in first)
    if grouped and len(grid.filled) > 2 and _names_columns(grid.filled[1], strict=False):
        return 2
    return 1


def build_table(grid: Grid, *, header_count: int, columns: Sequence[str] | None = None) -> Table:
    """Return the table; `columns` names the columns of a table that began on a former page."""
    names = tuple(columns) if columns is not None else column_names(grid.filled[:header_count], grid.width)
    records = []
    for number in range(header_count, len(grid.filled)):
        filled, shown = grid.filled[number], grid.shown[number]
        texts = shown if number in grid.section_rows else filled
        records.append(dict(zip(names, texts, strict=True)))
    return Table(
        shown=grid.shown,
        header_count=header_count,
        columns=names,
        records=tuple(records),
        row_boxes=grid.row_boxes,
    )


def column_names(header: Sequence[Sequence[str]], width: int) -> tuple[str, ...]:
    """Return unique names: the header path of each column, `column N` where there is none."""
    names: list[str] = []
    for column in range(width):
        path: list[str] = []
        for row in header:
            if row[column] and (not path or path[-1] != row[column]):
                path.append(row[column])
        name = " / ".join(path) or f"column {column + 1}"
        unique, number = name, 2
        while unique in names:
            unique, number = f"{name} ({number})", number + 1
        names.append(unique)
    return tuple(names)


def looks_like_value(text: str) -> bool:
    """Return whether a cell holds a number, a quantity, a date or a code rather than a name."""
    if _VALUE.fullmatch(text):
        return True
    return any(canonicalise(text) == code.canonical for code in iter_codes(text))


def _names_columns(row: Sequence[str], *, strict: bool) -> bool:
    texts = [text for text in row if text]
    if not texts or (strict and len(row) > 1 and len(texts) * 2 < len(row)):
        return False
    return not any(looks_like_value(text) or len(text) > _MAX_HEADER_CELL for text in texts)


def _section_rows(cells: Sequence[Cell], width: int) -> frozenset[int]:
    return frozenset(
        cell.row for cell in cells if width > 1 and cell.row_span == 1 and cell.column_span >= width
    )


def _around(former: Box | None, box: Box) -> Box:
    if former is None:
        return box
    return Box(min(former.x0, box.x0), min(former.y0, box.y0), max(former.x1, box.x1), max(former.y1, box.y1))


def _renumber(cells: Sequence[Cell], rows: Sequence[int], columns: Sequence[int]) -> tuple[Cell, ...]:
    """Return the cells with places and spans counted without the rows and columns left out."""
    row_places = {row: number for number, row in enumerate(rows)}
    column_places = {column: number for number, column in enumerate(columns)}
    result = []
    for cell in cells:
        down = [row_places[row] for row in range(cell.row, cell.row + cell.row_span) if row in row_places]
        right = [
            column_places[column]
            for column in range(cell.column, cell.column + cell.column_span)
            if column in column_places
        ]
        if down and right:
            result.append(Cell(down[0], right[0], cell.text, len(down), len(right), cell.box))
    return tuple(result)
