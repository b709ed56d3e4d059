"""Running headers, footers and page numbers: lines that come back page after page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ingest.lines import PageContent, TextLine
from kb.types import BlockKind

# Shares of the page's height in which a running line can stand.
_HEADER_ZONE = 0.1
_FOOTER_ZONE = 0.9
_MIN_PAGES = 2
_MIN_SHARE = 0.3
_DIGITS = re.compile(r"\d+|\b[ivxlc]{1,6}\b", re.I)
_PAGE_NUMBER = re.compile(
    r"[-–—\s·|]*(?:第\s*)?(?:page|p\.|页码[:：]?)?\s*(?:[A-Z\d]{1,2}-)?#(?:\s*(?:/|of|共|页|，|,|、|\s)+\s*#)?(?:\s*页)?[-–—\s·|]*",
    re.I,
)

Furniture = dict[tuple[int, int], BlockKind]
"""(page number, index of the line on its page) to PAGE_HEADER or PAGE_FOOTER."""


def find_furniture(pages: Sequence[PageContent]) -> Furniture:
    """Return the running lines of the document; a single page has none.

    A line counts when it stands at the edge of the page and the same text, numbers aside, stands at
    about the same height on enough other pages. Where most pages hold nothing else, such as tickets
    and labels, these lines are what the pages say; only page numbers are left out there.
    """
    candidates: list[tuple[int, int, BlockKind, tuple[BlockKind, str, int]]] = []
    for page in pages:
        for index, line in enumerate(page.lines):
            kind = _zone(line, page)
            if kind is not None:
                candidates.append((page.page_number, index, kind, _key(line, page, kind)))
    repeats = Counter(key for _, key in {(number, key) for number, _, _, key in candidates})
    # Left and right pages may differ, and chapters change their headers: a share of pages is enough.
    needed = max(_MIN_PAGES, min(int(len(pages) * _MIN_SHARE), 5))
    found = {(number, index): kind for number, index, kind, key in candidates if repeats[key] >= needed}
    found |= _beside(pages, candidates, found)
    return _without_contents(pages, candidates, found)


def _without_contents(
    pages: Sequence[PageContent],
    candidates: Sequence[tuple[int, int, BlockKind, tuple[BlockKind, str, int]]],
    found: Furniture,
) -> Furniture:
    """Return what was found, less the only words of the pages, if most pages have no others."""
    numbers = {(number, index) for number, index, _, key in candidates if key[1] == "#"}
    written = [page for page in pages if any(line.text.strip() for line in page.lines)]
    bare = [
        page.page_number
        for page in written
        if all((page.page_number, index) in found for index in range(len(page.lines)))
        and any((page.page_number, index) not in numbers for index in range(len(page.lines)))
    ]
    if 2 * len(bare) <= len(written):
        return found
    return {place: kind for place, kind in found.items() if place[0] not in bare or place in numbers}


def _beside(
    pages: Sequence[PageContent],
    candidates: Sequence[tuple[int, int, BlockKind, tuple[BlockKind, str, int]]],
    found: Furniture,
) -> Furniture:
    """Return the lines on the baseline of a running line, such as the name of the chapter at the right."""
    by_number = {page.page_number: page for page in pages}
    running: dict[int, list[TextLine]] = {}
    for number, index in found:
        running.setdefault(number, []).append(by_number[number].lines[index])
    return {
        (number, index): kind
        for number, index, kind, _ in candidates
        if (number, index) not in found
        and any(_share_baseline(by_number[number].lines[index], line) for line in running.get(number, ()))
    }


def _share_baseline(line: TextLine, other: TextLine) -> bool:
    overlap = min(line.box.y1, other.box.y1) - max(line.box.y0, other.box.y0)
    return overlap > 0.6 * min(line.box.y1 - line.box.y0, other.box.y1 - other.box.y0)


def _zone(line: TextLine, page: PageContent) -> BlockKind | None:
    middle = (line.box.y0 + line.box.y1) / 2
    if middle < page.height * _HEADER_ZONE:
        return BlockKind.PAGE_HEADER
    if middle > page.height * _FOOTER_ZONE:
        return BlockKind.PAGE_FOOTER
    return None


def _key(line: TextLine, page: PageContent, kind: BlockKind) -> tuple[BlockKind, str, int]:
    pattern = _DIGITS.sub("#", line.text.casefold()).strip()
    if _PAGE_NUMBER.fullmatch(pattern):
        return kind, "#", 0
    height = (line.box.y0 + line.box.y1) / 2
    return kind, pattern, round(height / max(page.height, 1) * 50)
