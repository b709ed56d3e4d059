"""Small PDFs, drawn on the spot."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence

import pypdfium2
from PIL import Image, ImageDraw, ImageFont
from pypdf import PdfWriter
from pypdf.generic import (
    ArrayObject,
    DictionaryObject,
    NameObject,
    NumberObject,
    StreamObject,
    TextStringObject,
)
from reportlab.lib.pagesizes import A4
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

WIDTH, HEIGHT = A4
SONG = "STSong-Light"

PROSE = (
    "The pump delivers oil to the cylinder through the valve block and the",
    "filter keeps particles away from the servo valves. Check the pressure",
    "gauge once per shift and write the value into the log of the machine.",
    "When the pressure falls below the limit the control stops the press and",
    "shows a message. Restart only after the cause is known and removed.",
)


def draw(
    *pages: Callable[[Canvas], object],
    encrypt: StandardEncryption | None = None,
    title: str = "",
    size: tuple[float, float] = A4,
) -> bytes:
    """Return a PDF with one page per function."""
    pdfmetrics.registerFont(UnicodeCIDFont(SONG))
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=size, encrypt=encrypt)
    if title:
        canvas.setTitle(title)
    for page in pages:
        page(canvas)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def embed(data: bytes, files: Mapping[str, bytes]) -> bytes:
    """Return the PDF with files embedded in it."""
    document = pypdfium2.PdfDocument(data)
    for name, content in files.items():
        document.new_attachment(name).set_data(content)
    buffer = io.BytesIO()
    document.save(buffer)
    document.close()
    return buffer.getvalue()


def pin(data: bytes, files: Mapping[str, bytes], *, page_index: int = 0) -> bytes:
    """Return the PDF with files pinned to a page, each with a note that shows text."""
    writer = PdfWriter(clone_from=io.BytesIO(data))
    for name, content in files.items():
        stream = StreamObject()
        stream.set_data(content)
        stream[NameObject("/Type")] = NameObject("/EmbeddedFile")
        specification = DictionaryObject(
            {
                NameObject("/Type"): NameObject("/Filespec"),
                NameObject("/F"): TextStringObject(name),
                NameObject("/UF"): TextStringObject(name),
                NameObject("/EF"): DictionaryObject({NameObject("/F"): writer._add_object(stream)}),
            }
        )
        annotation = DictionaryObject(
            {
                NameObject("/Type"): NameObject("/Annot"),
                NameObject("/Subtype"): NameObject("/FileAttachment"),
                NameObject("/Rect"): ArrayObject([NumberObject(side) for side in (10, 10, 30, 30)]),
                NameObject("/Contents"): TextStringObject("see the file"),
                NameObject("/FS"): writer._add_object(specification),
            }
        )
        writer.add_annotation(page_index, annotation)
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def write(
    canvas: Canvas, x: float, y: float, text: str, *, size: float = 10, font: str = "Helvetica"
) -> None:
    """Draw one line; y counts from the top."""
    canvas.setFont(font, size)
    canvas.drawString(x, HEIGHT - y, text)


def paragraph(canvas: Canvas, x: float, y: float, lines: Sequence[str], *, font: str = "Helvetica") -> None:
    """Draw lines 12 points apart."""
    for number, line in enumerate(lines):
        write(canvas, x, y + 12 * number, line, font=font)


def ruled_table(
    canvas: Canvas,
    x: float,
    y: float,
    rows: Sequence[Sequence[str]],
    widths: Sequence[float],
    *,
    font: str = "Helvetica",
    row_height: float = 20,
) -> None:
    """Draw a table with a rule around each cell; a line feed in a cell starts a second line."""
    for number, row in enumerate(rows):
        left = x
        for text, width in zip(row, widths, strict=True):
            canvas.rect(left, HEIGHT - y - row_height * (number + 1), width, row_height)
            for part, line in enumerate(text.split("\n")):
                write(canvas, left + 3, y + row_height * number + 9 + 9 * part, line, font=font, size=8)
            left += width


def picture(text: str, *, size: tuple[int, int] = (900, 200)) -> Image.Image:
    """Return a white picture with one line of black text."""
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text((40, 60), text, fill="black", font=ImageFont.load_default(size=56))
    return image
