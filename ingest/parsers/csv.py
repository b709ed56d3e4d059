"""CSV with any delimiter and encoding: one table, a row is a unit."""

from __future__ import annotations

import csv
import io
import re
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
_MAX_PREAMBLE_LINES = 10
_EXCEL_DELIMITER = re.compile(r"\s*sep=([^\s\w\"])\r?\n", re.I)


class CsvParser:
    """Reads delimited text; the document is one page with one table."""

    def parse(self, path: Path, *, name: str, password: str | None, progress: PageProgress) -> ParsedDocument:
        """Raises `EmptyFileError` without cells, `TooManyPagesError` beyond five million cells."""
        del password
        text, encoding = decode(path.read_bytes())
        preamble, rows = _split_preamble(_read_rows(text, name))
        cells: list[Cell] = []
        for row_number, row in enumerate(rows):
            cells.extend(Cell(row_number, number, value) for number, value in enumerate(row))
            if len(cells) > _MAX_CELLS:
                raise TooManyPagesError(f"{name!r} has more than {_MAX_CELLS} cells")
        titles, grid = split_titles(lay_out(cells))
        if not grid.filled:
            raise EmptyFileError(f"{name!r} has no cells with text")
        titles = [*preamble, *titles]
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


def _split_preamble(rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Return the lines above the table, which a blank line parts from it, and the table's rows.

    Programs write there what the export is of. A table that is parted by blank lines all over has none.
    """
    blank = [number for number, row in enumerate(rows) if not any(cell.strip() for cell in row)]
    inner = [number for number in blank if number < len(rows) - 1]
    if not inner or inner[-1] > _MAX_PREAMBLE_LINES or len(rows) - inner[-1] < 3:
        return [], rows
    above = (", ".join(cell.strip() for cell in row if cell.strip()) for row in rows[: inner[-1]])
    return [line for line in above if line], rows[inner[-1] + 1 :]


def _read_rows(text: str, name: str) -> list[list[str]]:
    """Return the rows, cut at the delimiter that parts the first lines most evenly, or that Excel was told."""
    csv.field_size_limit(16 * 1024 * 1024)
    told = _EXCEL_DELIMITER.match(text)
    if told:
        text = text[told.end() :]
    delimiter = told[1] if told else sniff_delimiter(text)
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
