"""HTML and XML: what a reader sees, with headings, lists and tables; scripts and navigation left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bs4 import BeautifulSoup
from bs4.element import NavigableString, PageElement, PreformattedString, Tag

from ingest.characters import clean_line
from ingest.encoding import decode
from ingest.formats import HTML, XML
from ingest.pages import PageBuilder
from ingest.tables import Cell, Grid, build_table, count_header_rows, lay_out, split_titles
from kb.errors import NoTextFoundError
from kb.ports import PageProgress
from kb.types import BlockKind, ParsedDocument

_DROPPED = (
    "script",
    "style",
    "noscript",
    "template",
    "svg",
    "canvas",
    "iframe",
    "object",
    "embed",
    "nav",
    "select",
    "datalist",
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_INLINE = frozenset(
    {
        "b",
        "bdo",
        "i",
        "output",
        "cite",
        "sup",
        "small",
        "q",
        "strong",
        "ruby",
        "sub",
        "u",
        "button",
        "progress",
        "input",
        "rp",
        "label",
        "acronym",
        "ins",
        "code",
        "meter",
        "strike",
        "dfn",
        "s",
        "br",
        "mark",
        "time",
        "del",
        "img",
        "em",
        "abbr",
        "samp",
        "tt",
        "kbd",
        "span",
        "nobr",
        "rt",
        "a",
        "var",
        "textarea",
        "bdi",
        "wbr",
        "big",
        "font",
        "data",
    }
)
_CHARSET = re.compile(
    rb"<meta[^>]+charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]+)|<\?xml[^>]+encoding\s*=\s*[\"']([A-Za-z0-9_:.-]+)",
    re.I,
)
_MAX_SPAN = 200
_MAX_DEPTH = 200


class HtmlParser:
    """Reads HTML and XML of any encoding; the document is one page."""

    def __init__(self, *, media_type: str = HTML) -> None:
        self._media_type = media_type

    def parse(self, path: Path, *, name: str, password: str | None, progress: PageProgress) -> ParsedDocument:
        """Raises `NoTextFoundError` when nothing is left to read."""
        del password
        data = path.read_bytes()
        text, encoding = decode(data, declared=declared_charset(data))
        soup = make_soup(text)
        title = clean_line(soup.title.get_text(" ")) if soup.title else ""
        builder = PageBuilder(1)
        writer = _Writer(builder, unknown_is_inline=self._media_type != XML)
        if title:
            heading = soup.find("h1")
            if not isinstance(heading, Tag) or clean_line(heading.get_text(" ")) != title:
                builder.add_text(BlockKind.HEADING, title, level=1)
        writer.write(soup.body or soup)
        page = builder.build()
        if not page.text:
            raise NoTextFoundError(f"{name!r} shows no text")
        progress(1, 1)
        if not title:
            title = writer.first_heading
        return ParsedDocument(
            pages=(page,), media_type=self._media_type, title=title or None, metadata={"encoding": encoding}
        )


def declared_charset(data: bytes) -> str | None:
    """Return the encoding named in a meta element or an XML declaration at the start."""
    match = _CHARSET.search(data[:4096])
    if match is None:
        return None
    return (match[1] or match[2]).decode("ascii")


def write_html(builder: PageBuilder, text: str, *, table_index: int) -> int:
    """Write what HTML shows to the page; returns the index of the next table."""
    soup = make_soup(text)
    writer = _Writer(builder, unknown_is_inline=True, table_index=table_index)
    writer.write(soup.body or soup)
    return writer.table_index


def make_soup(text: str) -> BeautifulSoup:
    """Return the tree without scripts, styles, navigation, hidden elements and comments."""
    # An encoding declaration in a decoded string would be refused or believed by lxml.
    text = re.sub(r"^\s*<\?xml[^>]*\?>", "", text.replace("\0", ""), count=1)
    soup = BeautifulSoup(text, "lxml")
    for element in soup(list(_DROPPED)):
        element.decompose()
    for element in soup(_is_hidden):
        element.decompose()
    return soup


def html_text(fragment: str) -> str:
    """Return the visible text of a piece of HTML, on one line."""
    return clean_line(make_soup(fragment).get_text(" "))


def _is_hidden(element: Tag) -> bool:
    style = str(element.get("style") or "").replace(" ", "").lower()
    return element.has_attr("hidden") or "display:none" in style or "visibility:hidden" in style


class _Writer:
    """Walks a tree once and writes a block for each stretch of running text."""

    def __init__(self, builder: PageBuilder, *, unknown_is_inline: bool, table_index: int = 0) -> None:
        self._builder = builder
        self._unknown_is_inline = unknown_is_inline
        self._inline: list[str] = []
        self._kind = BlockKind.PARAGRAPH
        self._level = 0
        self.table_index = table_index
        self.first_heading = ""

    def write(self, element: Tag) -> None:
        """Write the element's content."""
        self._walk(element, depth=0)
        self._close()

    def _walk(self, element: Tag, *, depth: int) -> None:
        if depth > _MAX_DEPTH:
            self._inline.append(element.get_text(" "))
            return
        for child in element.children:
            self._visit(child, depth=depth)

    def _visit(self, child: PageElement, *, depth: int) -> None:
        if isinstance(child, NavigableString):
            if type(child) is NavigableString or child.__class__.__name__ == "CData":
                self._inline.append(str(child).replace("\n", " "))
            return
        if not isinstance(child, Tag):
            return
        tag = child.name.lower()
        if tag == "br":
            self._inline.append("\n")
        elif tag == "img":
            self._inline.append(str(child.get("alt") or ""))
        elif tag == "pre":
            self._close()
            self._builder.add_text(BlockKind.CODE, child.get_text())
        elif tag in _HEADINGS:
            self._block(child, BlockKind.HEADING, depth=depth, level=_HEADINGS[tag])
        elif tag in ("li", "dt", "dd"):
            self._block(child, BlockKind.LIST_ITEM, depth=depth)
        elif tag == "table":
            self._table(child, depth=depth)
        elif tag in _INLINE or (self._unknown_is_inline and "-" in tag):
            self._walk(child, depth=depth + 1)
        else:
            self._block(child, self._kind, depth=depth, level=self._level)

    def _block(self, element: Tag, kind: BlockKind, *, depth: int, level: int = 0) -> None:
        self._close()
        outer = self._kind, self._level
        self._kind, self._level = kind, level
        self._walk(element, depth=depth + 1)
        self._close()
        self._kind, self._level = outer

    def _close(self) -> None:
        text = "".join(self._inline)
        self._inline.clear()
        if not text.strip():
            return
        if self._kind is BlockKind.HEADING and not self.first_heading:
            self.first_heading = clean_line(text)
        self._builder.add_text(self._kind, text, level=self._level)

    def _table(self, table: Tag, *, depth: int) -> None:
        """Write a data table as rows; a table used for layout as what stands in its cells."""
        self._close()
        if table.find("table") is not None:
            self._walk_cells(table, depth=depth)
            return
        caption = table.find("caption")
        if isinstance(caption, Tag):
            self._builder.add_text(BlockKind.PARAGRAPH, caption.get_text(" "))
        cells, header_rows = _read_cells(table)
        whole = lay_out(cells)
        if whole.width < 2:
            self._walk_cells(table, depth=depth)
            return
        titles, grid = split_titles(whole) if not header_rows else ([], whole)
        for title in titles:
            self._builder.add_text(BlockKind.PARAGRAPH, title)
        self._builder.add_table(
            build_table(grid, header_count=_header_count(grid, header_rows)), table_index=self.table_index
        )
        self.table_index += 1

    def _walk_cells(self, table: Tag, *, depth: int) -> None:
        for row in _own_rows(table):
            for cell in row.find_all(["td", "th"], recursive=False):
                self._block(cell, BlockKind.PARAGRAPH, depth=depth)


def _header_count(grid: Grid, marked: int) -> int:
    if marked:
        return min(marked, len(grid.filled) - 1)
    return count_header_rows(grid)


def _own_rows(table: Tag) -> Iterator[Tag]:
    for child in table.find_all(["tr", "thead", "tbody", "tfoot"], recursive=False):
        if child.name == "tr":
            yield child
        else:
            yield from child.find_all("tr", recursive=False)


def _read_cells(table: Tag) -> tuple[list[Cell], int]:
    """Return the cells at their places, and how many leading rows hold nothing but `th`."""
    cells: list[Cell] = []
    taken: set[tuple[int, int]] = set()
    header_rows = 0
    only_headers = True
    for row_number, row in enumerate(_own_rows(table)):
        column = 0
        members = row.find_all(["td", "th"], recursive=False)
        only_headers = only_headers and bool(members) and all(cell.name == "th" for cell in members)
        header_rows += only_headers
        for cell in members:
            while (row_number, column) in taken:
                column += 1
            row_span, column_span = _span(cell, "rowspan"), _span(cell, "colspan")
            for down in range(row_span):
                taken.update((row_number + down, column + right) for right in range(column_span))
            cells.append(Cell(row_number, column, _cell_text(cell), row_span, column_span))
            column += column_span
    height = max((cell.row for cell in cells), default=0) + 1
    return [
        Cell(c.row, c.column, c.text, min(c.row_span, height - c.row), c.column_span) for c in cells
    ], header_rows


def _cell_text(cell: Tag) -> str:
    for line_break in cell.find_all("br"):
        line_break.replace_with("\n")
    parts = [
        str(part)
        for part in cell.descendants
        if isinstance(part, NavigableString) and not isinstance(part, PreformattedString)
    ]
    return " ".join(parts) if len(parts) > 1 else "".join(parts)


def _span(cell: Tag, name: str) -> int:
    value = str(cell.get(name) or "1").strip()
    return min(max(int(value), 1), _MAX_SPAN) if value.isdecimal() else 1
