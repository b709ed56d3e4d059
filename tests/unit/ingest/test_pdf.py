from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from pypdf import PdfWriter
from pypdf.generic import ByteStringObject, DictionaryObject, NameObject
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from ingest.formats import PDF
from kb.errors import DamagedFileError, NoTextFoundError, PasswordProtectedError, TooManyPagesError
from kb.types import BlockKind, Box, TextSource
from tests.unit.ingest.parsing import cut, outline, parse, records, texts
from tests.unit.ingest.pdf_samples import (
    HEIGHT,
    PROSE,
    SONG,
    WIDTH,
    draw,
    embed,
    paragraph,
    picture,
    ruled_table,
    write,
)

FAULTS = (
    ("代码", "原因", "处理"),
    ("E01", "油温过高", "检查冷却水阀"),
    ("E02", "油位过低", "补充液压油"),
    ("E03", "滤芯堵塞", "更换回油滤芯"),
)
WIDTHS = (60, 150, 200)


def test_lines_of_a_paragraph_become_running_text_with_boxes(tmp_path: Path) -> None:
    data = draw(lambda canvas: paragraph(canvas, 72, 100, PROSE))

    page = parse(tmp_path, data, PDF).pages[0]

    assert page.text == " ".join(PROSE)
    assert page.source is TextSource.TEXT
    assert page.width == pytest.approx(WIDTH, abs=0.1)
    assert page.height == pytest.approx(HEIGHT, abs=0.1)
    assert [page.text[line.char_start : line.char_end] for line in page.lines] == list(PROSE)
    first, last = page.lines[0].box, page.lines[-1].box
    assert first is not None
    assert last is not None
    assert first.x0 == pytest.approx(72, abs=2)
    assert 85 < first.y0 < first.y1 < 105
    assert first.y1 < last.y0


def test_headings_are_found_by_size_and_numbering_and_give_the_title(tmp_path: Path) -> None:
    def page(canvas: Canvas) -> None:
        write(canvas, 72, 80, "Press manual", size=24)
        write(canvas, 72, 120, "1 Safety", size=16)
        paragraph(canvas, 72, 145, PROSE)
        write(canvas, 72, 230, "1.2 Lockout", size=10, font="Helvetica-Bold")
        paragraph(canvas, 72, 250, PROSE)
        write(canvas, 72, 340, "第三章 液压系统", size=16, font=SONG)
        paragraph(canvas, 72, 365, PROSE)

    parsed = parse(tmp_path, draw(page), PDF)

    assert [entry for entry in outline(parsed.pages[0]) if entry[0].startswith("heading")] == [
        ("heading1", "Press manual"),
        ("heading1", "1 Safety"),
        ("heading2", "1.2 Lockout"),
        ("heading1", "第三章 液压系统"),
    ]
    assert parsed.title == "Press manual"


def test_the_outline_gives_headings_their_level(tmp_path: Path) -> None:
    def page(canvas: Canvas) -> None:
        canvas.bookmarkPage("a")
        canvas.bookmarkPage("b")
        canvas.addOutlineEntry("Daily inspection", "a", level=0)
        canvas.addOutlineEntry("Oil level", "b", level=1)
        write(canvas, 72, 80, "Daily inspection")
        paragraph(canvas, 72, 120, PROSE)
        write(canvas, 72, 220, "Oil level")
        paragraph(canvas, 72, 250, PROSE)

    page_read = parse(tmp_path, draw(page), PDF).pages[0]

    assert [entry for entry in outline(page_read) if entry[0].startswith("heading")] == [
        ("heading1", "Daily inspection"),
        ("heading2", "Oil level"),
    ]


def test_metadata_and_its_title_are_read(tmp_path: Path) -> None:
    def page(canvas: Canvas) -> None:
        canvas.setAuthor("Plant 4\0")
        paragraph(canvas, 72, 100, PROSE)

    parsed = parse(tmp_path, draw(page, title="Hydraulic press HP-200"), PDF)

    assert parsed.title == "Hydraulic press HP-200"
    assert parsed.metadata["author"] == "Plant 4"
    assert not any("\0" in value for value in parsed.metadata.values())


def test_a_title_left_by_a_program_is_not_taken(tmp_path: Path) -> None:
    data = draw(lambda canvas: paragraph(canvas, 72, 100, PROSE), title="Microsoft Word - manual.doc")

    assert parse(tmp_path, data, PDF).title is None


def test_a_ruled_table_gives_a_record_per_row(tmp_path: Path) -> None:
    def page(canvas: Canvas) -> None:
        paragraph(canvas, 72, 60, PROSE)
        ruled_table(canvas, 72, 140, FAULTS, WIDTHS, font=SONG)
        paragraph(canvas, 72, 260, PROSE)

    read = parse(tmp_path, draw(page), PDF).pages[0]

    assert [kind for kind, _ in outline(read)] == [
        "paragraph",
        "table_header",
        *["table_row"] * 3,
        "paragraph",
    ]
    assert texts(read, BlockKind.TABLE_ROW)[0] == "E01 | 油温过高 | 检查冷却水阀"
    assert records(read) == [dict(zip(FAULTS[0], row, strict=True)) for row in FAULTS[1:]]
    assert read.quality.table_count == 1


def test_blank_cells_and_line_breaks_in_cells_keep_their_column(tmp_path: Path) -> None:
    rows = (("Code", "Cause", "Remedy"), ("E01", "", "Check the\ncooling valve"), ("E02", "油位\n过低", ""))
    data = draw(lambda canvas: ruled_table(canvas, 72, 100, rows, WIDTHS, font=SONG, row_height=26))

    assert records(parse(tmp_path, data, PDF).pages[0]) == [
        {"Code": "E01", "Cause": "", "Remedy": "Check the cooling valve"},
        {"Code": "E02", "Cause": "油位过低", "Remedy": ""},
    ]


@pytest.mark.parametrize("repeated", [True, False])
def test_a_table_over_a_page_break_keeps_its_index_and_columns(tmp_path: Path, repeated: bool) -> None:
    def furniture(canvas: Canvas, number: int) -> None:
        write(canvas, 72, 40, "HP-200 manual")
        write(canvas, 280, 815, f"- {number} -")

    def first(canvas: Canvas) -> None:
        furniture(canvas, 1)
        ruled_table(canvas, 72, 700, FAULTS[:3], WIDTHS, font=SONG)

    def second(canvas: Canvas) -> None:
        furniture(canvas, 2)
        rows = (FAULTS[0], FAULTS[3]) if repeated else (FAULTS[3], ("E04", "压力低", "检查溢流阀"))
        ruled_table(canvas, 72, 80, rows, WIDTHS, font=SONG)
        paragraph(canvas, 72, 200, PROSE)

    one, two = parse(tmp_path, draw(first, second), PDF).pages

    assert records(two)[0] == {"代码": "E03", "原因": "滤芯堵塞", "处理": "更换回油滤芯"}
    assert {block.table_index for page in (one, two) for block in page.blocks} == {None, 0}
    assert len(texts(two, BlockKind.TABLE_HEADER)) == repeated
    assert texts(one, BlockKind.PAGE_HEADER, BlockKind.PAGE_FOOTER) == ["HP-200 manual", "- 1 -"]


def test_another_table_after_text_has_its_own_index(tmp_path: Path) -> None:
    def page(canvas: Canvas) -> None:
        ruled_table(canvas, 72, 60, FAULTS, WIDTHS, font=SONG)
        paragraph(canvas, 72, 160, PROSE)
        ruled_table(canvas, 72, 240, (("Item", "Limit", "Unit"), ("Oil", "40", "°C")), WIDTHS, font=SONG)

    read = parse(tmp_path, draw(page), PDF).pages[0]

    assert [b.table_index for b in read.blocks if b.kind is BlockKind.TABLE_HEADER] == [0, 1]


def test_a_table_without_rules_is_found_with_its_header(tmp_path: Path) -> None:
    rows = (
        ("Code", "Cause", "Limit"),
        ("E01", "Oil hot", "60 C"),
        ("E02", "Oil low", ""),
        ("E03", "Filter", "2 bar"),
    )

    def page(canvas: Canvas) -> None:
        paragraph(canvas, 72, 60, PROSE)
        for number, row in enumerate(rows):
            for x, text in zip((72, 200, 330), row, strict=True):
                write(canvas, x, 150 + 14 * number, text)
        paragraph(canvas, 72, 240, PROSE)

    read = parse(tmp_path, draw(page), PDF).pages[0]

    assert records(read) == [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def test_two_columns_are_read_one_after_the_other(tmp_path: Path) -> None:
    left = [f"left line number {n} of the first column" for n in range(8)]
    right = [f"right line number {n} of the other column" for n in range(8)]

    def page(canvas: Canvas) -> None:
        write(canvas, 150, 60, "A title over both of the columns of this page", size=14)
        # Drawn row by row, as many programs do.
        for number in range(8):
            write(canvas, 60, 100 + 12 * number, left[number])
            write(canvas, 320, 100 + 12 * number, right[number])

    text = parse(tmp_path, draw(page), PDF).pages[0].text

    assert text.startswith("A title over both")
    assert " ".join(left) in text.replace("\n", " ")
    assert text.index(left[-1]) < text.index(right[0])


def test_running_headers_and_footers_are_furniture(tmp_path: Path) -> None:
    def make(number: int) -> Callable[[Canvas], None]:
        def page(canvas: Canvas) -> None:
            write(canvas, 72, 30, "HP-200 Operating manual")
            write(canvas, 72, 60, f"{number * 'very '}different text begins page {number}")
            paragraph(canvas, 72, 120, PROSE)
            write(canvas, 250, 820, f"Page {number} of 3")

        return page

    pages = parse(tmp_path, draw(*[make(n) for n in (1, 2, 3)]), PDF).pages

    for number, page in enumerate(pages, start=1):
        assert texts(page, BlockKind.PAGE_HEADER) == ["HP-200 Operating manual"]
        assert texts(page, BlockKind.PAGE_FOOTER) == [f"Page {number} of 3"]
        assert f"different text begins page {number}" in texts(page, BlockKind.PARAGRAPH)[0]


def test_hyphenation_is_undone_and_ligatures_are_letters(tmp_path: Path) -> None:
    lines = ("The hydraulic unit needs regular lubri-", "cation of all bearings and the other moving parts.")

    page = parse(tmp_path, draw(lambda canvas: paragraph(canvas, 72, 100, lines)), PDF).pages[0]

    assert "regular lubrication of all" in page.text
    assert page.text[: page.lines[0].char_end].endswith("lubri")


def test_lists_are_items(tmp_path: Path) -> None:
    lines = ("1. Stop the press and lock the main switch.", "2. Release the pressure.", "3. Open the cover.")

    page = parse(tmp_path, draw(lambda canvas: paragraph(canvas, 72, 100, lines)), PDF).pages[0]

    assert outline(page) == [("list_item", line) for line in lines]


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_a_rotated_page_has_its_lines_where_they_are_shown(tmp_path: Path, rotation: int) -> None:
    def page(canvas: Canvas) -> None:
        canvas.setPageRotation(rotation)
        if rotation == 90:
            canvas.translate(WIDTH, 0)
        elif rotation == 180:
            canvas.translate(WIDTH, HEIGHT)
        else:
            canvas.translate(0, WIDTH)
        canvas.rotate(rotation)
        # The library swaps the sides of the page for a quarter turn.
        height = WIDTH if rotation == 90 else HEIGHT
        for number, line in enumerate(PROSE):
            canvas.setFont("Helvetica", 10)
            canvas.drawString(72, height - 100 - 12 * number, line)

    read = parse(tmp_path, draw(page), PDF).pages[0]

    assert read.text == " ".join(PROSE)
    box = read.lines[0].box
    assert box is not None
    assert box.x0 == pytest.approx(72, abs=2)
    assert 85 < box.y0 < box.y1 < 105


def test_form_fields_are_read(tmp_path: Path) -> None:
    def page(canvas: Canvas) -> None:
        paragraph(canvas, 72, 60, PROSE)
        canvas.acroForm.textfield(name="serial", value="SN-4711", x=72, y=500, width=200, height=20)

    assert "SN-4711" in parse(tmp_path, draw(page), PDF).pages[0].text


def test_the_password_opens_an_encrypted_file(tmp_path: Path) -> None:
    data = draw(
        lambda canvas: paragraph(canvas, 72, 100, PROSE), encrypt=StandardEncryption("secret", canPrint=0)
    )

    assert parse(tmp_path, data, PDF, password="secret").pages[0].text.startswith("The pump")
    for wrong in (None, "guess"):
        with pytest.raises(PasswordProtectedError):
            parse(tmp_path, data, PDF, password=wrong)


def test_an_owner_password_alone_needs_no_password(tmp_path: Path) -> None:
    data = draw(lambda canvas: paragraph(canvas, 72, 100, PROSE), encrypt=StandardEncryption("", "owner"))

    assert parse(tmp_path, data, PDF).pages[0].text.startswith("The pump")


def test_blank_pages_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(NoTextFoundError):
        parse(tmp_path, draw(lambda canvas: None), PDF)


def test_a_blank_page_among_others_stays_and_has_no_source(tmp_path: Path) -> None:
    pages = parse(
        tmp_path, draw(lambda canvas: paragraph(canvas, 72, 100, PROSE), lambda canvas: None), PDF
    ).pages

    assert [page.source for page in pages] == [TextSource.TEXT, TextSource.NONE]
    assert [page.page_number for page in pages] == [1, 2]


def test_a_picture_without_ocr_says_so(tmp_path: Path) -> None:
    data = draw(lambda canvas: canvas.drawImage(ImageReader(picture("ALARM 47")), 72, 400, 450, 100))

    with pytest.raises(NoTextFoundError) as caught:
        parse(tmp_path, data, PDF)

    assert "KB_OCR" in caught.value.next_step


def test_a_picture_page_among_text_is_a_warning(tmp_path: Path) -> None:
    data = draw(
        lambda canvas: paragraph(canvas, 72, 100, PROSE),
        lambda canvas: canvas.drawImage(ImageReader(picture("ALARM 47")), 72, 400, 450, 100),
    )

    parsed = parse(tmp_path, data, PDF)

    assert parsed.warnings == ("pages_without_text: no text was read on page(s) 2",)


def test_a_scanned_page_is_read_by_ocr(tmp_path: Path) -> None:
    image = picture("ALARM E-0471 oil low")

    data = draw(lambda canvas: canvas.drawImage(ImageReader(image), 20, 20, 270, 60), size=(310, 100))
    page = parse(tmp_path, data, PDF, ocr=True).pages[0]

    assert page.source is TextSource.OCR
    assert "E-0471" in page.text
    assert page.quality.ocr_confidence is not None
    assert page.quality.ocr_confidence > 0.8
    box = page.lines[0].box
    assert box is not None
    assert 20 <= box.x0 < box.x1 <= 290
    assert 20 <= box.y0 < box.y1 <= 80


@pytest.mark.parametrize("data", [b"%PDF-1.7\nnothing more", b"%PDF-1.4\n" + bytes(range(256)) * 4])
def test_what_cannot_be_opened_is_damaged(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DamagedFileError):
        parse(tmp_path, data, PDF)


def test_too_many_pages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TooManyPagesError):
        parse(tmp_path, draw(*[lambda canvas: write(canvas, 72, 72, "x")] * 3), PDF, max_pages=2)


def test_no_word_of_a_page_with_tables_is_lost(tmp_path: Path) -> None:
    def page(canvas: Canvas) -> None:
        ruled_table(canvas, 72, 60, FAULTS, WIDTHS, font=SONG)
        write(canvas, 480, 75, "OUTSIDE")
        # A word over the border of its cell, and one in the middle of a rule.
        write(canvas, 120, 115, "overflowing-identifier", size=8)
        paragraph(canvas, 72, 200, PROSE)

    text = parse(tmp_path, draw(page), PDF).pages[0].text

    for word in ["OUTSIDE", "overflowing-identifier", *(cell for row in FAULTS for cell in row)]:
        assert word in text


def test_page_labels_are_kept(tmp_path: Path) -> None:
    def page(canvas: Canvas) -> None:
        canvas.addPageLabel(0, style="ROMAN_LOWER", start=3)
        paragraph(canvas, 72, 100, PROSE)

    assert parse(tmp_path, draw(page), PDF).pages[0].label == "iii"


def test_a_scan_with_a_stamp_is_read_whole(tmp_path: Path) -> None:
    def page(canvas: Canvas) -> None:
        canvas.drawImage(ImageReader(picture("Check the oil level daily")), 0, 0, 300, 67)
        canvas.drawString(220, 75, "COPY 3")

    read = parse(tmp_path, draw(page, size=(300, 90)), PDF, ocr=True).pages[0]

    assert read.source is TextSource.OCR
    assert "oil level" in read.text
    assert "COPY 3" in read.text


def test_embedded_files_are_counted(tmp_path: Path) -> None:
    data = embed(draw(lambda canvas: paragraph(canvas, 72, 100, PROSE)), {"a.txt": b"a", "b.txt": b"b"})

    parsed = parse(tmp_path, data, PDF)

    assert (parsed.attachment_count, parsed.warnings) == (2, ())


def test_an_empty_page_is_a_cover_if_files_are_embedded(tmp_path: Path) -> None:
    data = embed(draw(lambda canvas: canvas.rect(10, 10, 50, 50)), {"a.txt": b"a"})

    parsed = parse(tmp_path, data, PDF)

    assert [page.text for page in parsed.pages] == [""]
    assert parsed.attachment_count == 1


def test_blocks_have_boxes(tmp_path: Path) -> None:
    page = parse(
        tmp_path, draw(lambda canvas: ruled_table(canvas, 72, 60, FAULTS, WIDTHS, font=SONG)), PDF
    ).pages[0]

    boxes = [block.box for block in page.blocks]
    assert all(box is not None for box in boxes)
    tops = [box.y0 for box in boxes if box is not None]
    assert tops == sorted(tops)
    assert cut(page, page.blocks[0]) == "代码 | 原因 | 处理"


def test_a_bookmark_that_is_no_text_does_not_end_the_document(tmp_path: Path) -> None:
    def page(canvas: Canvas) -> None:
        paragraph(canvas, 72, 100, PROSE)
        canvas.bookmarkPage("a")
        canvas.addOutlineEntry("Broken", "a")

    writer = PdfWriter(clone_from=io.BytesIO(draw(page)))
    lone_surrogate = ByteStringObject(b"\xfe\xff\xd8\x00\x00A")
    for item in writer._objects:
        if isinstance(item, DictionaryObject) and item.get("/Title") == "Broken":
            item[NameObject("/Title")] = lone_surrogate
    assert writer._info is not None
    writer._info[NameObject("/Title")] = lone_surrogate
    out = io.BytesIO()
    writer.write(out)

    parsed = parse(tmp_path, out.getvalue(), PDF)

    assert parsed.pages[0].text == " ".join(PROSE)


def _turned(data: bytes, degrees: int) -> bytes:
    writer = PdfWriter(clone_from=io.BytesIO(data))
    writer.pages[0].rotate(degrees)
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def _turn(box: Box, degrees: int) -> Box:
    """Where a box of an upright page stands when the page is shown turned clockwise."""
    if degrees == 90:
        return Box(HEIGHT - box.y1, box.x0, HEIGHT - box.y0, box.x1)
    if degrees == 180:
        return Box(WIDTH - box.x1, HEIGHT - box.y1, WIDTH - box.x0, HEIGHT - box.y0)
    return Box(box.y0, WIDTH - box.x1, box.y1, WIDTH - box.x0)


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_page_that_is_shown_sideways_reads_as_if_it_were_upright(tmp_path: Path, degrees: int) -> None:
    rows = [("Code", "Cause", "Remedy"), ("E-01", "Oil hot", "Check cooler"), ("E-02", "", "Clean filter")]

    def page_of_both(canvas: Canvas) -> None:
        paragraph(canvas, 72, 100, PROSE)
        ruled_table(canvas, 72, 300, rows, [60, 120, 200], row_height=28)

    upright = draw(page_of_both)

    (first,) = parse(tmp_path, upright, PDF).pages
    (page,) = parse(tmp_path, _turned(upright, degrees), PDF).pages

    assert (page.text, records(page)) == (first.text, records(first))
    assert len(records(page)) == 2
    sizes = (first.width, first.height) if degrees == 180 else (first.height, first.width)
    assert (page.width, page.height) == sizes
    for line, former in zip(page.lines, first.lines, strict=True):
        assert line.box is not None
        assert former.box is not None
        wanted = _turn(former.box, degrees)
        found = (line.box.x0, line.box.y0, line.box.x1, line.box.y1)
        assert found == pytest.approx((wanted.x0, wanted.y0, wanted.x1, wanted.y1), abs=0.1)


@pytest.mark.parametrize("degrees", [90, -90])
def test_text_that_is_drawn_sideways_reads_line_by_line(tmp_path: Path, degrees: int) -> None:
    def sideways(canvas: Canvas) -> None:
        canvas.rotate(degrees)
        canvas.translate(0, -WIDTH) if degrees > 0 else canvas.translate(-HEIGHT, 0)
        for number, line in enumerate(PROSE):
            canvas.drawString(100, 500 - 14 * number, line)

    (page,) = parse(tmp_path, draw(sideways), PDF).pages

    assert page.text == " ".join(PROSE)
