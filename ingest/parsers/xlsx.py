"""Workbooks by calamine: one page per sheet, a row is a unit."""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path

import python_calamine as calamine

from ingest.formats import XLSX
from ingest.pages import PageBuilder
from ingest.tables import Cell, Grid, build_table, count_header_rows, lay_out, split_titles
from kb.errors import DamagedFileError, NoTextFoundError, PasswordProtectedError, TooManyPagesError
from kb.ports import PageProgress
from kb.types import BlockKind, Page, ParsedDocument

_MAX_CELLS = 5_000_000
_MANY_COLUMNS = 1_000
# Excel keeps 15 significant digits; more are noise of binary fractions.
_SIGNIFICANT_DIGITS = 15


class XlsxParser:
    """Reads XLSX, XLSM and templates; sheets without text give no page."""

    def __init__(self, *, max_pages: int) -> None:
        self._max_pages = max_pages

    def parse(self, path: Path, *, name: str, password: str | None, progress: PageProgress) -> ParsedDocument:
        """Raises `PasswordProtectedError`, `NoTextFoundError`, `DamagedFileError` or `TooManyPagesError`."""
        del password
        try:
            workbook = calamine.CalamineWorkbook.from_path(str(path))
        except calamine.PasswordError as error:
            raise PasswordProtectedError(
                f"{name!r} is encrypted", next_step="Save a copy without a password and upload that."
            ) from error
        except calamine.CalamineError as error:
            raise DamagedFileError(f"{name!r} cannot be opened as a workbook: {error}") from error
        names = list(workbook.sheet_names)
        if len(names) > self._max_pages:
            raise TooManyPagesError(f"{name!r} has {len(names)} sheets, the limit is {self._max_pages}")
        pages: list[Page] = []
        warnings: list[str] = []
        table_index = 0
        for number, sheet_name in enumerate(names, start=1):
            try:
                cells = _read_cells(path, workbook.get_sheet_by_name(sheet_name), name)
            except calamine.CalamineError as error:
                warnings.append(f"sheet_unreadable: sheet {sheet_name!r} could not be read ({error})")
                cells = []
            builder = PageBuilder(number, label=sheet_name)
            table_index = _fill(builder, cells, sheet_name, table_index)
            pages.append(builder.build())
            progress(number, len(names))
        if not any(page.text for page in pages):
            raise NoTextFoundError(f"{name!r} has no cells with text")
        return ParsedDocument(pages=tuple(pages), media_type=XLSX, warnings=tuple(warnings))


def _fill(builder: PageBuilder, cells: Sequence[Cell], sheet_name: str, table_index: int) -> int:
    """Write the sheet's tables to the page; returns the index of the next table."""
    parts = [grid for grid in _split_at_blank_rows(cells) if grid.filled]
    if parts:
        builder.add_text(BlockKind.HEADING, sheet_name, level=1)
    for part in parts:
        titles, grid = split_titles(part)
        lone = grid.width == 1 and len(grid.filled) == 1
        for title in [*titles, *(grid.filled[0] if lone else ())]:
            builder.add_text(BlockKind.PARAGRAPH, title)
        if lone:
            continue
        builder.add_table(build_table(grid, header_count=count_header_rows(grid)), table_index=table_index)
        table_index += 1
    return table_index


def _split_at_blank_rows(cells: Sequence[Cell]) -> list[Grid]:
    """Return a grid per stretch of rows, parted where a new table begins after blank rows.

    A stretch goes on after a blank row when its next row begins in the same column and holds no
    new header: people leave rows blank inside a table, too.
    """
    by_row: dict[int, list[Cell]] = {}
    used: set[int] = set()
    for cell in cells:
        by_row.setdefault(cell.row, []).append(cell)
        used.update(range(cell.row, cell.row + cell.row_span))
    grids: list[Grid] = []
    pending: list[Cell] = []
    stretch: list[Cell] = []
    former = None
    for row in sorted(used):
        if former is not None and row > former + 1:
            pending = _extend(pending, stretch, grids)
            stretch = []
        stretch.extend(by_row.get(row, ()))
        former = row
    pending = _extend(pending, stretch, grids)
    if pending:
        grids.append(lay_out(pending))
    return grids


def _extend(pending: list[Cell], stretch: list[Cell], grids: list[Grid]) -> list[Cell]:
    """Return the table that is still open after `stretch`; one that ended goes to `grids`."""
    if pending and stretch and _begins_table(stretch, pending):
        grids.append(lay_out(pending))
        return stretch
    return pending + stretch


def _begins_table(members: Sequence[Cell], former: Sequence[Cell]) -> bool:
    """Return whether the stretch is a table of its own and not more rows of the former one."""
    columns = {cell.column for cell in members if cell.text.strip()}
    known = {cell.column for cell in former if cell.text.strip()}
    if not columns <= known or len(known) == 1 or len(columns) == 1:
        return True
    return count_header_rows(lay_out(members)) > 0


def _read_cells(path: Path, sheet: calamine.CalamineSheet, name: str) -> list[Cell]:
    """Return the cells with text at their places in the sheet, merged ranges as one cell each."""
    spans = {
        (start[0], start[1]): (end[0] - start[0] + 1, end[1] - start[1] + 1)
        for start, end in (sheet.merged_cell_ranges or [])
    }
    top, left = sheet.start or (0, 0)
    rows: Iterator[Sequence[object]] = sheet.iter_rows()
    if sheet.height * sheet.width > _MAX_CELLS:
        # A few cells far apart: calamine would hand out every blank place between them.
        rows, top, left = _sparse_rows(path, sheet.name), 0, 0
    cells: list[Cell] = []
    for row_number, row in enumerate(rows):
        for column_number, value in enumerate(row):
            text = show_value(value)
            if text:
                place = (row_number + top, column_number + left)
                cells.append(Cell(*place, text, *spans.get(place, (1, 1))))
        if len(cells) > _MAX_CELLS:
            raise TooManyPagesError(f"{name!r} has more than {_MAX_CELLS} cells")
    last = max((cell.row for cell in cells), default=0)
    placed = [Cell(c.row, c.column, c.text, min(c.row_span, last - c.row + 1), c.column_span) for c in cells]
    if not any(cell.column + cell.column_span > _MANY_COLUMNS for cell in placed):
        return placed
    dense = _without_empty_columns(placed)
    if len({cell.row for cell in dense}) * len({cell.column for cell in dense}) > _MAX_CELLS:
        raise TooManyPagesError(f"{name!r} has cells too far apart for a table of {_MAX_CELLS} cells")
    return dense


def _without_empty_columns(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells of a very wide sheet as if the columns without text were not there."""
    used = sorted({cell.column for cell in cells})
    return [
        Cell(
            cell.row,
            bisect_left(used, cell.column),
            cell.text,
            cell.row_span,
            bisect_left(used, cell.column + cell.column_span) - bisect_left(used, cell.column),
        )
        for cell in cells
    ]


def _sparse_rows(path: Path, sheet_name: str) -> Iterator[Sequence[object]]:
    """Yield each row of a sheet up to its last cell, by openpyxl, which keeps only one row at a time."""
    import openpyxl

    # An open file, as openpyxl refuses a path without a known suffix.
    with path.open("rb") as file:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        sheet = book[sheet_name]
        sheet.reset_dimensions()
        yield from sheet.iter_rows(values_only=True)
        book.close()


def show_value(value: object) -> str:
    """Return a cell's value as Excel shows it by default: `12`, `0.5`, `2024-05-01`, `TRUE`."""
    match value:
        case None:
            return ""
        case bool():
            return "TRUE" if value else "FALSE"
        case float():
            return _show_number(value)
        case dt.datetime():
            if value.time() == dt.time():
                return value.date().isoformat()
            return value.isoformat(sep=" ", timespec="seconds" if value.second else "minutes")
        case dt.time():
            return value.isoformat(timespec="seconds" if value.second else "minutes")
        case dt.date():
            return value.isoformat()
        case dt.timedelta():
            minutes, seconds = divmod(round(value.total_seconds()), 60)
            return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
        case _:
            return str(value).strip()


def _show_number(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 10**_SIGNIFICANT_DIGITS:
        return str(int(value))
    return f"{value:.{_SIGNIFICANT_DIGITS}g}"
