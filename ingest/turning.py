"""Pages whose text runs sideways or upside down: laid out as a reader turns them, with boxes on the page as shown."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pypdfium2.raw as pdfium_c

from kb.types import Box, Page

_SAMPLED_CHARS = 2000
_LEAST_CHARS = 20
_TURNED_SHARE = 0.8


def find_turn(page: Any, text_page: Any) -> int:
    """Return by how many degrees clockwise to turn the shown page so that nearly all its text is upright.

    Vertical writing is upright: each character stands on its feet.
    """
    raw = text_page.raw
    count = max(pdfium_c.FPDFText_CountChars(raw), 0)
    step = max(count // _SAMPLED_CHARS, 1)
    # PDFium counts clockwise, and tells a negative angle when it has none.
    angles = Counter(
        round(math.degrees(angle) / 90) * 90 % 360
        for index in itertools.islice(range(0, count, step), _SAMPLED_CHARS)
        if pdfium_c.FPDFText_GetUnicode(raw, index) > 0x20
        and (angle := pdfium_c.FPDFText_GetCharAngle(raw, index)) >= 0
    )
    if not angles:
        return 0
    angle, agreeing = angles.most_common(1)[0]
    if agreeing < max(_LEAST_CHARS, angles.total() * _TURNED_SHARE):
        return 0
    return int(-angle - page.get_rotation()) % 360


def turn_back(page: Page, turned: int) -> Page:
    """Return the page that was laid out `turned` degrees clockwise with its boxes where the page shows them."""
    if not turned or page.width is None or page.height is None:
        return page
    move = _find_move(turned, page.width, page.height)
    sideways = turned in (90, 270)
    return replace(
        page,
        width=page.height if sideways else page.width,
        height=page.width if sideways else page.height,
        blocks=tuple(replace(block, box=move(block.box)) for block in page.blocks),
        lines=tuple(replace(line, box=move(line.box)) for line in page.lines),
    )


def _find_move(turned: int, width: float, height: float) -> Callable[[Box | None], Box | None]:
    """Return what moves a box of a turned page of this size to the page as shown."""

    def move(box: Box | None) -> Box | None:
        if box is None:
            return None
        match turned:
            case 90:
                return Box(box.y0, width - box.x1, box.y1, width - box.x0)
            case 180:
                return Box(width - box.x1, height - box.y1, width - box.x0, height - box.y0)
            case _:
                return Box(height - box.y1, box.x0, height - box.y0, box.x1)

    return move
