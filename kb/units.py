"""Units of a passage: the least pieces that can answer or be quoted, a table row or a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kb.codes import iter_codes
from kb.evidence import contains_code, is_numbered
from kb.facts import iter_numbers
from kb.language import detect_language
from kb.sentences import iter_passage_sentences
from kb.synonyms import get_groups
from kb.types import Passage, Span
from kb.words import fold, get_all_terms, squeeze

_MOST_QUOTE_CHARS = 400
_MOST_SENTENCES = 3
_MOST_HEADING_CHARS = 60
_MOST_HEADER_CELL_CHARS = 16
_END = "。！？；!?;，,、"
_NUMBERED_HEADING = re.compile(
    r"(?:\d{1,2}(?:\.\d{1,2}){1,4}\.?|\d{1,2})\s+[^\W\d_].*|第\s?\S{1,4}\s?[章节篇部](?:\s.*)?"
)
_CAPTION = re.compile(r"(?:表|图|table|figure|fig\.)\s?\d+(?:[-.]\d+)*\b.*", re.IGNORECASE)
_CONTENTS_LINE = re.compile(r".*(?:…|\.{3}|(?:\. ){3}|·{3})\s*\d+\s*")
_LEAD_IN = re.compile(r"[:：]\s*$")


@dataclass(frozen=True)
class Unit:
    """A table row or a sentence: a slice of one page, with what stands above it.

    `heading` is the nearest heading inside the chunk, empty if there is none.
    """

    passage: Passage
    passage_index: int
    page_number: int
    char_start: int
    char_end: int
    text: str
    heading: str = ""
    record: Mapping[str, str] | None = None

    @property
    def is_row(self) -> bool:
        """True for a table row."""
        return self.record is not None

    @cached_property
    def scope(self) -> str:
        """What holds for the unit without standing in it: document, headings, the table's header."""
        columns = " | ".join(self.record) if self.record else ""
        return "\n".join((self.passage.document_name, self.passage.chunk.context, self.heading, columns))

    @cached_property
    def terms(self) -> frozenset[str]:
        """Every word of the unit itself."""
        return get_all_terms(self.text)

    @cached_property
    def synonyms(self) -> frozenset[str]:
        """The groups of synonyms of which it holds a word."""
        return get_groups(self.text)

    @cached_property
    def scope_terms(self) -> frozenset[str]:
        """Every word of its scope."""
        return get_all_terms(self.scope)

    @cached_property
    def codes(self) -> frozenset[str]:
        """The codes that stand in it."""
        return frozenset(mention.canonical for mention in iter_codes(self.text))

    @cached_property
    def units_of_number(self) -> frozenset[str]:
        """The units of measure that its numbers have."""
        return frozenset(number.unit for number in iter_numbers(self.text) if number.unit)

    @cached_property
    def head_code(self) -> str | None:
        """The code that the unit is about because it begins with it."""
        first = next(iter_codes(self.text.lstrip("-–•●▪*· ")), None)
        return first.canonical if first is not None and first.char_start == 0 else None

    @cached_property
    def language(self) -> str:
        """The language of its words."""
        return detect_language(f"{self.text}\n{self.scope}" if self.is_row else self.text)

    def is_under(self, code: str) -> bool:
        """Return whether the canonical code stands in the row, or in the passage of the sentence."""
        text = self.text if self.is_row else self.passage.chunk.text
        return self.defines(code) or contains_code(f"{self.scope}\n{text}", code)

    def defines(self, code: str) -> bool:
        """Return whether the unit is about the canonical code: by its head, a cell or its heading."""
        if self.record is not None:
            return any(
                squeeze(cell).upper() == code or is_numbered(code, column, cell)
                for column, cell in self.record.items()
            )
        title = self.heading or next(iter(self.passage.chunk.heading_path[-1:]), "")
        return self.head_code == code or contains_code(title, code)


def list_units(passages: Sequence[Passage]) -> list[Unit]:
    """Return the units of all passages in order; headings, captions and table headers are none."""
    return [unit for index, passage in enumerate(passages) for unit in _iter_units(passage, index)]


def list_windows(units: Sequence[Unit]) -> list[tuple[Unit, ...]]:
    """Return every quote: a unit, or up to three neighbouring sentences below one heading."""
    windows: list[tuple[Unit, ...]] = []
    for size in range(1, _MOST_SENTENCES + 1):
        for first in range(len(units) - size + 1):
            window = tuple(units[first : first + size])
            if size == 1 or _touch(window):
                windows.append(window)
    return windows


def slice_window(window: Sequence[Unit]) -> str:
    """Return the text of the page from the window's first unit to its last."""
    first, last = window[0], window[-1]
    if len(window) == 1:
        return first.text
    for span, text in iter_spans(first.passage):
        if span.page_number == first.page_number and span.char_start <= first.char_start < span.char_end:
            return text[first.char_start - span.char_start : last.char_end - span.char_start]
    raise AssertionError("a unit lies inside a span of its chunk")


def _touch(window: Sequence[Unit]) -> bool:
    first, last = window[0], window[-1]
    if any(unit.is_row for unit in window) or last.char_end - first.char_start > _MOST_QUOTE_CHARS:
        return False
    if any(unit.heading != first.heading or unit.passage is not first.passage for unit in window):
        return False
    return any(
        span.page_number == first.page_number == last.page_number
        and span.char_start <= first.char_start
        and last.char_end <= span.char_end
        for span in first.passage.chunk.spans
    )


def _iter_units(passage: Passage, index: int) -> Iterator[Unit]:
    chunk = passage.chunk
    titles = {squeeze(part) for line in chunk.context.splitlines() for part in (line, *line.split(" > "))}
    titles |= {squeeze(heading) for heading in chunk.heading_path}
    titles |= {squeeze("".join(record)) for record in chunk.records}
    records = list(chunk.records)
    heading = ""
    for span, text in iter_spans(passage):
        for start, end, record in _iter_rows(text, records):
            piece = text[start:end]
            if record is None:
                for at, stop, is_title in _iter_prose(piece, titles):
                    sentence = piece[at:stop]
                    if is_title:
                        heading = (
                            sentence.strip() if _NUMBERED_HEADING.fullmatch(sentence.strip()) else heading
                        )
                    elif sentence.strip() and not _LEAD_IN.search(sentence):
                        yield _make_unit(passage, index, span, start + at, sentence, heading=heading)
            else:
                yield _make_unit(passage, index, span, start, piece, heading=heading, record=record)


def _make_unit(
    passage: Passage,
    index: int,
    span: Span,
    start: int,
    piece: str,
    *,
    heading: str,
    record: Mapping[str, str] | None = None,
) -> Unit:
    left = span.char_start + start + len(piece) - len(piece.lstrip())
    text = piece.strip()
    return Unit(passage, index, span.page_number, left, left + len(text), text, heading, record)


def iter_spans(passage: Passage) -> Iterator[tuple[Span, str]]:
    """Yield each span with its text; the chunk's text is the spans joined by newlines."""
    offset = 0
    for span in passage.chunk.spans:
        length = span.char_end - span.char_start
        yield span, passage.chunk.text[offset : offset + length]
        offset += length + 1


def _iter_rows(
    text: str, records: list[Mapping[str, str]]
) -> Iterator[tuple[int, int, Mapping[str, str] | None]]:
    """Yield half-open places of the rows, with their records, and of what lies between them.

    `records` are those that no earlier text held; found ones are taken off.
    """
    starts: list[tuple[int, Mapping[str, str]]] = []
    place = 0
    while records:
        start = _find_row(text, records[0], place)
        if start is None:
            if starts or not any(_find_row(text, record, place) is not None for record in records):
                break
            records.pop(0)
            continue
        starts.append((start, records.pop(0)))
        place = text.find("\n", start) + 1 or len(text)
    done = 0
    for number, (start, record) in enumerate(starts):
        limit = starts[number + 1][0] if number + 1 < len(starts) else len(text)
        end = _find_row_end(text, record, start, limit)
        if done < start:
            yield done, start, None
        yield start, end, record
        done = end
    if done < len(text):
        yield done, len(text), None


def _find_row(text: str, record: Mapping[str, str], place: int) -> int | None:
    """Return where a line begins with the row's first cell, and the next words are its second."""
    cells = [" ".join(cell.split()) for cell in record.values() if cell.strip()]
    if not cells:
        return None
    first = next(iter(next(cell for cell in record.values() if cell.strip()).strip().splitlines()))
    while place <= len(text):
        found = text.find(first, place)
        if found < 0:
            return None
        line = text.rfind("\n", 0, found) + 1
        if not any(map(str.isalnum, text[line:found])):
            return line
        place = found + len(first)
    return None


def _find_row_end(text: str, record: Mapping[str, str], start: int, limit: int) -> int:
    """Return the end of the line that holds the last of the row's cells."""
    last = start
    for cell in record.values():
        for line in cell.strip().splitlines():
            found = text.find(line, last, limit)
            if found >= 0:
                last = found + len(line)
    end = text.find("\n", last, limit)
    return limit if end < 0 else end + 1


def _iter_prose(text: str, titles: set[str]) -> Iterator[tuple[int, int, bool]]:
    """Yield half-open places of titles and of sentences, with whether it is a title."""
    done = offset = 0
    ended = True
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if bare and _is_title(bare, titles, after_end=ended):
            yield from ((done + a, done + b, False) for a, b in iter_passage_sentences(text[done:offset]))
            yield offset, offset + len(line), True
            done = offset + len(line)
            ended = True
        elif bare:
            ended = bare[-1] in _END or bare[-1] in ".:："
        offset += len(line)
    yield from ((done + a, done + b, False) for a, b in iter_passage_sentences(text[done:]))


def _is_title(line: str, titles: set[str], *, after_end: bool) -> bool:
    if squeeze(line) in titles:
        return True
    if _CONTENTS_LINE.fullmatch(line):
        return True
    if len(line) > _MOST_HEADING_CHARS or line[-1] in _END or line[-1] in ".:：":
        return False
    if "|" in line:
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        return len(cells) > 1 and all(
            cell and len(fold(cell)) <= _MOST_HEADER_CELL_CHARS and not any(map(str.isdigit, cell))
            for cell in cells
        )
    return bool(_CAPTION.fullmatch(line)) or (after_end and bool(_NUMBERED_HEADING.fullmatch(line)))
