"""Made-up documents for benchmarks, the same for the same arguments; drawn with the development packages."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from email.message import EmailMessage
from pathlib import Path

_WORDS = (
    *("pump", "valve", "pressure", "bearing", "lubricate", "inspect", "every", "hours", "replace", "filter"),
    *("motor", "drive", "error", "code", "temperature", "alarm", "reset", "check", "torque", "seal"),
)
_CHINESE = ("检查", "油泵", "压力", "轴承", "更换", "滤芯", "报警", "复位", "温度", "电机", "每班", "记录")
_A4_POINTS = (595.0, 842.0)


def draw_prose(seed: int, *, lines: int) -> list[str]:
    """Return lines of maintenance prose, each with a code of its own."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    return [f"{' '.join(chance.choices(_WORDS, k=9))} E-{seed:03d}{line:02d}." for line in range(lines)]


def draw_pdf(
    path: Path, *, pages: int, scanned: bool, lines: int = 32, dpi: int = 150, seed: int = 0
) -> None:
    """Write a PDF of prose, as text or as one grey A4 picture per page."""
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(path), pagesize=_A4_POINTS, invariant=1)
    for number in range(pages):
        texts = draw_prose(seed + number, lines=lines)
        if scanned:
            canvas.drawImage(ImageReader(_draw_picture(texts, dpi=dpi)), 0, 0, *_A4_POINTS)
        else:
            for line, text in enumerate(texts):
                canvas.drawString(60, 780 - 22 * line, text)
        canvas.showPage()
    canvas.save()


def draw_mixed(folder: Path, number: int) -> Path:
    """Write one small document into the folder, in another format for each of ten numbers in a row."""
    formats: Sequence[tuple[str, Callable[[Path, int], None]]] = (
        ("txt", _write_text),
        ("md", _write_markdown),
        ("html", _write_html),
        ("csv", _write_csv),
        ("docx", _write_docx),
        ("xlsx", _write_xlsx),
        ("pptx", _write_pptx),
        ("eml", _write_mail),
        ("pdf", _write_small_pdf),
        ("txt", _write_chinese_text),
    )
    suffix, write = formats[number % len(formats)]
    path = folder / f"note-{number:05d}.{suffix}"
    write(path, number)
    return path


def _draw_picture(texts: Sequence[str], *, dpi: int) -> io.BytesIO:
    from PIL import Image, ImageDraw, ImageFont

    width, height = (round(points * dpi / 72) for points in _A4_POINTS)
    picture = Image.new("L", (width, height), 255)
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(size=dpi * 14 // 75)
    for line, text in enumerate(texts):
        pen.text((dpi * 2 // 3, dpi * 2 // 3 + dpi * 8 // 25 * line), text, 0, font)
    jpeg = io.BytesIO()
    picture.save(jpeg, "JPEG", quality=60)
    return jpeg


def _write_text(path: Path, number: int) -> None:
    path.write_text("\n".join(draw_prose(number, lines=8)), "utf-8")


def _write_chinese_text(path: Path, number: int) -> None:
    chance = random.Random(number)  # noqa: S311 - no secret
    lines = [f"{''.join(chance.choices(_CHINESE, k=8))}，代码 E-{number:05d}。" for _ in range(8)]
    path.write_bytes("\n".join(lines).encode("gb18030"))


def _write_markdown(path: Path, number: int) -> None:
    rows = [f"| E-{number}-{row} | {text} |" for row, text in enumerate(draw_prose(number, lines=4))]
    path.write_text("\n".join([f"# Note {number}", "", "| code | remedy |", "| --- | --- |", *rows]), "utf-8")


def _write_html(path: Path, number: int) -> None:
    paragraphs = "".join(f"<p>{text}</p>" for text in draw_prose(number, lines=8))
    path.write_text(
        f"<html><title>Note {number}</title><body><h1>Note</h1>{paragraphs}</body></html>", "utf-8"
    )


def _write_csv(path: Path, number: int) -> None:
    rows = [f"E-{number}-{row};{text}" for row, text in enumerate(draw_prose(number, lines=8))]
    path.write_text("\n".join(["code;remedy", *rows]), "utf-8")


def _write_docx(path: Path, number: int) -> None:
    import docx

    document = docx.Document()
    document.add_heading(f"Note {number}", 1)
    for text in draw_prose(number, lines=6):
        document.add_paragraph(text)
    document.save(str(path))


def _write_xlsx(path: Path, number: int) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["code", "remedy"])
    for row, text in enumerate(draw_prose(number, lines=8)):
        sheet.append([f"E-{number}-{row}", text])
    book.save(path)


def _write_pptx(path: Path, number: int) -> None:
    import pptx

    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = f"Note {number}"
    slide.placeholders[1].text = "\n".join(draw_prose(number, lines=5))
    show.save(str(path))


def _write_mail(path: Path, number: int) -> None:
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = f"Note {number}", "shift@example.com", "plant@example.com"
    mail.set_content("\n".join(draw_prose(number, lines=6)))
    path.write_bytes(mail.as_bytes())


def _write_small_pdf(path: Path, number: int) -> None:
    draw_pdf(path, pages=1, scanned=False, lines=10, seed=number)
