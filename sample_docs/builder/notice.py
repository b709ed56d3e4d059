"""The scanned notice: a page drawn as a picture, turned a little, with paper and noise, and no text layer."""

from __future__ import annotations

import tomllib
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from reportlab.lib.pagesizes import A4
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

_DPI = 200
_SIZE = (round(A4[0] / 72 * _DPI), round(A4[1] / 72 * _DPI))
_ANGLE_DEG = 0.6
_SEED = 315


def write_scan(source: Path, target: Path, *, font: Path) -> None:
    """Draw the notice that the TOML file describes and write it as an image-only PDF of one page."""
    notice = tomllib.loads(source.read_text("utf-8"))
    picture = _age(_draw(notice, font))
    buffer = BytesIO()
    picture.save(buffer, "JPEG", quality=30, optimize=True, dpi=(_DPI, _DPI))
    buffer.seek(0)
    canvas = Canvas(str(target), pagesize=A4, invariant=1)
    canvas.setTitle(notice["scan_title"])
    canvas.drawImage(ImageReader(buffer), 0, 0, *A4)
    canvas.showPage()
    canvas.save()


def _draw(notice: dict[str, str], font: Path) -> Image.Image:
    page = Image.new("L", _SIZE, 250)
    pen = ImageDraw.Draw(page)
    y = 190
    for key, size, leading in (("publisher", 38, 90), ("title", 74, 150), ("number", 34, 100)):
        face = ImageFont.truetype(str(font), size)
        pen.text((_SIZE[0] / 2, y), notice[key], font=face, fill=35, anchor="ma")
        y += leading
    pen.line((190, y - 30, _SIZE[0] - 190, y - 30), fill=60, width=4)
    face = ImageFont.truetype(str(font), 40)
    for line in notice["body"].strip().split("\n"):
        pen.text((200, y), line, font=face, fill=40)
        y += 76
    for line in notice["signature"].strip().split("\n"):
        pen.text((_SIZE[0] - 210, y + 40), line, font=face, fill=40, anchor="ra")
        y += 76
    _stamp(pen, notice["stamp"], ImageFont.truetype(str(font), 36), (1290, y - 60))
    return page


def _stamp(
    pen: ImageDraw.ImageDraw, text: str, face: ImageFont.FreeTypeFont, centre: tuple[int, int]
) -> None:
    x, y = centre
    for radius in (140, 132):
        pen.ellipse((x - radius, y + 150 - radius, x + radius, y + 150 + radius), outline=150, width=4)
    pen.text((x, y + 150), text, font=face, fill=150, anchor="mm")


def _age(page: Image.Image) -> Image.Image:
    turned = page.rotate(_ANGLE_DEG, resample=Image.Resampling.BICUBIC, fillcolor=250)
    grey = np.asarray(turned.filter(ImageFilter.GaussianBlur(0.7)), dtype=np.float32)
    random = np.random.default_rng(_SEED)
    shade = np.linspace(-9, 3, _SIZE[0], dtype=np.float32)[None, :]
    noisy = grey + shade + random.normal(0, 2.2, grey.shape).astype(np.float32)
    specks = random.random(grey.shape) > 0.99996
    noisy[specks] = 90
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))
