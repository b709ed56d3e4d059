"""PageContent to JSON and back, in compact lists: what is kept on disk of a page that was read."""

from __future__ import annotations

from typing import Any

from ingest.lines import PageContent, PlacedTable, TextLine, Word
from ingest.tables import Cell, Grid
from kb.types import Box, TextSource


def content_to_json(content: PageContent) -> list[Any]:
    """Return nested lists of strings and numbers; the outline is the document's and left out."""
    return [
        content.page_number,
        content.width,
        content.height,
        [_write_line(line) for line in content.lines],
        [_write_table(table) for table in content.tables],
        content.label,
        content.source.value,
        content.undecodable,
        content.ocr_confidence,
        list(content.warnings),
        content.pinned_files,
        content.turned,
    ]


def content_from_json(raw: list[Any]) -> PageContent:
    """Return the content that `content_to_json` was given; anything else raises ValueError or TypeError."""
    number, width, height, lines, tables, label, source, undecodable, confidence, warnings, pinned, turned = (
        raw
    )
    return PageContent(
        page_number=number,
        width=width,
        height=height,
        lines=tuple(_read_line(line) for line in lines),
        tables=tuple(_read_table(table) for table in tables),
        label=label,
        source=TextSource(source),
        undecodable=undecodable,
        ocr_confidence=confidence,
        warnings=tuple(warnings),
        pinned_files=pinned,
        turned=turned,
    )


def _write_line(line: TextLine) -> list[Any]:
    words = [[word.text, word.x0, word.x1] for word in line.words]
    return [line.text, _write_box(line.box), line.size, line.bold, words]


def _read_line(raw: list[Any]) -> TextLine:
    text, box, size, bold, words = raw
    return TextLine(text, Box(*box), size, bold, tuple(Word(*word) for word in words))


def _write_table(table: PlacedTable) -> list[Any]:
    grid = table.grid
    cells = [
        [cell.row, cell.column, cell.text, cell.row_span, cell.column_span, _write_box(cell.box)]
        for cell in grid.cells
    ]
    boxes = [_write_box(box) for box in grid.row_boxes]
    sections = sorted(grid.section_rows)
    return [grid.filled, grid.shown, cells, boxes, sections, _write_box(table.box), table.edges]


def _read_table(raw: list[Any]) -> PlacedTable:
    filled, shown, cells, boxes, sections, box, edges = raw
    grid = Grid(
        filled=tuple(tuple(row) for row in filled),
        shown=tuple(tuple(row) for row in shown),
        cells=tuple(_read_cell(cell) for cell in cells),
        row_boxes=tuple(_read_box(item) for item in boxes),
        section_rows=frozenset(sections),
    )
    return PlacedTable(grid, Box(*box), tuple(edges))


def _read_cell(raw: list[Any]) -> Cell:
    row, column, text, row_span, column_span, box = raw
    return Cell(row, column, text, row_span, column_span, _read_box(box))


def _write_box(box: Box | None) -> list[float] | None:
    return None if box is None else [box.x0, box.y0, box.x1, box.y1]


def _read_box(raw: list[float] | None) -> Box | None:
    return None if raw is None else Box(*raw)
