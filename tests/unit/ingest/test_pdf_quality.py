from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pypdf
import pytest
import reportlab
from pypdf.generic import DecodedStreamObject, NameObject
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

from ingest.formats import PDF
from ingest.pdf_repair import read_repaired_lines
from kb.errors import DamagedFileError, GarbledTextError
from kb.types import TextSource
from tests.unit.ingest.parsing import parse
from tests.unit.ingest.pdf_samples import PROSE, draw, paragraph

LINES = ("The quick brown fox", "jumps over the lazy dog")


def embedded(change_map: Callable[[re.Match[bytes]], bytes]) -> bytes:
    """Return a PDF in an embedded font, each entry of whose Unicode map was changed."""
    pdfmetrics.registerFont(TTFont("Vera", str(Path(reportlab.__file__).parent / "fonts" / "Vera.ttf")))
    data = draw(lambda canvas: paragraph(canvas, 20, 760, LINES, font="Vera"), size=(220, 100))
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(data))
    for font in writer.pages[0]["/Resources"]["/Font"].values():  # type: ignore[index]
        entry = font.get_object()
        if "/ToUnicode" in entry:
            stream = DecodedStreamObject()
            original = entry["/ToUnicode"].get_data()
            stream.set_data(re.sub(rb"<([0-9A-F]{2})> <([0-9A-F]{4})>", change_map, original))
            entry[NameObject("/ToUnicode")] = writer._add_object(stream)
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def to_private_use(match: re.Match[bytes]) -> bytes:
    return b"<%b> <E0%b>" % (match[1], match[1])


def test_private_use_text_is_garbled_and_never_kept(tmp_path: Path) -> None:
    with pytest.raises(GarbledTextError):
        parse(tmp_path, embedded(to_private_use), PDF)


def test_garbled_text_is_read_from_the_picture(tmp_path: Path) -> None:
    page = parse(tmp_path, embedded(to_private_use), PDF, ocr=True).pages[0]

    assert page.source is TextSource.OCR
    assert "lazy dog" in page.text
    assert page.quality.undecodable_share == 0.0


def test_a_few_undecodable_characters_are_counted(tmp_path: Path) -> None:
    def one(match: re.Match[bytes]) -> bytes:
        return b"<%b> <FFFD>" % match[1] if match[1] == b"71" else match[0]

    page = parse(tmp_path, embedded(one), PDF).pages[0]

    assert 0 < page.quality.undecodable_share < 0.1
    assert page.source is TextSource.TEXT


def test_the_second_reading_gives_lines_with_places(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(draw(lambda canvas: paragraph(canvas, 72, 100, PROSE)))

    lines = read_repaired_lines(path, page_number=1, password=None)

    assert " ".join(line.text for line in lines) == " ".join(PROSE)
    assert lines[0].box.x0 == pytest.approx(72, abs=2)
    assert lines[0].box.y0 < lines[-1].box.y0


def test_the_second_reading_of_a_broken_file_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(b"%PDF-1.7 nothing")

    assert read_repaired_lines(path, page_number=1, password=None) == ()


def test_a_page_that_cannot_be_loaded_is_a_warning(tmp_path: Path) -> None:
    writer = pypdf.PdfWriter(
        clone_from=io.BytesIO(draw(*[lambda canvas: paragraph(canvas, 72, 100, PROSE)] * 2))
    )
    kids = writer.pages[1]["/Parent"]["/Kids"]  # type: ignore[index]
    kids[1] = NameObject("/Broken")
    buffer = io.BytesIO()
    writer.write(buffer)

    parsed = parse(tmp_path, buffer.getvalue(), PDF)

    assert len(parsed.pages) == 2
    assert parsed.pages[1].source is TextSource.NONE
    assert parsed.warnings == ("pages_damaged: page(s) 2 cannot be read",)


def test_a_file_none_of_whose_pages_loads_is_damaged(tmp_path: Path) -> None:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(draw(lambda canvas: paragraph(canvas, 72, 100, PROSE))))
    kids = writer.pages[0]["/Parent"]["/Kids"]  # type: ignore[index]
    kids[0] = NameObject("/Broken")
    buffer = io.BytesIO()
    writer.write(buffer)

    with pytest.raises(DamagedFileError):
        parse(tmp_path, buffer.getvalue(), PDF)


def test_a_page_too_dense_for_layout_keeps_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.pdf_pages._MAX_PAGE_CHARS", 100)

    parsed = parse(tmp_path, draw(lambda canvas: paragraph(canvas, 72, 100, PROSE)), PDF)

    assert parsed.pages[0].text == " ".join(PROSE)
    assert parsed.pages[0].quality.warnings[0].startswith("page_too_dense:")
