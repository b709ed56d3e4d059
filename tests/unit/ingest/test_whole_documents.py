"""What holds for whole documents of each format: no word is lost on the way from the file to the chunks."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import docx
import openpyxl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reportlab.pdfgen.canvas import Canvas

from ingest.chunking import Chunker
from ingest.formats import CSV, DOCX, HTML, MARKDOWN, PDF, XLSX
from tests.unit.ingest.parsing import parse, records
from tests.unit.ingest.pdf_samples import draw, ruled_table, write

HEADER = ("Code", "Cause", "Remedy")
MAX_TOKENS = 60
Rows = Sequence[Sequence[str]]
Write = Callable[[Sequence[str], Rows], bytes]


def write_html(paragraphs: Sequence[str], rows: Rows) -> bytes:
    table = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in [HEADER, *rows])
    return f"<html><body>{''.join(f'<p>{text}</p>' for text in paragraphs)}<table>{table}</table></body></html>".encode()


def write_markdown(paragraphs: Sequence[str], rows: Rows) -> bytes:
    table = [f"| {' | '.join(row)} |" for row in (HEADER, ["---"] * 3, *rows)]
    return "\n".join([*(f"{text}\n" for text in paragraphs), *table]).encode()


def write_csv(paragraphs: Sequence[str], rows: Rows) -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=";").writerows([HEADER, *rows])
    return out.getvalue().encode()


def write_docx(paragraphs: Sequence[str], rows: Rows) -> bytes:
    document = docx.Document()
    for text in paragraphs:
        document.add_paragraph(text)
    table = document.add_table(0, 3)
    for row in (HEADER, *rows):
        for cell, text in zip(table.add_row().cells, row, strict=True):
            cell.text = text
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def write_xlsx(paragraphs: Sequence[str], rows: Rows) -> bytes:
    book = openpyxl.Workbook()
    for row in (HEADER, *rows):
        book.active.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def write_pdf(paragraphs: Sequence[str], rows: Rows) -> bytes:
    def page(canvas: Canvas) -> None:
        for number, text in enumerate(paragraphs):
            write(canvas, 72, 80 + 24 * number, text)
        ruled_table(canvas, 72, 300, [HEADER, *rows], [140, 150, 150])

    return draw(page)


FORMATS: dict[str, tuple[Write, bool]] = {
    HTML: (write_html, True),
    MARKDOWN: (write_markdown, True),
    CSV: (write_csv, False),
    DOCX: (write_docx, True),
    XLSX: (write_xlsx, False),
    PDF: (write_pdf, True),
}


@st.composite
def contents(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    """Paragraphs and rows of a table, each word of which is there once; some cells are blank."""
    numbers = itertools.count()

    def words(least: int, most: int) -> str:
        return " ".join(f"word{next(numbers):03d}" for _ in range(draw(st.integers(least, most))))

    paragraphs = [words(1, 12) for _ in range(draw(st.integers(0, 4)))]
    rows = [[f"E-{next(numbers):04d}", words(0, 3), words(1, 3)] for _ in range(draw(st.integers(1, 6)))]
    return paragraphs, rows


@pytest.mark.parametrize("media_type", list(FORMATS))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=contents())
def test_every_word_is_in_a_chunk_and_every_row_in_one_record(
    tmp_path: Path, media_type: str, drawn: tuple[list[str], list[list[str]]]
) -> None:
    paragraphs, rows = drawn
    write_file, has_prose = FORMATS[media_type]

    parsed = parse(tmp_path, write_file(paragraphs, rows), media_type)
    chunker = Chunker(count_tokens=lambda text: len(text.split()), max_tokens=MAX_TOKENS, overlap_tokens=8)
    chunks = chunker.chunk(parsed, document_id="doc", generation=1)

    texts = {page.page_number: page.text for page in parsed.pages}
    pieces = [texts[s.page_number][s.char_start : s.char_end] for c in chunks for s in c.spans]
    wanted = {word for row in rows for cell in row for word in cell.split()}
    if has_prose:
        wanted |= {word for text in paragraphs for word in text.split()}
    assert wanted <= {word for piece in pieces for word in piece.replace("|", " ").split()}
    assert all(len(c.indexed_text.split()) <= MAX_TOKENS for c in chunks)
    found = [record for page in parsed.pages for record in records(page)]
    assert [list(record.values()) for record in found] == [list(row) for row in rows]
    assert [dict(record) for c in chunks for record in c.records] == found
