"""Layout: lines and tables of a document's pages become blocks with roles, in reading order."""

from __future__ import annotations

import itertools
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ingest.characters import is_wide
from ingest.furniture import Furniture, find_furniture
from ingest.lines import PageContent, PlacedTable, TextLine, group_rows
from ingest.numbering import heading_level, is_list_item
from ingest.pages import PageBuilder, PlacedLine, union_of
from ingest.reading_order import in_reading_order, split_prose_columns
from ingest.table_runs import TableRuns
from ingest.turning import turn_back
from ingest.unruled import find_unruled_tables
from kb.types import Block, BlockKind, Page, TextSource

_HEADING_RATIO = 1.15
_OCR_HEADING_RATIO = 1.6
# From this ratio on, even a whole sentence is a heading.
_CERTAIN_RATIO = 1.5
_MAX_HEADING = 120
_MAX_BOLD_HEADING = 70
_MAX_LEVEL = 6
_SENTENCE_END = tuple("。．.;；!！?？:：")
_MAX_BOLD_SHARE = 0.3
# The end of a line in a table of contents.
_LEADER = re.compile(r"…\s*[\divxlc]+$", re.I)
_CAPTION = re.compile(r"(?:[表图]|table|fig(?:ure|\.)?)\s*[A-Z]?\d", re.I)


@dataclass(frozen=True, slots=True)
class Typography:
    """How a document is set: the size of its running text, and the sizes of headings, largest first."""

    body_size: float
    heading_sizes: tuple[float, ...] = ()
    bold_means_heading: bool = False


@dataclass(slots=True)
class _Open:
    """The block that further lines may still join."""

    kind: BlockKind
    lines: list[TextLine] = field(default_factory=list)
    level: int = 0


def lay_out_pages(contents: Sequence[PageContent]) -> list[Page]:
    """Return the pages of one document, in order; furniture and tables are followed across pages."""
    typography = measure_typography(contents)
    furniture = find_furniture(contents)
    runs = TableRuns()
    return [turn_back(_lay_out(content, typography, furniture, runs), content.turned) for content in contents]


def find_title(pages: Sequence[Page]) -> str | None:
    """Return the heading of the highest level on the first page that has one."""
    for page in pages[:3]:
        headings = [block for block in page.blocks if block.kind is BlockKind.HEADING]
        if headings:
            best = min(headings, key=lambda block: (block.level, -_block_size(block)))
            return page.text[best.char_start : best.char_end]
    return None


def measure_typography(contents: Sequence[PageContent]) -> Typography:
    """Return the sizes by how many characters are set in them."""
    sizes: Counter[float] = Counter()
    bold = total = 0
    for content in contents:
        for line in content.lines:
            # Letters only: the dots of a table of contents are many, and no text.
            letters = sum(char.isalnum() for char in line.text)
            sizes[_rounded(line.size)] += letters
            total += letters
            bold += letters if line.bold else 0
    if not sizes:
        return Typography(body_size=10.0)
    body = max(sizes, key=lambda size: (sizes[size], -size))
    larger = sorted({size for size in sizes if size >= body * _HEADING_RATIO}, reverse=True)
    return Typography(
        body_size=body,
        heading_sizes=tuple(larger),
        bold_means_heading=0 < bold < total * _MAX_BOLD_SHARE,
    )


def normalise_heading(text: str) -> str:
    """Return the form in which an outline entry equals the heading it points to."""
    return re.sub(r"\W+", "", unicodedata.normalize("NFKC", text)).casefold()


def _lay_out(content: PageContent, typography: Typography, furniture: Furniture, runs: TableRuns) -> Page:
    builder = PageBuilder(
        content.page_number, width=content.width, height=content.height, label=content.label
    )
    running: dict[BlockKind, list[TextLine]] = {BlockKind.PAGE_HEADER: [], BlockKind.PAGE_FOOTER: []}
    body: list[TextLine] = []
    for index, line in enumerate(content.lines):
        kind = furniture.get((content.page_number, index))
        (body if kind is None else running[kind]).append(line)
    _write_furniture(builder, BlockKind.PAGE_HEADER, running[BlockKind.PAGE_HEADER])
    unruled: list[PlacedTable] = []
    rest: list[TextLine] = []
    # Within columns only: lines of two columns that stand side by side look like a table's rows.
    for column in split_prose_columns(body):
        tables, outside = find_unruled_tables(column)
        unruled.extend(tables)
        rest.extend(outside)
    items = in_reading_order([*rest, *content.tables, *unruled])
    _BodyWriter(builder, content, typography, runs).write(items)
    _write_furniture(builder, BlockKind.PAGE_FOOTER, running[BlockKind.PAGE_FOOTER])
    return builder.build(
        source=content.source,
        undecodable=content.undecodable,
        ocr_confidence=content.ocr_confidence,
        warnings=content.warnings,
    )


def _write_furniture(builder: PageBuilder, kind: BlockKind, lines: Sequence[TextLine]) -> None:
    for row in group_rows(lines):
        merged = _merge_row(row)
        builder.add(kind, [PlacedLine(merged.text, merged.box)])


class _BodyWriter:
    """Writes the items of one page in order and keeps open what the next line may join."""

    def __init__(
        self, builder: PageBuilder, content: PageContent, typography: Typography, runs: TableRuns
    ) -> None:
        self._builder = builder
        self._content = content
        self._typography = typography
        self._runs = runs
        self._open: _Open | None = None
        self._pitch = 1.2

    def write(self, items: Sequence[TextLine | PlacedTable]) -> None:
        """Write all items of the page."""
        merged = _merge_rows(items)
        self._pitch = _usual_pitch([item for item in merged if isinstance(item, TextLine)])
        self._runs.begin_page()
        right = max((item.box.x1 for item in merged), default=0.0)
        for number, item in enumerate(merged):
            if isinstance(item, PlacedTable):
                self._close()
                self._runs.write(self._builder, item)
                continue
            following = merged[number + 1] if number + 1 < len(merged) else None
            former = merged[number - 1] if number else None
            self._write_line(item, former, following, right)
        self._close()

    def _write_line(
        self,
        line: TextLine,
        former: TextLine | PlacedTable | None,
        following: TextLine | PlacedTable | None,
        right: float,
    ) -> None:
        level = self._heading_level(line, former, following, right)
        opened = self._open
        if level:
            if (
                opened is not None
                and opened.kind is BlockKind.HEADING
                and not heading_level(line.text)
                and abs(opened.lines[-1].size - line.size) < 0.5
                and opened.lines[-1].bold == line.bold
                and 0 <= line.box.y0 - opened.lines[-1].box.y0 < 2.2 * line.size
                and len(opened.lines) < 3
                and normalise_heading(line.text) not in self._content.outline
            ):
                opened.lines.append(line)
                return
            self._close()
            self._open = _Open(BlockKind.HEADING, [line], level)
            return
        if is_list_item(line.text):
            self._close()
            self._open = _Open(BlockKind.LIST_ITEM, [line])
            return
        if opened is None or opened.kind is BlockKind.HEADING or not self._joins(opened, line):
            self._close()
            self._open = _Open(BlockKind.PARAGRAPH, [line])
            return
        opened.lines.append(line)

    def _close(self) -> None:
        if self._open is not None:
            self._runs.note_text(self._open.lines[0].text)
            lines = [PlacedLine(line.text, line.box) for line in self._open.lines]
            kind = self._open.kind
            if kind is BlockKind.HEADING and sum(len(line.text) for line in lines) > _MAX_HEADING:
                kind = BlockKind.PARAGRAPH
            self._builder.add(kind, lines, level=self._open.level)
            self._open = None

    def _heading_level(
        self,
        line: TextLine,
        former: TextLine | PlacedTable | None,
        following: TextLine | PlacedTable | None,
        right: float,
    ) -> int:
        """Return the level of the line as a heading, 0 if it is none."""
        outlined = self._content.outline.get(normalise_heading(line.text))
        if outlined:
            return min(outlined, _MAX_LEVEL)
        if _CAPTION.match(line.text) or _LEADER.search(line.text):
            return 0
        if len(line.text) > _MAX_HEADING or not any(char.isalpha() for char in line.text) or line.is_vertical:
            return 0
        numbered = heading_level(line.text)
        is_ocr = self._content.source is TextSource.OCR
        ratio = _OCR_HEADING_RATIO if is_ocr else _HEADING_RATIO
        if line.size >= self._typography.body_size * ratio:
            if numbered:
                return min(numbered, _MAX_LEVEL)
            if line.text.endswith(_SENTENCE_END) and (
                is_list_item(line.text) or line.size < self._typography.body_size * _CERTAIN_RATIO
            ):
                return 0
            sizes = self._typography.heading_sizes
            rank = next((n for n, size in enumerate(sizes) if _rounded(line.size) >= size), len(sizes))
            return min(rank + 1, _MAX_LEVEL)
        if not self._stands_alone(line, former, following, right):
            return 0
        if numbered:
            return min(numbered, _MAX_LEVEL)
        if (
            line.bold
            and self._typography.bold_means_heading
            and len(line.text) <= _MAX_BOLD_HEADING
            and not line.text.endswith(_SENTENCE_END)
            and not is_list_item(line.text)
        ):
            return min(len(self._typography.heading_sizes) + 1, _MAX_LEVEL)
        return 0

    def _stands_alone(
        self,
        line: TextLine,
        former: TextLine | PlacedTable | None,
        following: TextLine | PlacedTable | None,
        right: float,
    ) -> bool:
        """Return whether the line neither continues the one before nor runs on in the next."""
        if isinstance(former, TextLine) and self._open is not None and self._open.kind is BlockKind.PARAGRAPH:
            close = line.box.y0 - former.box.y0 < self._pitch * 1.15 * line.size
            if (
                close
                and not former.text.endswith(_SENTENCE_END)
                and former.bold == line.bold
                and former.box.x1 > right - 3 * line.size
            ):
                return False
        if not isinstance(following, TextLine):
            return True
        if following.bold != line.bold:
            return True
        return line.box.x1 < right - 4 * line.size or following.box.y0 < line.box.y0

    def _joins(self, opened: _Open, line: TextLine) -> bool:
        """Return whether the line goes on with the open paragraph or list item."""
        last = opened.lines[-1]
        size = max(last.size, line.size)
        if abs(last.size - line.size) > 0.12 * size or last.is_vertical != line.is_vertical:
            return False
        if line.is_vertical:
            return True
        if _LEADER.search(last.text):
            return False
        ended = last.text.endswith(_SENTENCE_END)
        if line.box.y0 < last.box.y0 - size:
            # The next column: only a sentence that was cut goes on there.
            return not ended and line.box.x0 > last.box.x0
        if line.box.y0 - last.box.y0 > self._pitch * 1.3 * size:
            return False
        if last.bold != line.bold and (ended or last.box.x1 < line.box.x1 - 2 * size):
            return False
        if _was_broken(last, line):
            return False
        step = line.box.y0 - last.box.y0
        if ended and step > self._pitch * 1.12 * size:
            return False
        left = min(other.box.x0 for other in opened.lines[-2:])
        indented = line.box.x0 - left > 1.2 * size
        if opened.kind is BlockKind.LIST_ITEM:
            return line.box.x0 >= opened.lines[0].box.x0 - size and not (
                ended and line.box.x0 <= opened.lines[0].box.x0 + 1
            )
        if indented and ended:
            return False
        width = max(other.box.x1 for other in opened.lines) - left
        if len(opened.lines) > 1 and ended and last.box.x1 < left + 0.75 * width:
            return False
        return line.box.x0 < last.box.x1 and line.box.x1 > last.box.x0


def _was_broken(last: TextLine, line: TextLine) -> bool:
    """Return whether the writer ended `last` on purpose: the next word would have fitted in easily."""
    room = line.box.x1 - last.box.x1
    word = line.text.split(" ", 1)[0]
    needed = line.size * (1.0 if is_wide(word[0]) else 0.6 * len(word))
    return room > needed + 3 * line.size and room > 0.25 * (line.box.x1 - line.box.x0)


def _merge_rows(items: Sequence[TextLine | PlacedTable]) -> list[TextLine | PlacedTable]:
    """Join neighbours on one baseline, such as a label and its value, to one line."""
    result: list[TextLine | PlacedTable] = []
    for item in items:
        former = result[-1] if result else None
        if (
            isinstance(item, TextLine)
            and isinstance(former, TextLine)
            and not item.is_vertical
            and item.box.x0 >= former.box.x1 - 0.3 * item.size
            and min(item.box.y1, former.box.y1) - max(item.box.y0, former.box.y0)
            > 0.5 * min(item.box.y1 - item.box.y0, former.box.y1 - former.box.y0)
        ):
            result[-1] = _merge_row([former, item])
        else:
            result.append(item)
    return result


def _merge_row(row: Sequence[TextLine]) -> TextLine:
    box = union_of([line.box for line in row])
    assert box is not None
    return TextLine(
        text=" ".join(line.text for line in row),
        box=box,
        size=max(line.size for line in row),
        bold=all(line.bold for line in row),
    )


def _usual_pitch(lines: Sequence[TextLine]) -> float:
    """Return the usual distance of baselines, in type sizes."""
    steps = [
        (line.box.y0 - former.box.y0) / line.size
        for former, line in itertools.pairwise(lines)
        if abs(line.size - former.size) < 0.5
        and 0.8 * line.size < line.box.y0 - former.box.y0 < 2.6 * line.size
    ]
    return min(max(statistics.median(steps), 1.0), 2.0) if steps else 1.3


def _rounded(size: float) -> float:
    return round(size * 2) / 2


def _block_size(block: Block) -> float:
    return 0.0 if block.box is None else block.box.y1 - block.box.y0
