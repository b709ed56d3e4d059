from __future__ import annotations

import datetime as dt
import io
import zipfile
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from docx.oxml import parse_xml
from openpyxl.utils import get_column_letter
from pptx.util import Inches

from ingest.formats import DOCX, OLE_MAGIC, PPTX, XLSX
from ingest.parsers.xlsx import show_value
from kb.errors import DamagedFileError, NoTextFoundError, PasswordProtectedError, TooManyPagesError
from kb.types import BlockKind
from tests.unit.ingest.parsing import outline, parse, records, texts

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def word(document: object) -> bytes:
    buffer = io.BytesIO()
    document.save(buffer)  # type: ignore[attr-defined]
    return buffer.getvalue()


def workbook(**sheets: list[list[object]]) -> openpyxl.Workbook:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    return book


def test_docx_headings_lists_and_paragraphs_keep_their_roles(tmp_path: Path) -> None:
    document = docx.Document()
    document.core_properties.author = "Plant 4"
    document.add_heading("IT policy", 1)
    document.add_heading("Passwords", 2)
    document.add_paragraph("Change them every 90 days.")
    document.add_paragraph("no sharing", style="List Bullet")

    parsed = parse(tmp_path, word(document), DOCX)

    assert outline(parsed.pages[0]) == [
        ("heading1", "IT policy"),
        ("heading2", "Passwords"),
        ("paragraph", "Change them every 90 days."),
        ("list_item", "no sharing"),
    ]
    assert parsed.title == "IT policy"
    assert parsed.metadata["author"] == "Plant 4"


def test_docx_tables_are_true_to_their_rows(tmp_path: Path) -> None:
    document = docx.Document()
    table = document.add_table(4, 3)
    for row, values in enumerate(
        (("代码", "原因", "处理"), ("E01", "油温高", "查阀"), ("", "油位低", "加油"), ("E03", "堵", ""))
    ):
        for column, value in enumerate(values):
            table.cell(row, column).text = value
    table.cell(1, 0).merge(table.cell(2, 0))

    page = parse(tmp_path, word(document), DOCX).pages[0]

    assert records(page) == [
        {"代码": "E01", "原因": "油温高", "处理": "查阀"},
        {"代码": "E01", "原因": "油位低", "处理": "加油"},
        {"代码": "E03", "原因": "堵", "处理": ""},
    ]


def test_docx_marked_header_rows_and_a_table_of_one_column(tmp_path: Path) -> None:
    document = docx.Document()
    table = document.add_table(3, 2)
    for row, values in enumerate((("7", "8"), ("9", "10"), ("11", "12"))):
        for column, value in enumerate(values):
            table.cell(row, column).text = value
    table.rows[0]._tr.get_or_add_trPr().append(parse_xml(f"<w:tblHeader {W}/>"))
    note = document.add_table(1, 1)
    note.cell(0, 0).text = "Mind the hot oil."

    page = parse(tmp_path, word(document), DOCX).pages[0]

    assert records(page) == [{"7": "9", "8": "10"}, {"7": "11", "8": "12"}]
    assert texts(page, BlockKind.PARAGRAPH) == ["Mind the hot oil."]


def test_docx_text_boxes_are_read_once(tmp_path: Path) -> None:
    box = f"<w:txbxContent {W}><w:p><w:r><w:t>Warning: hot</w:t></w:r></w:p></w:txbxContent>"
    document = docx.Document()
    paragraph = document.add_paragraph("Before ")
    paragraph._p.append(
        parse_xml(
            f'<w:r {W} xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
            f"<mc:AlternateContent><mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback></mc:AlternateContent></w:r>"
        )
    )

    assert texts(parse(tmp_path, word(document), DOCX).pages[0]) == ["Before", "Warning: hot"]


def test_docx_deleted_text_is_left_out_and_breaks_are_spaces(tmp_path: Path) -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("keep")
    paragraph._p.append(
        parse_xml(f"<w:del {W}><w:r><w:delText>gone</w:delText><w:t>gone</w:t></w:r></w:del>")
    )
    paragraph._p.append(
        parse_xml(f"<w:r {W}><w:br/><w:t>next</w:t><w:tab/><w:t>E</w:t><w:noBreakHyphen/><w:t>07</w:t></w:r>")
    )

    assert parse(tmp_path, word(document), DOCX).pages[0].text == "keep next E-07"


def test_docx_headers_and_footers_are_furniture(tmp_path: Path) -> None:
    document = docx.Document()
    document.sections[0].header.paragraphs[0].text = "HP-200"
    document.sections[0].footer.paragraphs[0].text = "internal"
    document.add_paragraph("Body.")

    assert outline(parse(tmp_path, word(document), DOCX).pages[0]) == [
        ("page_header", "HP-200"),
        ("paragraph", "Body."),
        ("page_footer", "internal"),
    ]


def test_docx_headings_by_outline_level_or_bold_number(tmp_path: Path) -> None:
    document = docx.Document()
    leveled = document.add_paragraph("Leveled")
    leveled._p.get_or_add_pPr().append(parse_xml(f'<w:outlineLvl {W} w:val="2"/>'))
    document.add_paragraph().add_run("1.2 油泵").bold = True
    document.add_paragraph("1.2 plain")

    assert [kind for kind, _ in outline(parse(tmp_path, word(document), DOCX).pages[0])] == [
        "heading3",
        "heading2",
        "paragraph",
    ]


def test_docx_in_its_strict_form_is_read(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_heading("Strict", 1)
    document.add_paragraph("Body.")
    source, target = io.BytesIO(word(document)), io.BytesIO()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            for kind in ("wordprocessingml", "officeDocument"):
                data = data.replace(
                    f"http://schemas.openxmlformats.org/{kind}/2006".encode(),
                    f"http://purl.oclc.org/ooxml/{kind}".encode(),
                )
            new.writestr(entry, data)

    assert texts(parse(tmp_path, target.getvalue(), DOCX).pages[0]) == ["Strict", "Body."]


def test_xlsx_sheets_are_pages_and_rows_records(tmp_path: Path) -> None:
    book = workbook(
        点检=[
            ["点检表", None, None],
            ["项目", "上限", "日期"],
            ["油温", 55.0, dt.date(2024, 5, 1)],
            ["油位", None, None],
        ],
        Parts=[["No", "Bin"], ["BRG-6217", "A9-17"]],
    )
    book["点检"].merge_cells("A1:C1")

    pages = parse(tmp_path, word(book), XLSX).pages

    assert [page.label for page in pages] == ["点检", "Parts"]
    assert outline(pages[0])[:3] == [
        ("heading1", "点检"),
        ("paragraph", "点检表"),
        ("table_header", "项目 | 上限 | 日期"),
    ]
    assert records(pages[0]) == [
        {"项目": "油温", "上限": "55", "日期": "2024-05-01"},
        {"项目": "油位", "上限": "", "日期": ""},
    ]
    assert records(pages[1]) == [{"No": "BRG-6217", "Bin": "A9-17"}]
    assert pages[1].blocks[-1].table_index == 1


def test_xlsx_tables_apart_on_one_sheet_are_two_tables(tmp_path: Path) -> None:
    book = workbook(
        S=[["A", "B"], [1, 2], [None, None], [3, 4], [None, None], ["Note"], [None], ["C", "D"], ["x", 5]]
    )

    page = parse(tmp_path, word(book), XLSX).pages[0]

    assert records(page) == [{"A": "1", "B": "2"}, {"A": "3", "B": "4"}, {"C": "x", "D": "5"}]
    assert "Note" in texts(page, BlockKind.PARAGRAPH)


def test_xlsx_merged_cells_are_filled(tmp_path: Path) -> None:
    book = workbook(S=[["Line", "Item"], ["L1", "pump"], [None, "valve"]])
    book["S"].merge_cells("A2:A3")

    assert records(parse(tmp_path, word(book), XLSX).pages[0])[1] == {"Line": "L1", "Item": "valve"}


def test_xlsx_far_cells_cost_nothing(tmp_path: Path) -> None:
    book = workbook(S=[["A", "B"], ["x", "y"]])
    book["S"][f"{get_column_letter(600)}9000"] = " "

    assert records(parse(tmp_path, word(book), XLSX).pages[0]) == [{"A": "x", "B": "y"}]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (True, "TRUE"),
        (12.0, "12"),
        (0.1 + 0.2, "0.3"),
        (float("inf"), "inf"),
        (7, "7"),
        (" x ", "x"),
        (dt.datetime(2024, 5, 1), "2024-05-01"),  # noqa: DTZ001 - spreadsheets have no time zones
        (dt.datetime(2024, 5, 1, 8, 30), "2024-05-01 08:30"),  # noqa: DTZ001 - as above
        (dt.time(8, 30, 5), "08:30:05"),
        (dt.timedelta(hours=30, seconds=5), "30:00:05"),
    ],
)
def test_xlsx_values_look_as_in_excel(value: object, shown: str) -> None:
    assert show_value(value) == shown


def test_xlsx_without_text_and_with_too_many_sheets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoTextFoundError):
        parse(tmp_path, word(workbook(S=[])), XLSX)
    with pytest.raises(TooManyPagesError):
        parse(tmp_path, word(workbook(A=[["a"]], B=[["b"]])), XLSX, max_pages=1)


def test_pptx_slides_are_pages(tmp_path: Path) -> None:
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "Lubrication"
    slide.placeholders[1].text = "weekly\nby hand"
    slide.notes_slide.notes_text_frame.text = "Use oil 46"
    second = show.slides.add_slide(show.slide_layouts[5])
    table = second.shapes.add_table(3, 2, Inches(1), Inches(2), Inches(4), Inches(1)).table
    for row, values in enumerate((("Code", "Cause"), ("E1", "hot\x0b"), ("", "low"))):
        for column, value in enumerate(values):
            table.cell(row, column).text = value
    table.cell(1, 0).merge(table.cell(2, 0))
    group = second.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, 10, 10).text_frame.text = "grouped"

    parsed = parse(tmp_path, word(show), PPTX)

    assert outline(parsed.pages[0]) == [
        ("heading1", "Lubrication"),
        ("list_item", "weekly"),
        ("list_item", "by hand"),
        ("paragraph", "Use oil 46"),
    ]
    assert records(parsed.pages[1]) == [{"Code": "E1", "Cause": "hot"}, {"Code": "E1", "Cause": "low"}]
    assert "grouped" in parsed.pages[1].text
    assert parsed.title == "Lubrication" or parsed.title == "PowerPoint Presentation"
    with pytest.raises(TooManyPagesError):
        parse(tmp_path, word(show), PPTX, max_pages=1)


def test_pptx_without_text_is_refused(tmp_path: Path) -> None:
    show = pptx.Presentation()
    show.slides.add_slide(show.slide_layouts[6])

    with pytest.raises(NoTextFoundError):
        parse(tmp_path, word(show), PPTX)


def test_docx_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoTextFoundError):
        parse(tmp_path, word(docx.Document()), DOCX)


@pytest.mark.parametrize("media_type", [DOCX, PPTX])
def test_an_encrypted_office_file_needs_its_password(tmp_path: Path, media_type: str) -> None:
    with pytest.raises(PasswordProtectedError):
        parse(tmp_path, OLE_MAGIC + b"\0" * 600, media_type)


@pytest.mark.parametrize("media_type", [DOCX, PPTX, XLSX])
def test_a_broken_office_file_is_damaged(tmp_path: Path, media_type: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types")

    for data in (b"PK\3\4 cut", buffer.getvalue()):
        with pytest.raises(DamagedFileError):
            parse(tmp_path, data, media_type)


def test_xlsx_cells_far_to_the_right_are_kept(tmp_path: Path) -> None:
    book = workbook(S=[["Code"], ["E-1"]])
    book["S"]["XFD1"] = "Cause"
    book["S"]["XFD2"] = "hot"

    parsed = parse(tmp_path, word(book), XLSX)

    assert records(parsed.pages[0]) == [{"Code": "E-1", "Cause": "hot"}]


def with_footnotes(data: bytes, *texts_: str) -> bytes:
    """Return the DOCX with footnotes, as Word stores them: a part of their own beside the two separators."""
    notes = "".join(
        f'<w:footnote w:id="{number + 1}"><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:footnote>'
        for number, text in enumerate(texts_)
    )
    part = (
        f'<w:footnotes {W}><w:footnote w:type="separator" w:id="0"><w:p/></w:footnote>{notes}</w:footnotes>'
    )
    relation = (
        '<Relationship Id="rId99" Target="footnotes.xml" '
        'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"/></Relationships>'
    )
    content_type = (
        '<Override PartName="/word/footnotes.xml" ContentType="application/vnd.openxmlformats-officedocument.'
        'wordprocessingml.footnotes+xml"/></Types>'
    )
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            content = source.read(name).decode("utf-8", "surrogateescape")
            if name == "word/_rels/document.xml.rels":
                content = content.replace("</Relationships>", relation)
            elif name == "[Content_Types].xml":
                content = content.replace("</Types>", content_type)
            target.writestr(name, content.encode("utf-8", "surrogateescape"))
        target.writestr("word/footnotes.xml", part)
    return out.getvalue()


def test_docx_footnotes_come_after_the_text(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_paragraph("Tighten to 25 Nm.")

    parsed = parse(tmp_path, with_footnotes(word(document), "Dry threads only."), DOCX)

    assert texts(parsed.pages[0]) == ["Tighten to 25 Nm.", "Dry threads only."]


def test_docx_formulas_are_read(tmp_path: Path) -> None:
    document = docx.Document()
    math = "http://schemas.openxmlformats.org/officeDocument/2006/math"
    document.element.body.insert(
        0,
        parse_xml(
            f'<w:p {W} xmlns:m="{math}"><w:r><w:t xml:space="preserve">Force </w:t></w:r>'
            "<m:oMath><m:r><m:t>F=p·A</m:t></m:r></m:oMath></w:p>"
        ),
    )

    assert texts(parse(tmp_path, word(document), DOCX).pages[0]) == ["Force F=p·A"]
