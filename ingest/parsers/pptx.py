"""PPTX by python-pptx: one page per slide, shapes from top to bottom, notes at the end."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lxml import etree
from pptx import Presentation
from pptx.exc import PackageNotFoundError

from ingest.formats import OLE_MAGIC, PPTX
from ingest.pages import PageBuilder
from ingest.tables import Cell, build_table, count_header_rows, lay_out
from kb.errors import DamagedFileError, NoTextFoundError, PasswordProtectedError, TooManyPagesError
from kb.ports import PageProgress
from kb.types import BlockKind, Page, ParsedDocument

_EMU_PER_POINT = 12700
_MAX_NESTING = 20


class PptxParser:
    """Reads PPTX; slide n is page n."""

    def __init__(self, *, max_pages: int) -> None:
        self._max_pages = max_pages

    def parse(self, path: Path, *, name: str, password: str | None, progress: PageProgress) -> ParsedDocument:
        """Raises `PasswordProtectedError`, `DamagedFileError`, `NoTextFoundError` or `TooManyPagesError`."""
        del password
        with path.open("rb") as file:
            if file.read(len(OLE_MAGIC)) == OLE_MAGIC:
                raise PasswordProtectedError(
                    f"{name!r} is encrypted", next_step="Save a copy without a password and upload that."
                )
        try:
            presentation = Presentation(str(path))
            slides = list(presentation.slides)
        except (
            PackageNotFoundError,
            KeyError,
            ValueError,
            zipfile.BadZipFile,
            etree.XMLSyntaxError,
        ) as error:
            raise DamagedFileError(f"{name!r} cannot be opened as a presentation: {error}") from error
        if len(slides) > self._max_pages:
            raise TooManyPagesError(f"{name!r} has {len(slides)} slides, the limit is {self._max_pages}")
        size = presentation.slide_width / _EMU_PER_POINT, presentation.slide_height / _EMU_PER_POINT
        pages: list[Page] = []
        title: str | None = None
        table_index = 0
        for number, slide in enumerate(slides, start=1):
            builder = PageBuilder(number, width=size[0], height=size[1])
            heading = slide.shapes.title
            for shape in _in_reading_order(slide.shapes):
                if getattr(shape, "has_table", False) and shape.has_table:
                    table_index = _write_table(builder, shape.table, table_index)
                elif shape.has_text_frame:
                    is_title = heading is not None and shape.shape_id == heading.shape_id
                    _write_text(builder, shape, is_title=is_title)
                    if is_title and title is None:
                        title = " ".join(shape.text_frame.text.split()) or None
            if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
                for line in slide.notes_slide.notes_text_frame.text.split("\n"):
                    builder.add_text(BlockKind.PARAGRAPH, line)
            pages.append(builder.build())
            progress(number, len(slides))
        if not any(page.text for page in pages):
            raise NoTextFoundError(f"{name!r} has no slide with text")
        return ParsedDocument(
            pages=tuple(pages), media_type=PPTX, title=presentation.core_properties.title or title
        )


def _in_reading_order(shapes: Iterable[Any]) -> list[Any]:
    """Return the shapes, groups opened, by their top edge then their left one."""
    return sorted(_open_groups(shapes, 0), key=lambda shape: (shape.top or 0, shape.left or 0))


def _open_groups(shapes: Iterable[Any], depth: int) -> Iterator[Any]:
    for shape in shapes:
        inner = getattr(shape, "shapes", None)
        if inner is not None and depth < _MAX_NESTING:
            yield from _open_groups(inner, depth + 1)
        elif inner is None:
            yield shape


def _write_text(builder: PageBuilder, shape: Any, *, is_title: bool) -> None:
    paragraphs = [paragraph.text for paragraph in shape.text_frame.paragraphs if paragraph.text.strip()]
    if is_title:
        builder.add_text(BlockKind.HEADING, "\n".join(paragraphs), level=1)
        return
    kind = BlockKind.LIST_ITEM if len(paragraphs) > 1 else BlockKind.PARAGRAPH
    for text in paragraphs:
        builder.add_text(kind, text)


def _write_table(builder: PageBuilder, table: Any, table_index: int) -> int:
    cells = []
    for row_number, row in enumerate(table.rows):
        for column, cell in enumerate(row.cells):
            if not cell.is_spanned:
                height = cell.span_height if cell.is_merge_origin else 1
                width = cell.span_width if cell.is_merge_origin else 1
                cells.append(Cell(row_number, column, cell.text, height, width))
    grid = lay_out(cells)
    if not grid.filled:
        return table_index
    builder.add_table(build_table(grid, header_count=count_header_rows(grid)), table_index=table_index)
    return table_index + 1
