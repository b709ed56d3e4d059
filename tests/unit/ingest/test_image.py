from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image, ImageOps

from ingest.formats import PNG, TIFF
from kb.errors import DamagedFileError, NoTextFoundError, TooManyPagesError, UnsupportedFormatError
from tests.unit.ingest.parsing import parse
from tests.unit.ingest.pdf_samples import picture


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def test_a_picture_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoTextFoundError):
        parse(tmp_path, encoded(Image.new("RGB", (200, 100), "white")), PNG, ocr=True)


def test_a_transparent_picture_is_read_on_white(tmp_path: Path) -> None:
    text = picture("ALARM 47", size=(420, 160)).convert("L")
    image = Image.new("RGBA", text.size, "black")
    image.putalpha(ImageOps.invert(text))

    assert "47" in parse(tmp_path, encoded(image, dpi=(200, 200)), PNG, ocr=True).pages[0].text


def test_the_resolution_gives_the_size_in_points(tmp_path: Path) -> None:
    data = encoded(picture("ALARM 47", size=(420, 160)), dpi=(100, 100))

    page = parse(tmp_path, data, PNG, ocr=True).pages[0]

    assert page.width == pytest.approx(420 * 72 / 100, abs=0.5)
    assert page.lines[0].box is not None


def test_without_ocr_a_picture_is_not_supported(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFormatError) as caught:
        parse(tmp_path, encoded(picture("x")), PNG)

    assert "KB_OCR" in caught.value.next_step


def test_each_picture_of_a_tiff_is_a_page_within_the_limit(tmp_path: Path) -> None:
    pictures = [picture(f"PAGE {n}", size=(320, 120)) for n in (1, 2)]
    data = encoded(pictures[0], "TIFF", save_all=True, append_images=pictures[1:])

    assert len(parse(tmp_path, data, TIFF, ocr=True).pages) == 2
    with pytest.raises(TooManyPagesError):
        parse(tmp_path, data, TIFF, ocr=True, max_pages=1)


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n cut", encoded(picture("x"))[:200]])
def test_a_broken_picture_is_damaged(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DamagedFileError):
        parse(tmp_path, data, PNG, ocr=True)


def test_a_picture_of_too_many_pixels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError):
        parse(tmp_path, encoded(Image.new("1", (20000, 6000))), PNG, ocr=True)
