"""Pages to chunks: pieces that follow the document's own structure and fit the embedder.

A heading starts a new chunk, unless it and its neighbours are tiny. Prose is packed by whole
sentences with an overlap, table rows whole and few at a time, so that a fault code is found by
its own row. Everything is a slice of the stored page text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ingest.sentences import fit_prose, fit_row, split_lines, split_paragraphs, split_sentences
from kb.language import detect_language
from kb.types import Block, BlockKind, Chunk, Page, ParsedDocument, Span

CHUNKER_VERSION = "1"

CountTokens = Callable[[str], int]

MAX_ROWS = 5
"""Most table rows of a chunk: more would bury the one that was asked for."""

_SEPARATOR = " > "
_TABLE_KINDS = (BlockKind.TABLE_HEADER, BlockKind.TABLE_ROW)


@dataclass(frozen=True, slots=True)
class _Unit:
    """The least piece that is never cut: a sentence, a heading, a table row or a part of these."""

    page: Page
    char_start: int
    char_end: int
    tokens: int
    kind: BlockKind
    record: Mapping[str, str] | None = None

    @property
    def text(self) -> str:
        return self.page.text[self.char_start : self.char_end]


@dataclass(slots=True)
class _Section:
    """Blocks in a row under the same heading path."""

    path: tuple[str, ...]
    blocks: list[tuple[Page, Block]] = field(default_factory=list)
    tokens: int = 0

    @property
    def has_table(self) -> bool:
        return any(block.kind in _TABLE_KINDS for _, block in self.blocks)

    @property
    def has_body(self) -> bool:
        return any(block.kind is not BlockKind.HEADING for _, block in self.blocks)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A chunk before its context is fitted and its spans are joined."""

    path: tuple[str, ...]
    header: str
    units: tuple[_Unit, ...]


class Chunker:
    """Cuts parsed documents into chunks; keeps no state between calls."""

    def __init__(self, *, count_tokens: CountTokens, max_tokens: int, overlap_tokens: int) -> None:
        """Chunks never exceed `max_tokens`, context included; see `kb.ports.Embedder.count_tokens`."""
        if max_tokens < 8:
            raise ValueError(f"max_tokens must be at least 8, not {max_tokens!r}")
        self._count = count_tokens
        self._max = max_tokens
        self._context_max = max_tokens // 4
        self._overlap = max(0, min(overlap_tokens, max_tokens // 2))

    def chunk(self, parsed: ParsedDocument, *, document_id: str, generation: int) -> list[Chunk]:
        """Return the chunks in the order of the text; the same input gives the same chunks."""
        chunks: list[Chunk] = []
        for section in self._merge_tiny(self._split_sections(parsed.pages)):
            for draft in self._pack(section):
                last = chunks[-1].spans[-1] if chunks else None
                chunks.extend(
                    self._finish(draft, document_id, generation, first_index=len(chunks), last=last)
                )
        return chunks

    # -- sections
    def _split_sections(self, pages: Sequence[Page]) -> list[_Section]:
        sections: list[_Section] = []
        headings: list[tuple[int, str]] = []
        for page in pages:
            for block in _iter_blocks(page):
                if block.kind.is_furniture:
                    continue
                text = page.text[block.char_start : block.char_end]
                if block.kind is BlockKind.HEADING:
                    level = max(1, block.level)
                    headings = [(lv, title) for lv, title in headings if lv < level]
                    headings.append((level, " ".join(text.split())))
                    path = tuple(title for _, title in headings)
                    if sections and not sections[-1].has_body and path[:-1] == sections[-1].path:
                        sections[-1].path = path  # a heading right below a heading: one start
                    else:
                        sections.append(_Section(path))
                elif not sections:
                    sections.append(_Section(()))
                sections[-1].blocks.append((page, block))
        return sections

    def _merge_tiny(self, sections: list[_Section]) -> list[_Section]:
        """Join neighbours that are tiny and of the same parent, so that none stands alone for a line."""
        tiny, room = self._max // 4, self._max // 2
        merged: list[_Section] = []
        for section in sections:
            section.tokens = self._estimate(section, enough=tiny)
            last = merged[-1] if merged else None
            if (
                last is not None
                and section.tokens <= tiny
                and last.tokens + section.tokens <= room
                and not (last.has_table or section.has_table)
                and (parent := _common_parent(last.path, section.path)) is not None
            ):
                last.path = parent
                last.blocks.extend(section.blocks)
                last.tokens += section.tokens
            else:
                merged.append(section)
        return merged

    def _estimate(self, section: _Section, *, enough: int) -> int:
        """Return the tokens of a section; beyond `enough` any larger number will do."""
        characters = sum(block.char_end - block.char_start for _, block in section.blocks)
        if characters > enough * 16:
            return self._max
        return sum(self._count(page.text[b.char_start : b.char_end]) for page, b in section.blocks)

    # -- packing
    def _pack(self, section: _Section) -> Iterator[_Draft]:
        path = section.path
        context_tokens = self._count(self._fit_context(path, ""))
        prose: list[_Unit] = []
        blocks = section.blocks
        at = 0
        while at < len(blocks):
            page, block = blocks[at]
            if block.kind not in _TABLE_KINDS:
                prose.extend(self._split_block(page, block, limit=self._max - context_tokens - 2))
                at += 1
                continue
            end = at
            while end < len(blocks) and _same_table(blocks[end][1], block):
                end += 1
            lead: list[_Unit] = []
            if sum(unit.tokens for unit in prose) <= self._max // 8:
                lead, prose = prose, []  # a heading or a caption belongs to its table
            yield from self._pack_prose(path, prose, context_tokens)
            prose = []
            yield from self._pack_table(path, lead, blocks[at:end])
            at = end
        yield from self._pack_prose(path, prose, context_tokens)

    def _split_block(self, page: Page, block: Block, *, limit: int) -> Iterator[_Unit]:
        start, end = block.char_start, block.char_end
        split = split_lines if block.kind is BlockKind.CODE else split_sentences
        for sentence in split(page.text, start, end):
            for (part_start, part_end), tokens in fit_prose(
                page.text, sentence, limit=limit, count_tokens=self._count
            ):
                yield _Unit(page, part_start, part_end, tokens, block.kind)

    def _pack_prose(self, path: tuple[str, ...], units: list[_Unit], context_tokens: int) -> Iterator[_Draft]:
        budget = self._max - context_tokens - 1
        held: list[_Unit] = []
        total = 0
        for unit in units:
            cost = unit.tokens + self._joint(held[-1], unit) if held else unit.tokens
            if held and total + cost > budget:
                yield _Draft(path, "", tuple(held))
                held = self._tail(held, room=budget - unit.tokens)
                total = sum(other.tokens + 1 for other in held)
                cost = unit.tokens
            held.append(unit)
            total += cost
        if held:
            yield _Draft(path, "", tuple(held))

    def _joint(self, before: _Unit, after: _Unit) -> int:
        """Return the tokens between two units: more than one only where much white space is kept."""
        if before.page is not after.page or after.char_start - before.char_end <= 2:
            return 1
        gap = before.page.text[before.char_end : after.char_start]
        return max(1, self._count(gap)) if gap.isspace() else 1

    def _tail(self, units: list[_Unit], *, room: int) -> list[_Unit]:
        """Return the last whole sentences that are repeated in the next chunk, never all of them."""
        limit = min(self._overlap, room)
        tail: list[_Unit] = []
        total = 0
        for unit in reversed(units[1:]):
            total += unit.tokens + 1
            if total > limit or unit.kind is BlockKind.HEADING:
                break
            tail.insert(0, unit)
        return tail

    def _pack_table(
        self, path: tuple[str, ...], lead: list[_Unit], blocks: list[tuple[Page, Block]]
    ) -> Iterator[_Draft]:
        header = _header_line(blocks)
        limit = self._max - self._count(self._fit_context(path, header)) - 2
        room = max(1, min(limit, self._max // 2))
        held = list(lead)
        total = sum(unit.tokens + 1 for unit in held)
        rows = 0
        for page, block in blocks:
            parts = fit_row(
                page.text, (block.char_start, block.char_end), limit=limit, count_tokens=self._count
            )
            for (start, end), tokens in parts:
                is_row = block.kind is BlockKind.TABLE_ROW
                if held and (rows + is_row > MAX_ROWS or total + tokens > (room if rows else limit)):
                    yield _Draft(path, header, tuple(held))
                    held, total, rows = [], 0, 0
                held.append(_Unit(page, start, end, tokens, block.kind, block.record))
                total += tokens + 1
                rows += is_row
        if held:
            yield _Draft(path, header, tuple(held))

    # -- finishing
    def _finish(
        self, draft: _Draft, document_id: str, generation: int, *, first_index: int, last: Span | None
    ) -> Iterator[Chunk]:
        """Yield the draft as a chunk; as several in the rare case that joining cost too much.

        `last` is the slice that the chunk before ends with: nothing is yielded that stands in it already.
        """
        waiting = [draft]
        index = first_index
        while waiting:
            draft = waiting.pop(0)
            spans = _join_spans(draft.units)
            pages = {unit.page.page_number: unit.page for unit in draft.units}
            text = "\n".join(pages[s.page_number].text[s.char_start : s.char_end] for s in spans)
            context = self._fit_context(draft.path, draft.header)
            tokens = self._count(f"{context}\n{text}" if context else text)
            if tokens > self._max and len(draft.units) > 1:
                middle = len(draft.units) // 2
                waiting[:0] = [
                    _Draft(draft.path, draft.header, draft.units[:middle]),
                    _Draft(draft.path, draft.header, draft.units[middle:]),
                ]
                continue
            if last and _ends_within(spans[-1], last):
                continue
            last = spans[-1]
            if tokens > self._max:
                context, tokens = "", self._count(text)
            yield Chunk(
                id=f"{document_id}-g{generation}-{index:05d}",
                document_id=document_id,
                generation=generation,
                index=index,
                text=text,
                spans=spans,
                context=context,
                heading_path=draft.path,
                records=_records(draft.units),
                language=detect_language(text),
                token_count=tokens,
            )
            index += 1

    def _fit_context(self, path: tuple[str, ...], header: str) -> str:
        """Return heading path and table header within their share of the budget.

        The outermost headings go first; a header that is too long by itself loses its last columns.
        """
        kept = list(path)
        while True:
            context = "\n".join(part for part in (_SEPARATOR.join(kept), header) if part)
            if not context or self._count(context) <= self._context_max:
                return context
            if len(kept) > 1 or (kept and header):
                kept.pop(0)
                continue
            parts = fit_row(context, (0, len(context)), limit=self._context_max, count_tokens=self._count)
            (start, end), tokens = parts[0]
            return context[start:end] if tokens <= self._context_max else ""


def _iter_blocks(page: Page) -> Iterator[Block]:
    """Yield the page's blocks by position; text outside any block counts as paragraphs."""
    if not page.blocks:
        yield from _iter_paragraphs(page.text, 0, len(page.text))
        return
    at = 0
    for block in sorted(page.blocks, key=lambda block: block.char_start):
        yield from _iter_paragraphs(page.text, at, block.char_start)
        yield block
        at = max(at, block.char_end)
    yield from _iter_paragraphs(page.text, at, len(page.text))


def _iter_paragraphs(text: str, start: int, end: int) -> Iterator[Block]:
    for first, last in split_paragraphs(text, start, end):
        yield Block(BlockKind.PARAGRAPH, first, last)


def _common_parent(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the path both sections share if they are siblings, or parent and child, else None."""
    if not second:
        return None
    parent = second[:-1]
    return parent if first in (parent, second) or first[:-1] == parent else None


def _same_table(block: Block, first: Block) -> bool:
    return block.kind in _TABLE_KINDS and block.table_index == first.table_index


def _header_line(blocks: list[tuple[Page, Block]]) -> str:
    """Return the header rows of a table, each once, or the column names if it has no header row."""
    lines: list[str] = []
    for page, block in blocks:
        if block.kind is BlockKind.TABLE_HEADER:
            line = " ".join(page.text[block.char_start : block.char_end].split())
            if line and line not in lines:
                lines.append(line)
    if lines:
        return "\n".join(lines)
    records = [block.record for _, block in blocks if block.record]
    return " | ".join(name for name in records[0] if name.strip()) if records else ""


def _join_spans(units: Sequence[_Unit]) -> tuple[Span, ...]:
    """Return the slices of the units; neighbours parted by nothing but white space are one slice."""
    spans: list[Span] = []
    for unit in units:
        last = spans[-1] if spans else None
        if last and last.page_number == unit.page.page_number:
            gap = unit.page.text[last.char_end : unit.char_start]
            if not gap.strip():
                spans[-1] = Span(last.page_number, last.char_start, unit.char_end)
                continue
        spans.append(Span(unit.page.page_number, unit.char_start, unit.char_end))
    return tuple(spans)


def _ends_within(span: Span, last: Span) -> bool:
    """Return whether `span`, of a later chunk, ends no later than `last`: it repeats what stands there."""
    return span.page_number == last.page_number and span.char_end <= last.char_end


def _records(units: Sequence[_Unit]) -> tuple[Mapping[str, str], ...]:
    """Return the rows that stand in the units; a row in several parts counts once."""
    records: list[Mapping[str, str]] = []
    for unit in units:
        if unit.record is not None and not any(unit.record is known for known in records):
            records.append(unit.record)
    return tuple(records)
