"""PageBuilder: a page's text put together so that blocks and lines cut it exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ingest.characters import clean_line, clean_text, count_words, joint, undecodable_share
from ingest.tables import Table
from kb.types import Block, BlockKind, Box, Line, Page, PageQuality, TextSource

CELL_SEPARATOR = " | "


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """A printed line before it stands in a page's text."""

    text: str
    box: Box | None = None


@dataclass(slots=True)
class PageBuilder:
    """Collects the blocks of one page in reading order; blocks without words are left out."""

    page_number: int
    width: float | None = None
    height: float | None = None
    label: str | None = None
    _parts: list[str] = field(default_factory=list)
    _length: int = 0
    _blocks: list[Block] = field(default_factory=list)
    _lines: list[Line] = field(default_factory=list)
    _tables: set[int] = field(default_factory=set)

    def add(
        self,
        kind: BlockKind,
        lines: Sequence[PlacedLine],
        *,
        level: int = 0,
        record: Mapping[str, str] | None = None,
        table_index: int | None = None,
        box: Box | None = None,
    ) -> None:
        """Add one block whose lines run on; code keeps its line breaks."""
        if kind is BlockKind.CODE:
            clean = [PlacedLine(clean_text(line.text).rstrip(), line.box) for line in lines]
            while clean and not clean[0].text.strip():
                clean.pop(0)
            while clean and not clean[-1].text.strip():
                clean.pop()
        else:
            clean = [PlacedLine(clean_line(line.text), line.box) for line in lines]
            clean = [line for line in clean if line.text]
        if not any(line.text.strip() for line in clean):
            return
        text, placed = "", list[tuple[int, int, Box | None]]()
        for number, line in enumerate(clean):
            drop, glue = (0, "\n") if kind is BlockKind.CODE else joint(text, line.text)
            if number == 0:
                drop, glue = 0, ""
            if drop:
                text = text[:-drop]
                start, end, line_box = placed[-1]
                placed[-1] = (start, end - drop, line_box)
            text += glue
            placed.append((len(text), len(text) + len(line.text), line.box))
            text += line.text
        self._append(
            text,
            placed,
            kind=kind,
            level=level,
            record=record,
            table_index=table_index,
            box=box or union_of([line.box for line in clean]),
        )

    def add_text(self, kind: BlockKind, text: str, *, level: int = 0) -> None:
        """Add one block without places on the page."""
        lines = text.split("\n") if kind is BlockKind.CODE else [text]
        self.add(kind, [PlacedLine(line) for line in lines], level=level)

    def add_table(self, table: Table, *, table_index: int) -> None:
        """Add a block per row: the header's rows, then rows with their records."""
        for number, row in enumerate(table.shown):
            text = CELL_SEPARATOR.join(row)
            if not any(row):
                continue
            box = table.row_boxes[number] if table.row_boxes else None
            is_header = number < table.header_count
            self._append(
                text,
                [(0, len(text), box)],
                kind=BlockKind.TABLE_HEADER if is_header else BlockKind.TABLE_ROW,
                level=0,
                record=None if is_header else table.records[number - table.header_count],
                table_index=table_index,
                box=box,
            )
            self._tables.add(table_index)

    def build(
        self,
        *,
        source: TextSource = TextSource.TEXT,
        undecodable: float | None = None,
        ocr_confidence: float | None = None,
        warnings: Sequence[str] = (),
    ) -> Page:
        """Return the page; `undecodable` replaces the share counted in the text itself."""
        text = "".join(self._parts)
        return Page(
            page_number=self.page_number,
            text=text,
            source=source if text else TextSource.NONE,
            label=self.label,
            width=self.width,
            height=self.height,
            blocks=tuple(self._blocks),
            lines=tuple(self._lines),
            quality=PageQuality(
                undecodable_share=undecodable_share(text) if undecodable is None else undecodable,
                word_count=count_words(text),
                table_count=len(self._tables),
                ocr_confidence=ocr_confidence,
                warnings=tuple(warnings),
            ),
        )

    def _append(
        self,
        text: str,
        placed: Sequence[tuple[int, int, Box | None]],
        *,
        kind: BlockKind,
        level: int,
        record: Mapping[str, str] | None,
        table_index: int | None,
        box: Box | None,
    ) -> None:
        if self._parts:
            self._parts.append("\n")
            self._length += 1
        start = self._length
        self._parts.append(text)
        self._length += len(text)
        self._lines.extend(Line(start + first, start + last, line_box) for first, last, line_box in placed)
        self._blocks.append(
            Block(
                kind=kind,
                char_start=start,
                char_end=start + len(text),
                level=level if kind is BlockKind.HEADING else 0,
                box=box,
                record=record,
                table_index=table_index,
            )
        )


def union_of(boxes: Sequence[Box | None]) -> Box | None:
    """Return the smallest box around all given ones, None if there is none."""
    known = [box for box in boxes if box is not None]
    if not known:
        return None
    return Box(
        min(box.x0 for box in known),
        min(box.y0 for box in known),
        max(box.x1 for box in known),
        max(box.y1 for box in known),
    )
