"""DOCX by walking its XML: body, tables, text boxes, lists, running headers and footers."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import docx
from docx.document import Document as WordDocument
from docx.opc.exceptions import PackageNotFoundError
from lxml import etree

from ingest.formats import DOCX, OLE_MAGIC
from ingest.numbering import heading_level
from ingest.pages import PageBuilder
from ingest.tables import Cell, build_table, count_header_rows, lay_out, split_titles
from kb.errors import DamagedFileError, NoTextFoundError, PasswordProtectedError
from kb.ports import PageProgress
from kb.types import BlockKind, Page, ParsedDocument

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_STRICT = b"http://purl.oclc.org/ooxml/wordprocessingml/main"
_STRICT_NAMESPACE = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_FORMULA_TEXT = "{http://schemas.openxmlformats.org/officeDocument/2006/math}t"
_NO_ENTITIES = etree.XMLParser(resolve_entities=False, no_network=True)
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_HEADING_STYLE = re.compile(r"(?:heading|标题|überschrift|titre)\s*([1-9])$", re.I)
# Deleted text, field codes, copies for old programs, and what is read as blocks of its own.
_UNSEEN = {f"{_W}{tag}" for tag in ("del", "moveFrom", "pPr", "instrText", "txbxContent", "p")} | {_FALLBACK}
_MAX_PART_BYTES = 256 * 1024 * 1024


class DocxParser:
    """Reads DOCX; the document is one page, as Word computes pages only when it prints."""

    def parse(self, path: Path, *, name: str, password: str | None, progress: PageProgress) -> ParsedDocument:
        """Raises `PasswordProtectedError`, `DamagedFileError` or `NoTextFoundError`."""
        del password
        data = path.read_bytes()
        if data.startswith(OLE_MAGIC):
            raise PasswordProtectedError(
                f"{name!r} is encrypted", next_step="Save a copy without a password and upload that."
            )
        try:
            document = docx.Document(io.BytesIO(_as_transitional(data) if _is_strict(data) else data))
        except (
            PackageNotFoundError,
            KeyError,
            ValueError,
            zipfile.BadZipFile,
            etree.XMLSyntaxError,
            OSError,
        ) as error:
            raise DamagedFileError(f"{name!r} cannot be opened as a Word document: {error}") from error
        writer = _Writer(document)
        page = writer.write()
        if not any(not block.kind.is_furniture for block in page.blocks):
            raise NoTextFoundError(f"{name!r} holds no text")
        progress(1, 1)
        properties = document.core_properties
        metadata = {"author": properties.author, "subject": properties.subject}
        return ParsedDocument(
            pages=(page,),
            media_type=DOCX,
            title=(properties.title or "").strip() or writer.title,
            metadata={key: value for key, value in metadata.items() if value},
        )


def _is_strict(data: bytes) -> bool:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if any(entry.file_size > _MAX_PART_BYTES for entry in archive.infolist()):
            raise ValueError("a part of the archive is larger than 256 MiB")
        with archive.open("word/document.xml") as part:
            return _STRICT in part.read(4096)


def _as_transitional(data: bytes) -> bytes:
    """Return a Strict file, which python-docx refuses, as the usual variant: only the namespaces differ."""
    usual = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(usual, "w") as copy:
        for entry in archive.infolist():
            part = archive.read(entry)
            if entry.filename.endswith((".xml", ".rels")):
                part = _STRICT_NAMESPACE.sub(rb"http://schemas.openxmlformats.org/\1/2006/", part)
            copy.writestr(entry.filename, part)
    return usual.getvalue()


class _Writer:
    """Walks the body in order; text boxes come after the paragraph they are anchored in."""

    def __init__(self, document: WordDocument) -> None:
        self._document = document
        self._builder = PageBuilder(1)
        self._levels = _style_levels(document)
        self._table_index = 0
        self.title: str | None = None

    def write(self) -> Page:
        """Return the page: headers, body, footers."""
        self._furniture(BlockKind.PAGE_HEADER)
        self._container(self._document.element.body)
        self._notes()
        self._furniture(BlockKind.PAGE_FOOTER)
        return self._builder.build()

    def _furniture(self, kind: BlockKind) -> None:
        seen: set[str] = set()
        for section in self._document.sections:
            if kind is BlockKind.PAGE_HEADER:
                parts = (section.header, section.first_page_header, section.even_page_header)
            else:
                parts = (section.footer, section.first_page_footer, section.even_page_footer)
            for part in parts:
                try:
                    if part.is_linked_to_previous:
                        continue
                    element = part._element
                except KeyError:  # the file names a header that is not in it
                    continue
                for paragraph in element.iter(f"{_W}p"):
                    text = _own_text(paragraph)
                    if text.strip() and text not in seen:
                        seen.add(text)
                        self._builder.add_text(kind, text)

    def _notes(self) -> None:
        """Write footnotes and endnotes behind the text: where they stand on paper only Word knows."""
        for relation in self._document.part.rels.values():
            if relation.is_external or not relation.reltype.endswith(("/footnotes", "/endnotes")):
                continue
            notes = etree.fromstring(relation.target_part.blob, _NO_ENTITIES)
            for note in notes:
                if note.get(f"{_W}type") in (None, "normal"):
                    self._container(note)

    def _container(self, element: etree._Element) -> None:
        for child in element:
            if child.tag == f"{_W}p":
                self._paragraph(child)
            elif child.tag == f"{_W}tbl":
                self._table(child)
            elif child.tag in (f"{_W}sdt", f"{_W}sdtContent", f"{_W}customXml", f"{_W}smartTag", f"{_W}ins"):
                self._container(child)

    def _paragraph(self, paragraph: etree._Element) -> None:
        text = _own_text(paragraph)
        if text.strip():
            level = self._level(paragraph)
            kind = BlockKind.PARAGRAPH
            if level:
                kind = BlockKind.HEADING
                self.title = self.title or " ".join(text.split())
            elif paragraph.find(f"{_W}pPr/{_W}numPr") is not None or self._style(paragraph).startswith(
                "List"
            ):
                kind = BlockKind.LIST_ITEM
            self._builder.add_text(kind, text, level=level)
        for box in _text_boxes(paragraph):
            self._container(box)

    def _style(self, paragraph: etree._Element) -> str:
        style = paragraph.find(f"{_W}pPr/{_W}pStyle")
        return "" if style is None else str(style.get(f"{_W}val", ""))

    def _level(self, paragraph: etree._Element) -> int:
        outline = paragraph.find(f"{_W}pPr/{_W}outlineLvl")
        if outline is not None and str(outline.get(f"{_W}val")).isdecimal():
            level = int(outline.get(f"{_W}val")) + 1
            return level if level <= 9 else 0
        level = self._levels.get(self._style(paragraph), 0)
        if level:
            return level
        text = _own_text(paragraph)
        return heading_level(text) if _is_bold(paragraph) else 0

    def _table(self, table: etree._Element) -> None:
        cells, marked = self._cells(table)
        grid = lay_out(cells)
        if not grid.filled:
            return
        if grid.width == 1:
            for row in grid.filled:
                self._builder.add_text(BlockKind.PARAGRAPH, row[0])
            return
        titles, grid = split_titles(grid) if marked <= 1 else ([], grid)
        for title in titles:
            self._builder.add_text(BlockKind.PARAGRAPH, title)
        header_count = max(count_header_rows(grid), min(marked - len(titles), len(grid.filled) - 1), 0)
        self._builder.add_table(build_table(grid, header_count=header_count), table_index=self._table_index)
        self._table_index += 1

    def _cells(self, table: etree._Element) -> tuple[list[Cell], int]:
        """Return the cells at their grid places, and how many leading rows are marked as header."""
        open_cells: dict[int, Cell] = {}
        cells: list[Cell] = []
        marked = 0
        only_marked = True
        for number, row in enumerate(_table_rows(table)):
            only_marked = only_marked and row.find(f"{_W}trPr/{_W}tblHeader") is not None
            marked += only_marked
            before = row.find(f"{_W}trPr/{_W}gridBefore")
            column = int(before.get(f"{_W}val", 0)) if before is not None else 0
            for cell in _row_cells(row):
                span = cell.find(f"{_W}tcPr/{_W}gridSpan")
                width = max(int(span.get(f"{_W}val", 1)), 1) if span is not None else 1
                merge = cell.find(f"{_W}tcPr/{_W}vMerge")
                above = open_cells.get(column)
                if (
                    merge is not None
                    and merge.get(f"{_W}val", "continue") == "continue"
                    and above is not None
                ):
                    open_cells[column] = Cell(
                        above.row, above.column, above.text, number - above.row + 1, above.column_span
                    )
                else:
                    if above is not None:
                        cells.append(above)
                    open_cells[column] = Cell(number, column, _cell_text(cell), 1, width)
                column += width
        return [*cells, *open_cells.values()], marked


def _style_levels(document: WordDocument) -> dict[str, int]:
    """Return the heading level by style id, from the style's name or its outline level."""
    levels: dict[str, int] = {}
    for style in document.styles.element.iter(f"{_W}style"):
        name = style.find(f"{_W}name")
        label = "" if name is None else str(name.get(f"{_W}val", ""))
        outline = style.find(f"{_W}pPr/{_W}outlineLvl")
        match = _HEADING_STYLE.match(label)
        level = 0
        if match:
            level = int(match[1])
        elif label.lower() == "title":
            level = 1
        elif outline is not None and str(outline.get(f"{_W}val")).isdecimal():
            level = int(outline.get(f"{_W}val")) + 1
        if 0 < level <= 9:
            levels[str(style.get(f"{_W}styleId"))] = level
    return levels


def _table_rows(table: etree._Element) -> Iterator[etree._Element]:
    for child in table:
        if child.tag == f"{_W}tr":
            yield child
        elif child.tag in (f"{_W}sdt", f"{_W}sdtContent", f"{_W}customXml"):
            yield from _table_rows(child)


def _row_cells(row: etree._Element) -> Iterator[etree._Element]:
    for child in row:
        if child.tag == f"{_W}tc":
            yield child
        elif child.tag in (f"{_W}sdt", f"{_W}sdtContent", f"{_W}customXml"):
            yield from _row_cells(child)


def _cell_text(cell: etree._Element) -> str:
    """Return all text in a cell, a line per paragraph; tables inside it are read along."""
    return "\n".join(filter(str.strip, (_own_text(p, with_boxes=True) for p in cell.iter(f"{_W}p"))))


def _own_text(paragraph: etree._Element, *, with_boxes: bool = False) -> str:
    """Return the paragraph's text without deleted text and, by default, without its text boxes."""
    parts: list[str] = []

    def walk(element: etree._Element) -> None:
        for child in element:
            tag = child.tag
            if tag in (f"{_W}t", _FORMULA_TEXT):
                parts.append(child.text or "")
            elif tag == f"{_W}tab":
                parts.append(" ")
            elif tag in (f"{_W}br", f"{_W}cr"):
                parts.append("\n")
            elif tag == f"{_W}noBreakHyphen":
                parts.append("-")
            elif tag not in _UNSEEN:
                walk(child)

    walk(paragraph)
    if with_boxes:
        for box in _text_boxes(paragraph):
            parts.extend("\n" + _own_text(inner) for inner in box.iter(f"{_W}p"))
    return "".join(parts)


def _text_boxes(paragraph: etree._Element) -> Iterator[etree._Element]:
    """Yield the text boxes anchored in the paragraph; the copies kept for old programs are left out."""
    for box in paragraph.iter(f"{_W}txbxContent"):
        ancestors = list(box.iterancestors())
        inside = ancestors[: ancestors.index(paragraph)]
        if not any(element.tag in (_FALLBACK, f"{_W}txbxContent") for element in inside):
            yield box


def _is_bold(paragraph: etree._Element) -> bool:
    runs = [
        run for run in paragraph.iter(f"{_W}r") if any((t.text or "").strip() for t in run.iter(f"{_W}t"))
    ]
    return bool(runs) and all(
        (bold := run.find(f"{_W}rPr/{_W}b")) is not None and bold.get(f"{_W}val", "1") not in ("0", "false")
        for run in runs
    )
