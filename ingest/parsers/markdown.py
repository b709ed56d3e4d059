"""Markdown by markdown-it: headings, lists, tables and code keep their roles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ingest.encoding import decode
from ingest.formats import MARKDOWN
from ingest.pages import PageBuilder, PlacedLine
from ingest.parsers.html import html_text
from ingest.tables import Cell, build_table, lay_out
from kb.errors import EmptyFileError
from kb.ports import PageProgress
from kb.types import BlockKind, ParsedDocument

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.S)
_FRONT_TITLE = re.compile(r"^title:[ \t]*[\"']?(.+?)[\"']?[ \t]*$", re.M)


class MarkdownParser:
    """Reads CommonMark with tables; the document is one page."""

    def parse(self, path: Path, *, name: str, password: str | None, progress: PageProgress) -> ParsedDocument:
        """Raises `EmptyFileError` when there is no text."""
        del password
        text, encoding = decode(path.read_bytes())
        text = text.replace("\r\n", "\n").replace("\0", "")
        title = None
        front = _FRONT_MATTER.match(text)
        if front:
            named = _FRONT_TITLE.search(front[1])
            title = named[1] if named else None
            text = text[front.end() :]
        builder = PageBuilder(1)
        first_heading = _write(MarkdownIt("commonmark").enable("table").parse(text), builder)
        page = builder.build()
        if not page.text:
            raise EmptyFileError(f"{name!r} holds no text")
        progress(1, 1)
        return ParsedDocument(
            pages=(page,),
            media_type=MARKDOWN,
            title=title or first_heading,
            metadata={"encoding": encoding},
        )


def _write(tokens: Sequence[Token], builder: PageBuilder) -> str | None:
    """Write the blocks and return the text of the first heading."""
    first_heading: str | None = None
    in_item = 0
    level = 0
    table_index = 0
    cells: list[Cell] | None = None
    row = column = header_rows = 0
    for token in tokens:
        match token.type:
            case "heading_open":
                level = int(token.tag[1:])
            case "heading_close":
                level = 0
            case "list_item_open":
                in_item += 1
            case "list_item_close":
                in_item -= 1
            case "table_open":
                cells, row, header_rows = [], 0, 0
            case "thead_close":
                header_rows = row
            case "tr_open":
                column = 0
            case "tr_close":
                row += 1
            case "td_close" | "th_close":
                column += 1
            case "table_close":
                grid = lay_out(cells or [])
                if grid.filled:
                    builder.add_table(
                        build_table(grid, header_count=min(header_rows, len(grid.filled))),
                        table_index=table_index,
                    )
                    table_index += 1
                cells = None
            case "fence" | "code_block":
                builder.add(BlockKind.CODE, [PlacedLine(line) for line in token.content.split("\n")])
            case "html_block":
                builder.add_text(BlockKind.PARAGRAPH, html_text(token.content))
            case "inline" if cells is not None:
                cells.append(Cell(row, column, _inline_text(token)))
            case "inline":
                text = _inline_text(token)
                if level:
                    first_heading = first_heading or text
                    builder.add_text(BlockKind.HEADING, text, level=level)
                else:
                    kind = BlockKind.LIST_ITEM if in_item else BlockKind.PARAGRAPH
                    builder.add(kind, [PlacedLine(line) for line in text.split("\n")])
            case _:
                pass
    return first_heading


def _inline_text(token: Token) -> str:
    """Return what a reader sees: no marks, an image's description, line breaks kept."""
    parts: list[str] = []
    for child in token.children or []:
        match child.type:
            case "text" | "code_inline":
                parts.append(child.content)
            case "softbreak" | "hardbreak":
                parts.append("\n")
            case "image":
                parts.append(child.content)
            case "html_inline" if child.content.lower().startswith("<br"):
                parts.append("\n")
            case _:
                pass
    return "".join(parts)
