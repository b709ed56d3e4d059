"""Finds the rows and sections of passages that describe faults, and reads them as fields (pure)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kb.codes import canonicalise, iter_codes
from kb.evidence import contains_code
from kb.fault_fields import (
    FaultFields,
    find_leading_code,
    is_code_row,
    is_fault_row,
    is_headed_by,
    is_same_code,
    read_row,
    read_section,
    tells_of_faults,
)
from kb.types import Box, Fault, FaultKind, Page, Passage
from kb.units import Unit, iter_spans, list_units
from kb.words import squeeze

_MOST_LINE_SECTION_CHARS = 1500
_KIND_ORDER = {FaultKind.ROW: 0, FaultKind.SECTION: 1, FaultKind.MENTION: 2}


@dataclass(frozen=True)
class FaultUnit:
    """A fault with the unit of text that holds its words, for comparison with a symptom."""

    fault: Fault
    unit: Unit


@dataclass(frozen=True, slots=True)
class _Piece:
    """A slice of a page that belongs to a section."""

    passage: Passage
    page_number: int
    char_start: int
    text: str


@dataclass(slots=True)
class _Section:
    """What stands below one heading, over all its chunks."""

    heading: str
    heading_path: tuple[str, ...]
    passages: list[Passage] = field(default_factory=list)


def list_faults_of(code: str, passages: Sequence[Passage]) -> list[Fault]:
    """Return what the passages say of the canonical code, best first.

    Rows headed by the code go before sections, and those before rows and sentences that only mention it.
    A row whose first cell is the code goes before one that has it further on, such as a work order; then
    the row or section with more of its fields, then the document that has fewer of them.
    """
    units = list_units(passages)
    rows = [unit for unit in units if unit.record is not None and is_headed_by(unit.record, code)]
    sections = [
        *_build_code_sections(code, passages, units=units),
        *_build_line_sections(code, units),
    ]
    taken = {(unit.passage.chunk.document_id, unit.page_number, unit.char_start) for unit in rows}
    mentions = [
        unit
        for unit in units
        if contains_code(unit.text, code)
        and (unit.passage.chunk.document_id, unit.page_number, unit.char_start) not in taken
        and not any(_lies_in(unit, section) for section in sections)
    ]
    faults = [
        *(build_row(unit, code=code) for unit in rows),
        *sections,
        *(_build_mention(unit, code=code) for unit in mentions),
    ]
    return _order(faults, code=code)


def list_code_rows(code: str, passages: Sequence[Passage]) -> list[Fault]:
    """Return the rows with `code`, as the user wrote it, in their column of codes; see `is_code_row`."""
    canonical = canonicalise(code)
    rows = [unit for unit in list_units(passages) if unit.record and is_code_row(unit.record, code)]
    return _order([build_row(unit, code=canonical) for unit in rows], code=canonical)


def list_fault_units(passages: Sequence[Passage]) -> list[FaultUnit]:
    """Return the rows and sections that describe a fault, each once, in the order of the passages.

    A section does when its headings tell of faults, when it begins with a code or when it labels a cause
    or a remedy.
    """
    found: dict[tuple[str, int, int], FaultUnit] = {}
    units = list_units(passages)
    for unit in units:
        if unit.record is not None and is_fault_row(unit.record):
            key = (unit.passage.chunk.document_id, unit.page_number, unit.char_start)
            found.setdefault(key, FaultUnit(build_row(unit), unit))
    for group in _group_prose(units):
        section = _build_described_section(group)
        if section is not None:
            key = (section.fault.document_id, section.fault.page_number, section.fault.char_start)
            found.setdefault(key, section)
    return list(found.values())


def build_row(unit: Unit, *, code: str = "", kind: FaultKind = FaultKind.ROW) -> Fault:
    """Return a table row as a fault; `code` is the canonical one that was asked for, if any."""
    assert unit.record is not None
    fields = read_row(unit.record, code=code)
    return _build(unit.passage, fields, kind=kind, record=unit.record, place=_get_place(unit))


def place_on_page(fault: Fault, page: Page) -> Fault:
    """Return the fault with its box on the page; a row takes all of its cells along.

    A page that does not hold the quote any more changes nothing.
    """
    start, end = fault.char_start, fault.char_end
    if page.text[start:end] != fault.quote:
        return fault
    boxes: list[Box | None] = []
    block = next((block for block in page.blocks if block.char_start <= start < block.char_end), None)
    if fault.record and block is not None and block.record is not None:
        start, end = block.char_start, max(end, block.char_end)
        boxes = [block.box]
    if not any(boxes):
        boxes = [line.box for line in page.lines if line.char_start < end and start < line.char_end]
    if not any(boxes):
        boxes = [block.box for block in page.blocks if block.char_start < end and start < block.char_end]
    return replace(
        fault,
        char_start=start,
        char_end=end,
        quote=page.text[start:end],
        box=_join_boxes([box for box in boxes if box is not None]),
    )


# -- one code
def _build_code_sections(code: str, passages: Sequence[Passage], *, units: Sequence[Unit]) -> Iterator[Fault]:
    """Yield one fault per heading that holds the code, unless a row below it is headed by the code."""
    sections: dict[tuple[str, tuple[str, ...]], _Section] = {}
    for passage in passages:
        path = passage.chunk.heading_path
        holding = [index for index, heading in enumerate(path) if contains_code(heading, code)]
        if holding:
            own = path[: holding[-1] + 1]
            key = (passage.chunk.document_id, own)
            sections.setdefault(key, _Section(own[-1], own)).passages.append(passage)
    for section in sections.values():
        section.passages.sort(key=lambda passage: passage.chunk.index)
        chunk_ids = {passage.chunk.id for passage in section.passages}
        rows = [unit for unit in units if unit.record is not None and unit.passage.chunk.id in chunk_ids]
        if not any(unit.record is not None and is_headed_by(unit.record, code) for unit in rows):
            yield _build_section(section, code=code, rows=rows)


def _build_section(section: _Section, *, code: str, rows: Sequence[Unit]) -> Fault:
    pieces = _trim_repeats(section.passages)
    bodies = [_drop_heading(piece.text, section.heading) for piece in pieces]
    fields, labelled = read_section(section.heading, "\n".join(bodies).strip("\n"), code=code)
    own_rows = [unit.record for unit in rows if unit.record and find_leading_code(unit.record) in ("", code)]
    for part in map(read_row, own_rows):
        fields = replace(
            fields,
            cause="\n".join(filter(None, dict.fromkeys((fields.cause, part.cause)))),
            remedy="\n".join(filter(None, dict.fromkeys((fields.remedy, part.remedy)))),
        )
    number = next((index for index, body in enumerate(bodies) if body.strip()), 0)
    piece = pieces[number]
    return _build(
        piece.passage,
        fields,
        kind=FaultKind.SECTION,
        record=labelled,
        place=(piece.page_number, piece.char_start, piece.text),
        heading_path=section.heading_path,
    )


def _build_line_sections(code: str, units: Sequence[Unit]) -> Iterator[Fault]:
    """Yield the paragraphs that begin a line with the code, up to the next code of the series."""
    for number, unit in enumerate(units):
        headings = (*unit.passage.chunk.heading_path, unit.heading)
        if unit.is_row or unit.head_code != code or any(contains_code(h, code) for h in headings):
            continue
        piece = _find_piece(unit)
        if not _begins_line(piece, unit):
            continue
        end = min(piece.char_start + len(piece.text), unit.char_start + _MOST_LINE_SECTION_CHARS)
        for other in units[number + 1 :]:
            if other.passage_index != unit.passage_index or other.page_number != unit.page_number:
                break
            begins_next = other.head_code is not None and _shape(other.head_code) == _shape(code)
            if other.is_row or other.heading != unit.heading or begins_next:
                end = min(end, other.char_start)
                break
        text = piece.text[unit.char_start - piece.char_start : end - piece.char_start].rstrip(" \t\n-–•●▪*·")
        fields, labelled = read_section("", text, code=code)
        yield _build(
            unit.passage,
            fields,
            kind=FaultKind.SECTION,
            record=labelled,
            place=(unit.page_number, unit.char_start, text),
        )


def _build_mention(unit: Unit, *, code: str) -> Fault:
    """Return a row with its own code, which is another one, or a sentence with the code asked for."""
    if unit.record is not None:
        return build_row(unit, kind=FaultKind.MENTION)
    written = next((m.text for m in iter_codes(unit.text) if m.canonical == code), "")
    return _build(
        unit.passage, FaultFields(code=written), kind=FaultKind.MENTION, record={}, place=_get_place(unit)
    )


def _order(faults: Iterable[Fault], *, code: str) -> list[Fault]:
    found = list(faults)
    per_document = Counter((fault.document_id, fault.kind) for fault in found)

    def key(fault: Fault) -> tuple[object, ...]:
        cells = [cell for cell in fault.record.values() if cell.strip()]
        first = fault.kind is not FaultKind.ROW or any(
            is_same_code(cell, code) or contains_code(cell, code) for cell in cells[:1]
        )
        filled = sum(map(bool, (fault.description, fault.cause, fault.remedy)))
        return (
            _KIND_ORDER[fault.kind],
            not first,
            -filled,
            per_document[fault.document_id, fault.kind],
            fault.document_name,
            fault.page_number,
            fault.char_start,
        )

    return sorted(found, key=key)


# -- any fault
def _group_prose(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    """Yield neighbouring sentences of one passage, page and heading, parted where a code begins a line."""
    group: list[Unit] = []
    for unit in units:
        last = group[-1] if group else None
        joins = (
            last is not None
            and not unit.is_row
            and (last.passage_index, last.page_number, last.heading)
            == (unit.passage_index, unit.page_number, unit.heading)
            and unit.head_code is None
        )
        if not joins:
            if group:
                yield group
            group = []
        if not unit.is_row:
            group.append(unit)
    if group:
        yield group


def _build_described_section(group: Sequence[Unit]) -> FaultUnit | None:
    first, last = group[0], group[-1]
    chunk = first.passage.chunk
    piece = _find_piece(first)
    text = piece.text[first.char_start - piece.char_start : last.char_end - piece.char_start]
    heading = first.heading or next(iter(chunk.heading_path[-1:]), "")
    fields, labelled = read_section("" if first.head_code else heading, text, code=first.head_code or "")
    told = any(map(tells_of_faults, (*chunk.heading_path, first.heading)))
    if not (told or fields.cause or fields.remedy):
        return None
    if not first.head_code and not any(True for _ in iter_codes(heading)):
        fields = replace(fields, code="")
    fault = _build(
        first.passage,
        fields,
        kind=FaultKind.SECTION,
        record=labelled,
        place=(first.page_number, first.char_start, text),
        heading_path=tuple(dict.fromkeys((*chunk.heading_path, *filter(None, (first.heading,))))),
    )
    unit = replace(first, char_end=last.char_end, text=text, heading=heading)
    return FaultUnit(fault, unit)


# -- shared
def _build(
    passage: Passage,
    fields: FaultFields,
    *,
    kind: FaultKind,
    record: Mapping[str, str],
    place: tuple[int, int, str],
    heading_path: tuple[str, ...] | None = None,
) -> Fault:
    page_number, char_start, quote = place
    return Fault(
        kind=kind,
        code=fields.code,
        description=fields.description,
        cause=fields.cause,
        remedy=fields.remedy,
        record=record,
        document_id=passage.chunk.document_id,
        document_name=passage.document_name,
        page_number=page_number,
        quote=quote,
        char_start=char_start,
        char_end=char_start + len(quote),
        chunk_id=passage.chunk.id,
        heading_path=passage.chunk.heading_path if heading_path is None else heading_path,
    )


def _get_place(unit: Unit) -> tuple[int, int, str]:
    return unit.page_number, unit.char_start, unit.text


def _lies_in(unit: Unit, section: Fault) -> bool:
    return (unit.passage.chunk.document_id, unit.page_number) == (
        section.document_id,
        section.page_number,
    ) and section.char_start <= unit.char_start < section.char_end


def _iter_pieces(passage: Passage) -> Iterator[_Piece]:
    for span, text in iter_spans(passage):
        yield _Piece(passage, span.page_number, span.char_start, text)


def _trim_repeats(passages: Sequence[Passage]) -> list[_Piece]:
    """Return the slices of the passages in order, without what an earlier one ended with."""
    done: dict[int, int] = {}
    pieces: list[_Piece] = []
    for passage in passages:
        for piece in _iter_pieces(passage):
            start = max(piece.char_start, done.get(piece.page_number, 0))
            text = piece.text[start - piece.char_start :]
            if text.strip():
                pieces.append(_Piece(passage, piece.page_number, start, text))
            done[piece.page_number] = max(start, piece.char_start + len(piece.text))
    return pieces


def _find_piece(unit: Unit) -> _Piece:
    """Return the slice of the page that the unit lies in."""
    return next(
        piece
        for piece in _iter_pieces(unit.passage)
        if piece.page_number == unit.page_number
        and piece.char_start <= unit.char_start < piece.char_start + len(piece.text)
    )


def _begins_line(piece: _Piece, unit: Unit) -> bool:
    before = piece.text[: unit.char_start - piece.char_start]
    return not before.rpartition("\n")[2].strip(" \t-–•●▪*·")


def _drop_heading(text: str, heading: str) -> str:
    first, _, rest = text.lstrip("\n").partition("\n")
    return rest if squeeze(first) == squeeze(heading) else text


def _shape(code: str) -> str:
    """Return the letters of a code: equal for codes of one series."""
    return re.sub(r"\d+", "0", code)


def _join_boxes(boxes: Sequence[Box]) -> Box | None:
    if not boxes:
        return None
    return Box(
        min(box.x0 for box in boxes),
        min(box.y0 for box in boxes),
        max(box.x1 for box in boxes),
        max(box.y1 for box in boxes),
    )
