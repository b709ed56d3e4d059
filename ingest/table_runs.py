"""Tables that run over a page break keep their number and the names of their columns."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ingest.lines import PlacedTable
from ingest.pages import PageBuilder, PlacedLine
from ingest.tables import Grid, build_table, count_header_rows, split_titles
from kb.types import BlockKind

# Column borders of the two parts may differ by this share of the table's width.
_EDGE_TOLERANCE = 0.03
_CONTINUED = re.compile(r"续表|[（(]\s*续\s*[)）]|\bcont(?:inued|'d|\.)", re.I)


@dataclass(frozen=True, slots=True)
class _Former:
    index: int
    columns: tuple[str, ...]
    header: tuple[tuple[str, ...], ...]
    edges: tuple[float, ...]


class TableRuns:
    """Numbers the tables of one document, page after page."""

    def __init__(self) -> None:
        self._next_index = 0
        self._last: _Former | None = None
        self._open: _Former | None = None

    def begin_page(self) -> None:
        """Say that a page begins: the table that ended the former page may go on."""
        self._open = self._last
        self._last = None

    def note_text(self, text: str) -> None:
        """Say that text was written: no table goes on after it, unless it says so itself."""
        if not _CONTINUED.search(text):
            self._open = None
        self._last = None

    def write(self, builder: PageBuilder, placed: PlacedTable) -> None:
        """Write the table's rows, as a continuation if it is one."""
        former, self._open = self._open, None
        if former is not None:
            repeated = _repeated_rows(former, placed.grid)
            if repeated or _continues(former, placed):
                table = build_table(placed.grid, header_count=repeated, columns=former.columns)
                builder.add_table(table, table_index=former.index)
                self._last = _Former(former.index, former.columns, former.header, placed.edges)
                return
        titles, grid = split_titles(placed.grid)
        for title in titles:
            builder.add(BlockKind.PARAGRAPH, [PlacedLine(title, None)])
        header_count = count_header_rows(grid)
        table = build_table(grid, header_count=header_count)
        builder.add_table(table, table_index=self._next_index)
        self._last = _Former(self._next_index, table.columns, grid.filled[:header_count], placed.edges)
        self._next_index += 1


def _repeated_rows(former: _Former, grid: Grid) -> int:
    """Return how many leading rows repeat the header of the former part."""
    count = len(former.header)
    if (
        count
        and grid.width == len(former.columns)
        and _squeezed(grid.filled[:count]) == _squeezed(former.header)
    ):
        return count
    return 0


def _squeezed(rows: tuple[tuple[str, ...], ...]) -> list[list[str]]:
    return [["".join(cell.split()).casefold() for cell in row] for row in rows]


def _continues(former: _Former, placed: PlacedTable) -> bool:
    """Return whether the columns begin at the same places; the right border may follow the text."""
    if placed.grid.width != len(former.columns) or len(placed.edges) != len(former.edges):
        return False
    tolerance = _EDGE_TOLERANCE * (former.edges[-1] - former.edges[0])
    return all(abs(a - b) <= tolerance for a, b in zip(former.edges[:-1], placed.edges[:-1], strict=True))
