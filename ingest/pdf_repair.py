"""A second reading of PDF pages whose text layer PDFium cannot decode, by liteparse in its own process."""

from __future__ import annotations

from pathlib import Path

from ingest.characters import clean_line
from ingest.lines import TextLine
from kb.types import Box

_TIMEOUT_S = 30.0


def read_repaired_lines(path: Path, *, page_number: int, password: str | None) -> tuple[TextLine, ...]:
    """Return the lines of one page, none when liteparse fails, hangs or finds nothing.

    liteparse recovers characters from glyph shapes and font names where a font has no Unicode map.
    It can hang or crash on hostile files, so it works in a process of its own that ends with its limit.
    """
    from liteparse import LiteParse, ParseError

    # Its own OCR would try to download models.
    parser = LiteParse(
        ocr_enabled=False,
        target_pages=str(page_number),
        password=password,
        quiet=True,
        num_workers=1,
        pool_size=1,
        parse_timeout=_TIMEOUT_S,
    )
    try:
        result = parser.parse(str(path))
    except ParseError:
        return ()
    finally:
        parser.close()
    lines: list[TextLine] = []
    for page in result.pages:
        for item in page.text_items:
            text = clean_line(item.text)
            if text:
                box = Box(item.x, item.y, item.x + item.width, item.y + item.height)
                lines.append(TextLine(text, box, max(float(item.font_size or item.height), 1.0)))
    return tuple(lines)
