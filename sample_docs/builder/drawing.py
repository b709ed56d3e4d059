"""Simple line drawings for the manuals: labelled boxes and arrows on a grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reportlab.graphics.shapes import Drawing, Line, Polygon, Rect, String
from reportlab.lib import colors

_INK = colors.HexColor("#1f3a5f")
_FILL = colors.HexColor("#eef3f8")


def draw(description: Mapping[str, Any], *, font: str, width: float) -> Drawing:
    """Return the drawing of `boxes` [x, y, w, h, label] and `arrows` [x1, y1, x2, y2, label].

    `size` is in points, like all numbers; the origin is at the lower left; a newline parts the lines of a
    label.
    """
    own_width, height = description["size"]
    drawing = Drawing(width, height)
    shift = (width - own_width) / 2
    for x, y, w, h, label in description["boxes"]:
        drawing.add(Rect(x + shift, y, w, h, strokeColor=_INK, fillColor=_FILL, strokeWidth=0.8, rx=2, ry=2))
        _label(drawing, x + shift + w / 2, y + h / 2, label, font, 8.5)
    for x1, y1, x2, y2, label in description["arrows"]:
        _arrow(drawing, x1 + shift, y1, x2 + shift, y2)
        if label:
            _label(drawing, (x1 + x2) / 2 + shift, (y1 + y2) / 2 + 7, label, font, 7.5)
    return drawing


def _label(drawing: Drawing, x: float, y: float, text: str, font: str, size: float) -> None:
    lines = text.split("\n")
    top = y + (len(lines) - 1) * size * 0.65 - size * 0.35
    for number, line in enumerate(lines):
        drawing.add(
            String(x, top - number * size * 1.3, line, fontName=font, fontSize=size, textAnchor="middle")
        )


def _arrow(drawing: Drawing, x1: float, y1: float, x2: float, y2: float) -> None:
    drawing.add(Line(x1, y1, x2, y2, strokeColor=_INK, strokeWidth=0.9))
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    dx, dy = (x2 - x1) / length * 5, (y2 - y1) / length * 5
    tip = [x2, y2, x2 - dx - dy * 0.5, y2 - dy + dx * 0.5, x2 - dx + dy * 0.5, y2 - dy - dx * 0.5]
    drawing.add(Polygon(tip, fillColor=_INK, strokeColor=_INK, strokeWidth=0.1))
