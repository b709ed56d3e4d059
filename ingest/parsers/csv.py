"""CSV with any delimiter and encoding: one table, a row is a unit."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from ingest.encoding import decode
from ingest.formats import CSV
from ingest.pages import PageBuilder
from ingest.tables import Cell, build_table, count_header_rows, lay_out, split_titles
from kb.errors import DamagedFileError, EmptyFileError, TooManyPagesError
from kb.ports import PageProgress
from kb.types import BlockKind, ParsedDocument

_DELIMITERS = ",;\t|，；"
_SAMPLE_LINES = 50
_MAX_CELLS = 5_000_000


class CsvParser:
    """Reads delimited text; the document is one page with one table."""

    def parse(self, path: Path, *, name: str, password: str | None, progress: PageProgress) -> ParsedDocument:
        """Raises `EmptyFileError` without cells, `TooManyPagesError` beyond five million cells."""
        del password
        text, encoding = decode(path.read_bytes())
        rows = _read_rows(text, name)
        cells: list[Cell] = []
        for row_number, row in enumerate(rows):
            cells.extend(Cell(row_number, number, value) for number, value in enumerate(row))
            if len(cells) > _MAX_CELLS:
                raise TooManyPagesError(f"{name!r} has more than {_MAX_CELLS} cells")
        titles, grid = split_titles(lay_out(cells))
        if not grid.filled:
            raise EmptyFileError(f"{name!r} has no cells with text")
        builder = PageBuilder(1)
        for title in titles:
            builder.add_text(BlockKind.PARAGRAPH, title)
        builder.add_table(build_table(grid, header_count=count_header_rows(grid)), table_index=0)
        progress(1, 1)
        return ParsedDocument(
            pages=(builder.build(),),
            media_type=CSV,
            title=titles[0] if titles else None,
            metadata={"encoding": encoding},
        )


def _read_rows(text: str, name: str) -> list[list[str]]:
    """Return the rows, cut at the delimiter that parts the first lines most evenly."""
    csv.field_size_limit(16 * 1024 * 1024)
    delimiter = sniff_delimiter(text)
    try:
        return list(csv.reader(io.StringIO(text.replace("\0", ""), newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise DamagedFileError(f"{name!r} is not readable as CSV: {error}") from error


def sniff_delimiter(text: str) -> str:
    """Return the delimiter whose count is above zero and the same on most of the first lines."""
    sample = text[: 256 * 1024]
    best, best_score = ",", 0.0
    for delimiter in _DELIMITERS:
        try:
            rows = [
                row
                for row, _ in zip(
                    csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter),
                    range(_SAMPLE_LINES),
                    strict=False,
                )
                if any(cell.strip() for cell in row)
            ]
        except csv.Error:
            continue
        widths = [len(row) for row in rows]
        if not widths:
            continue
        common = max(set(widths), key=lambda width: (widths.count(width), width))
        if common < 2:
            continue
        score = widths.count(common) / len(widths) + common / 1000
        if score > best_score:
            best, best_score = delimiter, score
    return best
