"""Tables without rules: rows whose parts stand under each other."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from ingest.lines import PlacedTable, TextLine, Word, group_rows
from ingest.numbering import is_list_item
from ingest.pages import union_of
from ingest.tables import Cell, lay_out
from kb.types import Box

_MIN_ROWS = 3
_MIN_ROWS_OF_TWO = 4
# Rows further apart than this many type sizes don't belong to one table.
_MAX_GAP = 2.6
_MARK_LENGTH = 4
# Words of different column names are further apart than this many type sizes.
_HEADER_GAP = 0.6
_FULL = 0.8
_PROSE_CHARS = 18


def find_unruled_tables(lines: Sequence[TextLine]) -> tuple[list[PlacedTable], list[TextLine]]:
    """Return the tables and the lines that are in none of them."""
    rows = group_rows([line for line in lines if not line.is_vertical])
    tables: list[PlacedTable] = []
    used: set[int] = set()
    start = 0
    while start < len(rows):
        end, columns = _grow(rows, start)
        members: list[Sequence[TextLine]] = list(rows[start:end])
        if members and start and not any(id(line) in used for line in rows[start - 1]):
            header = _header_above(rows[start - 1], columns, gap=_gap(rows[start - 1], rows[start]))
            members = [header, *members] if header else members
        table = _make_table(members, columns) if len(members) >= _MIN_ROWS else None
        if table is None:
            start += 1
            continue
        tables.append(table)
        first = start - (len(members) - (end - start))
        used.update(id(line) for row in rows[first:end] for line in row)
        start = end
    return tables, [line for line in lines if id(line) not in used]


def _grow(rows: Sequence[Sequence[TextLine]], start: int) -> tuple[int, list[tuple[float, float]]]:
    """Return the end of the longest run of rows from `start` that fits in columns, and the columns."""
    if len(rows[start]) < 2:
        return start, []
    columns: list[tuple[float, float]] = []
    end = start
    for number in range(start, len(rows)):
        row = rows[number]
        if number > start and _gap(rows[number - 1], row) > _MAX_GAP * row[0].size:
            break
        merged = _merge(columns, row)
        if merged is None or (len(row) == 1 and not _continues(columns, row[0], rows[number - 1])):
            break
        columns = merged
        end = number + 1
    while end > start and len(rows[end - 1]) == 1 and _column_of(columns, rows[end - 1][0]) == 0:
        end -= 1
    return end, columns


def _header_above(
    row: Sequence[TextLine], columns: Sequence[tuple[float, float]], *, gap: float
) -> list[TextLine]:
    """Return the row as a line per column, empty when its words don't stand over the columns.

    Names of columns stand closer together than the cells below them, so the gaps that part cells
    don't part them; their words tell.
    """
    size = row[0].size
    words = sorted((word for line in row for word in line.words), key=lambda word: word.x0)
    if gap > _MAX_GAP * size or not words or len(columns) < 2:
        return []
    borders = [(former[1] + column[0]) / 2 for former, column in itertools.pairwise(columns)]
    groups: dict[int, list[Word]] = {}
    for word in words:
        middle = (word.x0 + word.x1) / 2
        groups.setdefault(sum(border <= middle for border in borders), []).append(word)
    parts = [groups[column] for column in sorted(groups)]
    apart = all(
        after[0].x0 - before[-1].x1 > _HEADER_GAP * size for before, after in itertools.pairwise(parts)
    )
    if len(parts) * 3 < len(columns) * 2 or len(parts) < 2 or not apart:
        return []
    box = row[0].box
    return [
        TextLine(
            " ".join(word.text for word in part),
            Box(max(part[0].x0, columns[column][0]), box.y0, min(part[-1].x1, columns[column][1]), box.y1),
            size,
            row[0].bold,
        )
        for column, part in zip(sorted(groups), parts, strict=True)
    ]


def _merge(
    columns: Sequence[tuple[float, float]], row: Sequence[TextLine]
) -> list[tuple[float, float]] | None:
    """Return the columns widened by the row, None when two columns or two parts would become one."""
    spans = sorted([*columns, *((line.box.x0, line.box.x1) for line in row)])
    merged: list[tuple[float, float]] = []
    for x0, x1 in spans:
        if merged and x0 < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], x1)
        else:
            merged.append((x0, x1))
    if len(merged) < max(len(columns), len(row)):
        return None
    places = [_column_of(merged, line) for line in row]
    return merged if len(set(places)) == len(places) else None


def _column_of(columns: Sequence[tuple[float, float]], line: TextLine) -> int:
    return next(number for number, (x0, x1) in enumerate(columns) if x0 <= line.box.x0 and line.box.x1 <= x1)


def _continues(columns: Sequence[tuple[float, float]], line: TextLine, former: Sequence[TextLine]) -> bool:
    """Return whether a lone part can be the second line of a cell in the row above."""
    inside = [
        number
        for number, (x0, x1) in enumerate(columns)
        if x0 - 1 <= line.box.x0 and line.box.x1 <= x1 + line.size
    ]
    return bool(inside) and line.box.y0 - max(part.box.y1 for part in former) < 0.8 * line.size


def _gap(former: Sequence[TextLine], row: Sequence[TextLine]) -> float:
    return min(line.box.y0 for line in row) - max(line.box.y1 for line in former)


def _make_table(
    rows: Sequence[Sequence[TextLine]], columns: Sequence[tuple[float, float]]
) -> PlacedTable | None:
    """Return the table, None when the rows are a list, columns of prose or too few to tell."""
    full_rows = [row for row in rows if len(row) > 1]
    if len(columns) < 2 or len(full_rows) < (_MIN_ROWS if len(columns) > 2 else _MIN_ROWS_OF_TWO):
        return None
    if _is_list(full_rows, columns) or _is_prose(full_rows, columns):
        return None
    cells: list[Cell] = []
    row_number = -1
    last: dict[int, int] = {}
    for number, row in enumerate(rows):
        places = {_column_of(columns, line): line for line in row}
        if number and _is_continuation(places, rows[number - 1], row):
            for column, line in places.items():
                former = last.get(column)
                if former is None:
                    last[column] = len(cells)
                    cells.append(Cell(row_number, column, line.text, box=line.box))
                else:
                    cell = cells[former]
                    box = union_of([cell.box, line.box])
                    cells[former] = Cell(cell.row, column, f"{cell.text}\n{line.text}", box=box)
            continue
        row_number += 1
        last = {}
        for column, line in places.items():
            last[column] = len(cells)
            cells.append(Cell(row_number, column, line.text, box=line.box))
    grid = lay_out(cells)
    if len(grid.filled) < 2:
        return None
    box = union_of([line.box for row in rows for line in row])
    assert isinstance(box, Box)
    return PlacedTable(grid, box, (*(x0 for x0, _ in columns), columns[-1][1]))


def _is_continuation(
    places: dict[int, TextLine], former: Sequence[TextLine], row: Sequence[TextLine]
) -> bool:
    """Return whether a row holds further lines of the cells above: its first cell is blank, it is close."""
    return 0 not in places and _gap(former, row) < 0.35 * row[0].size and len(places) == 1


def _is_list(rows: Sequence[Sequence[TextLine]], columns: Sequence[tuple[float, float]]) -> bool:
    """Return whether the first column holds nothing but bullets or item numbers."""
    if len(columns) > 2:
        return False
    first = [row[0] for row in rows if _column_of(columns, row[0]) == 0]
    marks = sum(1 for line in first if len(line.text) <= _MARK_LENGTH and is_list_item(line.text + " x"))
    return marks * 2 > len(first)


def _is_prose(rows: Sequence[Sequence[TextLine]], columns: Sequence[tuple[float, float]]) -> bool:
    """Return whether the columns are running text set side by side: their lines fill them."""
    filled = 0
    for number, (x0, x1) in enumerate(columns):
        lines = [line for row in rows for line in row if _column_of(columns, line) == number]
        if not lines:
            continue
        width = statistics.median(line.box.x1 - line.box.x0 for line in lines)
        length = statistics.median(len(line.text.encode("gb18030", errors="replace")) for line in lines)
        filled += width >= _FULL * (x1 - x0) and length >= _PROSE_CHARS
    return filled * 2 > len(columns) or (len(columns) == 2 and filled == 2)
