"""Plain text in any encoding: paragraphs, numbered headings, lists."""

from __future__ import annotations

from pathlib import Path

from ingest.encoding import decode
from ingest.formats import TEXT
from ingest.numbering import heading_level, is_list_item
from ingest.pages import PageBuilder, PlacedLine
from kb.errors import EmptyFileError
from kb.ports import PageProgress
from kb.types import BlockKind, Page, ParsedDocument

# Lines of hard-wrapped prose are about as long as each other; below this share of the longest
# line, a line ends its paragraph.
_FULL_LINE = 0.6
_WRAPPED_AT = (50, 120)


class TextParser:
    """Reads plain text; the document is one page."""

    def parse(self, path: Path, *, name: str, password: str | None, progress: PageProgress) -> ParsedDocument:
        """Raises `EmptyFileError` when there is nothing but white space."""
        del password
        text, encoding = decode(path.read_bytes())
        page = read_text(text)
        if not page.text:
            raise EmptyFileError(f"{name!r} holds nothing but white space")
        progress(1, 1)
        first = page.blocks[0]
        title = page.text[first.char_start : first.char_end] if first.kind is BlockKind.HEADING else None
        return ParsedDocument(pages=(page,), media_type=TEXT, title=title, metadata={"encoding": encoding})


def read_text(text: str) -> Page:
    """Return the text as one page of headings, list items and paragraphs."""
    builder = PageBuilder(1)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    wrap = _wrap_width(lines)
    paragraph: list[PlacedLine] = []
    kind = BlockKind.PARAGRAPH

    def close() -> None:
        nonlocal kind
        builder.add(kind, paragraph)
        paragraph.clear()
        kind = BlockKind.PARAGRAPH

    for number, raw in enumerate(lines):
        line = raw.strip()
        if not line:
            close()
            continue
        level = heading_level(line)
        if level and _stands_alone(lines, number):
            close()
            builder.add(BlockKind.HEADING, [PlacedLine(line)], level=level)
            continue
        if is_list_item(line):
            close()
            kind = BlockKind.LIST_ITEM
        paragraph.append(PlacedLine(line))
        if not wrap or len(line) < wrap * _FULL_LINE:
            close()
    close()
    return builder.build()


def _wrap_width(lines: list[str]) -> int:
    """Return the width at which prose was wrapped by hand, 0 when each line is its own paragraph."""
    longest = max((len(line.rstrip()) for line in lines), default=0)
    return longest if _WRAPPED_AT[0] <= longest <= _WRAPPED_AT[1] else 0


def _stands_alone(lines: list[str], number: int) -> bool:
    """Return whether a numbered line is a heading, not one of a run of numbered sentences."""
    following = next((line.strip() for line in lines[number + 1 :] if line.strip()), "")
    return bool(following) and (heading_level(lines[number]) > 1 or not is_list_item(following))
