"""Every parser keeps the promises of a parsed page, whatever the format."""

from __future__ import annotations

import email.message
import io
import re
from collections.abc import Callable
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from pptx.util import Inches

from ingest import formats
from ingest.characters import clean_line
from ingest.formats import detect_media_type
from ingest.parse_child import build_parser
from ingest.parsed_json import from_json, to_json
from kb.errors import DocumentError
from kb.types import BlockKind, ParsedDocument, TextSource
from tests.unit.ingest.pdf_samples import PROSE, SONG, draw, paragraph, picture, ruled_table, write

ROWS = (("Code", "原因", "Remedy"), ("E-0471", "油温过高", "Clean cooler"), ("E-0472", "滤芯堵塞", ""))
WORDS = ("Manual", "Code", "E-0471", "油温过高", "E-0472", "Clean", "cooler")


def make_pdf() -> bytes:
    def page(canvas: object) -> None:
        write(canvas, 72, 60, "Manual", size=20)
        paragraph(canvas, 72, 90, PROSE)
        ruled_table(canvas, 72, 180, ROWS, (80, 120, 160), font=SONG)

    return draw(page, lambda canvas: paragraph(canvas, 72, 140, PROSE))


def saved(document: object) -> bytes:
    buffer = io.BytesIO()
    document.save(buffer)  # type: ignore[attr-defined]
    return buffer.getvalue()


def make_docx() -> bytes:
    document = docx.Document()
    document.add_heading("Manual", 1)
    table = document.add_table(3, 3)
    for row, values in enumerate(ROWS):
        for column, value in enumerate(values):
            table.cell(row, column).text = value
    return saved(document)


def make_xlsx() -> bytes:
    book = openpyxl.Workbook()
    book.active.title = "Manual"
    for row in ROWS:
        book.active.append(row)
    return saved(book)


def make_pptx() -> bytes:
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[5])
    slide.shapes.title.text = "Manual"
    table = slide.shapes.add_table(3, 3, Inches(1), Inches(2), Inches(6), Inches(1)).table
    for row, values in enumerate(ROWS):
        for column, value in enumerate(values):
            table.cell(row, column).text = value
    return saved(show)


def make_csv() -> bytes:
    return ("Manual,,\n" + "\n".join(",".join(row) for row in ROWS)).encode("gb18030")


def make_html() -> bytes:
    rows = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in ROWS)
    return f"<html><head><title>Manual</title></head><body><table>{rows}</table></body></html>".encode()


def make_markdown() -> bytes:
    lines = ["# Manual", "", "|" + "|".join(ROWS[0]) + "|", "|---|---|---|"]
    return "\n".join([*lines, *("|" + "|".join(row) + "|" for row in ROWS[1:])]).encode()


def make_text() -> bytes:
    return ("Manual\n\n" + "\n".join(" ".join(row) for row in ROWS)).encode("utf-16")


def make_email() -> bytes:
    message = email.message.EmailMessage()
    message["From"], message["Subject"] = "a@b", "Manual"
    message.set_content("\n".join(" ".join(row) for row in ROWS))
    return message.as_bytes()


def make_png() -> bytes:
    buffer = io.BytesIO()
    picture("Manual E-0471").save(buffer, format="PNG")
    return buffer.getvalue()


FORMATS: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "pdf": (make_pdf, "m.pdf", formats.PDF),
    "docx": (make_docx, "m.docx", formats.DOCX),
    "xlsx": (make_xlsx, "m.xlsx", formats.XLSX),
    "pptx": (make_pptx, "m.pptx", formats.PPTX),
    "csv": (make_csv, "m.csv", formats.CSV),
    "html": (make_html, "m.html", formats.HTML),
    "markdown": (make_markdown, "m.md", formats.MARKDOWN),
    "text": (make_text, "m.txt", formats.TEXT),
    "email": (make_email, "m.eml", formats.EMAIL),
    "image": (make_png, "m.png", formats.PNG),
}
TABULAR = ("pdf", "docx", "xlsx", "pptx", "csv", "html", "markdown")


class Sample:
    """A document parsed once for all tests of its format."""

    def __init__(self, label: str, folder: Path) -> None:
        make, name, self.media_type = FORMATS[label]
        self.label = label
        self.name = name
        self.path = folder / "bytes"
        self.path.write_bytes(make())
        self.progress: list[tuple[int, int]] = []
        self.parsed = self.parse()

    def parse(self) -> ParsedDocument:
        """Return what the parser makes of the file."""
        parser = build_parser(detect_media_type(self.path, self.name), max_pages=50, ocr=True)
        return parser.parse(
            self.path,
            name=self.name,
            password=None,
            progress=lambda done, total: self.progress.append((done, total)),
        )


@pytest.fixture(scope="module", params=list(FORMATS))
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(request.param, tmp_path_factory.mktemp("parser"))


def test_the_media_type_is_that_of_the_file(sample: Sample) -> None:
    assert sample.parsed.media_type == sample.media_type


def test_pages_count_from_one_and_progress_ends_at_their_number(sample: Sample) -> None:
    numbers = [page.page_number for page in sample.parsed.pages]

    assert numbers == list(range(1, len(numbers) + 1))
    assert sample.progress[-1] == (len(numbers), len(numbers))


def test_the_words_of_the_file_are_there(sample: Sample) -> None:
    words = WORDS if sample.label != "image" else ("Manual", "E-0471")

    for word in words:
        assert word in sample.parsed.pages[0].text


def test_blocks_are_in_order_apart_and_cover_every_word(sample: Sample) -> None:
    for page in sample.parsed.pages:
        end = 0
        for block in page.blocks:
            assert end <= block.char_start < block.char_end <= len(page.text)
            assert not page.text[end : block.char_start].strip()
            end = block.char_end
        assert not page.text[end:].strip()


def test_lines_are_in_order_apart_and_inside_the_blocks(sample: Sample) -> None:
    for page in sample.parsed.pages:
        end = 0
        spans = [(block.char_start, block.char_end) for block in page.blocks]
        for line in page.lines:
            assert end <= line.char_start < line.char_end
            assert any(start <= line.char_start and line.char_end <= last for start, last in spans)
            end = line.char_end


def test_text_is_clean(sample: Sample) -> None:
    for page in sample.parsed.pages:
        assert not re.search(r"[\x00-\x09\x0b-\x1f\ufeff\ufb00-\ufb06]", page.text)
        for block in page.blocks:
            text = page.text[block.char_start : block.char_end]
            for cell in text.split(" | ") if block.table_index is not None else [text]:
                assert block.kind is BlockKind.CODE or cell == clean_line(cell)


def test_levels_stand_on_headings_and_records_on_rows_only(sample: Sample) -> None:
    for page in sample.parsed.pages:
        for block in page.blocks:
            assert (block.level > 0) == (block.kind is BlockKind.HEADING)
            assert (block.record is not None) == (block.kind is BlockKind.TABLE_ROW)
            is_table = block.kind in (BlockKind.TABLE_ROW, BlockKind.TABLE_HEADER)
            assert (block.table_index is not None) == is_table


def test_a_table_row_gives_its_record_and_stands_in_one_line(sample: Sample) -> None:
    if sample.label not in TABULAR:
        pytest.skip("this format has no tables")

    page = sample.parsed.pages[0]
    rows = [block for block in page.blocks if block.kind is BlockKind.TABLE_ROW]

    assert [dict(block.record or {}) for block in rows] == [
        dict(zip(ROWS[0], row, strict=True)) for row in ROWS[1:]
    ]
    for block in rows:
        assert page.text[block.char_start : block.char_end] == " | ".join((block.record or {}).values())


def test_quality_is_measured(sample: Sample) -> None:
    page = sample.parsed.pages[0]

    assert page.quality.word_count >= 2
    assert page.quality.undecodable_share == 0.0
    assert page.quality.table_count == (1 if sample.label in TABULAR else 0)
    assert (page.source is TextSource.OCR) == (sample.label == "image")
    assert (page.quality.ocr_confidence is not None) == (sample.label == "image")


def test_the_title_is_found(sample: Sample) -> None:
    if sample.label in ("xlsx", "text", "image"):
        pytest.skip("this sample has no title")

    assert sample.parsed.title in ("Manual", "PowerPoint Presentation")


def test_json_gives_the_same_document_back(sample: Sample) -> None:
    assert from_json(to_json(sample.parsed)) == sample.parsed


def test_parsing_again_gives_the_same_document(sample: Sample) -> None:
    if sample.label == "image":
        pytest.skip("OCR twice takes too long")

    assert sample.parse() == sample.parsed


def test_a_cut_file_raises_a_document_error_or_is_read(sample: Sample, tmp_path: Path) -> None:
    data = sample.path.read_bytes()
    path = tmp_path / "cut"
    for share in (0.1, 0.5, 0.9):
        path.write_bytes(data[: int(len(data) * share)])
        try:
            parser = build_parser(sample.media_type, max_pages=50, ocr=False)
            parsed = parser.parse(path, name=sample.name, password=None, progress=lambda done, total: None)
        except DocumentError:
            continue
        assert any(page.text for page in parsed.pages)
