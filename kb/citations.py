"""Checks generated sentences against the passages, and turns their support into citations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from kb.codes import iter_codes
from kb.evidence import contains_code
from kb.facts import count_missing, get_codes, iter_numbers, negates, prohibits, strip_prohibitions
from kb.language import detect_language
from kb.sentences import MARKER, iter_passage_sentences
from kb.types import Citation, Passage, Span
from kb.words import get_all_terms, get_units, squeeze

SUPPORT = 0.5
"""Least share of a sentence's content that must stand in the passage it cites."""
_UNMARKED_SUPPORT = 0.6
_CLAUSE_SUPPORT = 0.4
_LEAST_CLAUSE_UNITS = 4
_QUOTED_SUPPORT = 0.34
"""Least share that must stand in the quote itself; the rest may stand in the title above it."""
_MOST_LEAD_IN_CHARS = 80
_MOST_QUOTE_CHARS = 400
_WINDOW = 3
_LEAD_IN = re.compile(r"[:：]\s*$")
_EMPTY_LEAD_IN = re.compile(
    r"(?:具体|相应|可能)?的?(?:处理|解决|操作|检查|更换|维修)?(?:方法|步骤|措施|原因|办法)?(?:如下|包括|有|是|为|以下)*"
    r"(?:方法|步骤|措施|原因)?[:：]|(?:the |take |these |do )*(?:following )?(?:possible |likely )?"
    r"(?:steps?|causes?|remed(?:y|ies)|checks?|answer)(?: are| is| include)?(?: as follows)?\s*:",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,，;；。.!！?？\n]+")
_RESTATED = 0.8
_MOST_CODE_CHARS = 40
_TAIL = re.compile(r"[\s。！？!?.;；]*$")


@dataclass(frozen=True, slots=True)
class _Unit:
    """A sentence or row of a passage: a slice of one page and of the chunk's text."""

    page_number: int
    char_start: int
    char_end: int
    text: str
    rows: tuple[str, ...]


@dataclass(frozen=True)
class _Source:
    """A passage of the prompt, prepared for comparison."""

    passage: Passage

    @property
    def title(self) -> str:
        """What was shown above the passage: the document, its headings, a table's header."""
        return f"{self.passage.document_name}\n{self.passage.chunk.context}"

    @cached_property
    def title_terms(self) -> frozenset[str]:
        """The words of the title."""
        return get_all_terms(self.title)

    @cached_property
    def terms(self) -> frozenset[str]:
        """Every word the model was shown of it."""
        return self.title_terms | get_all_terms(self.passage.chunk.text)

    @cached_property
    def denials(self) -> tuple[str, ...]:
        """What its clauses forbid, and those of its clauses that hold another negation."""
        clauses = [clause for clause in _CLAUSE.split(self.passage.chunk.text) if negates(clause)]
        denied = (strip_prohibitions(clause) for clause in clauses)
        return tuple(clause for clause in denied if get_units(clause))

    @cached_property
    def windows(self) -> tuple[_Unit, ...]:
        """Every quote that could be cited: a unit, or a few neighbours on one page."""
        units = list(_iter_units(self.passage))
        joined = (
            _join(units[first : first + size], self.passage)
            for size in range(1, _WINDOW + 1)
            for first in range(len(units) - size + 1)
        )
        return tuple(window for window in joined if window is not None)


@dataclass(frozen=True, slots=True)
class _Support:
    source: _Source
    share: float
    quote: _Unit


class CitationChecker:
    """Lets through what the passages support, sentence by sentence, and numbers the citations.

    One checker serves one answer. Markers in the generated text count from 1 in the order of
    `passages`; markers in the checked text count from 1 in the order in which they appear there.
    """

    def __init__(self, passages: Sequence[Passage], *, question: str) -> None:
        self._sources = [_Source(passage) for passage in passages]
        self._question = question
        self._asked = get_codes(question)
        self._headings = {squeeze(h) for passage in passages for h in passage.chunk.heading_path}
        self._citations: dict[tuple[str, int, int, int], Citation] = {}
        self._lead_ins: list[str] = []
        self._seen: set[str] = set()
        self.dropped_count = 0
        self.repeat_count = 0

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations so far, by number."""
        return tuple(self._citations.values())

    def check(self, sentence: str) -> str:
        """Return the sentence with checked markers, or an empty string if nothing supports it.

        A line that only introduces what follows is held back until something does.
        """
        numbers = [int(n) for group in MARKER.findall(sentence) for n in re.findall(r"\d+", group)]
        body = MARKER.sub("", sentence)
        if not any(char.isalnum() for char in body):
            return ""
        identity = squeeze(body)
        if identity in self._seen:
            self.repeat_count += 1
            return ""
        self._seen.add(identity)
        if identity in self._headings:
            return ""
        if _LEAD_IN.search(body) and self._is_lead_in(body):
            self._lead_ins.append(body)
            return ""
        cited = [self._sources[n - 1] for n in dict.fromkeys(numbers) if 1 <= n <= len(self._sources)]
        supports = self._find_support(body, cited)
        if not supports:
            self.dropped_count += 1
            return ""
        markers = "".join(f"[{self._cite(support)}]" for support in supports)
        lead_in, self._lead_ins = "".join(self._lead_ins), []
        return lead_in + _place_markers(body, markers)

    def _is_lead_in(self, body: str) -> bool:
        """An introduction is short, and claims nothing that neither question nor passages show."""
        if len(body.strip()) > _MOST_LEAD_IN_CHARS:
            return False
        if _EMPTY_LEAD_IN.fullmatch(body.strip()):
            return True
        shown = "\n".join(f"{source.title}\n{source.passage.chunk.text}" for source in self._sources)
        known = get_all_terms(self._question).union(*(source.terms for source in self._sources))
        return not count_missing(body, f"{self._question}\n{shown}") and _share(body, known) >= SUPPORT

    def _find_support(self, body: str, cited: Sequence[_Source]) -> list[_Support]:
        """Return the cited passages that support the sentence, else the one passage that does best."""
        kept = [
            support
            for source in cited
            if (support := _support(body, source, least=SUPPORT, asked=self._asked))
        ]
        if kept:
            return kept
        others = [
            support
            for source in self._sources
            if source not in cited
            and (support := _support(body, source, least=_UNMARKED_SUPPORT, asked=self._asked))
        ]
        return sorted(others, key=lambda support: -support.share)[:1]

    def _cite(self, support: _Support) -> int:
        chunk, unit = support.source.passage.chunk, support.quote
        key = (chunk.document_id, unit.page_number, unit.char_start, unit.char_end)
        if key not in self._citations:
            self._citations[key] = Citation(
                number=len(self._citations) + 1,
                document_id=chunk.document_id,
                document_name=support.source.passage.document_name,
                page_number=unit.page_number,
                quote=unit.text,
                char_start=unit.char_start,
                char_end=unit.char_end,
                chunk_id=chunk.id,
                heading_path=chunk.heading_path,
            )
        return self._citations[key].number


def _support(body: str, source: _Source, *, least: float, asked: Sequence[str]) -> _Support | None:
    """Return the quote that supports the sentence, None if there is none.

    A quote has every number and code of the sentence, in its own words or its title's, keeps its
    negations, and shares enough words. Between two languages words can't be compared, so there a marker
    is believed when something comparable stands.
    """
    codes = get_codes(body)
    windows = source.windows
    if source.passage.chunk.records and codes:
        # another row of the same table must not lend its words to this code
        windows = tuple(w for w in windows if _holds_all_rows(w, codes)) or windows
    foreign = detect_language(body) != source.passage.chunk.language
    comparable = bool(codes) or any(True for _ in iter_numbers(body))
    supports: list[tuple[float, _Support]] = []
    for window in windows:
        if _is_about_another(window, [*asked, *codes]):
            continue
        if count_missing(body, f"{source.title}\n{window.text}"):
            continue
        words = get_all_terms(window.text)
        shown = source.title_terms | words
        share, quoted = _share(body, shown), _share(body, words)
        believed = foreign and least <= SUPPORT and (comparable or share > 0.0)
        if believed or (share >= least and quoted >= _QUOTED_SUPPORT and _supports_clauses(body, shown)):
            # a longer quote must earn its length
            supports.append((quoted - len(window.text) / 4000, _Support(source, share, window)))
    if not supports:
        return None
    best = max(supports, key=lambda scored: scored[0])[1]
    return best if _keeps_negations(body, best, foreign=foreign) else None


def _supports_clauses(body: str, shown: Set[str]) -> bool:
    """Return whether no clause stands apart: a symptom from here must not get its cause from there."""
    return all(
        _share(clause, shown) >= _CLAUSE_SUPPORT
        for clause in _CLAUSE.split(body)
        if len(get_units(clause)) >= _LEAST_CLAUSE_UNITS
    )


def _holds_all_rows(window: _Unit, codes: Sequence[str]) -> bool:
    """Return whether every row of the window names one of the codes."""
    return all(any(contains_code(row, code) for code in codes) for row in window.rows)


def _is_about_another(window: _Unit, wanted: Sequence[str]) -> bool:
    """Return whether a row is headed by a code like the wanted ones, but by none of them.

    An answer about one fault must not borrow the remedy of the next.
    """
    shapes = {_shape(code) for code in wanted}
    for row in window.rows:
        head = next(iter_codes(row[:_MOST_CODE_CHARS]), None)
        if head is None or head.char_start > 0 or head.canonical in wanted:
            continue
        if _shape(head.canonical) in shapes:
            return True
    return False


def _shape(code: str) -> str:
    """Return the letters of a code, which tell a series of fault codes from part numbers."""
    return re.sub(r"\d+", "0", code)


def _share(body: str, terms: Set[str]) -> float:
    """Return the share, 0..1, of the sentence's content that is among the terms."""
    units = get_units(body)
    if not units:
        return 1.0
    return sum(not unit.isdisjoint(terms) for unit in units) / len(units)


def _keeps_negations(body: str, support: _Support, *, foreign: bool) -> bool:
    """Return False where a prohibition was invented, or a negation lost, between quote and sentence."""
    quote = support.quote.text
    if prohibits(body) and not prohibits(f"{support.source.title}\n{quote}"):
        return False
    if negates(body):
        return True
    if foreign:
        return not prohibits(quote)
    # the same passage may forbid elsewhere what the quote seems to allow
    terms = get_all_terms(body)
    return all(_share(clause, terms) < _RESTATED for clause in support.source.denials)


def _join(units: Sequence[_Unit], passage: Passage) -> _Unit | None:
    """Return neighbouring units as one slice of a page, None if they don't touch or it is too long."""
    first, last = units[0], units[-1]
    if len(units) == 1:
        return first
    if last.char_end - first.char_start > _MOST_QUOTE_CHARS:
        return None
    for span, text in _iter_spans(passage):
        same_page = span.page_number == first.page_number == last.page_number
        if same_page and span.char_start <= first.char_start and last.char_end <= span.char_end:
            joined = text[first.char_start - span.char_start : last.char_end - span.char_start]
            return _Unit(
                first.page_number, first.char_start, last.char_end, joined, tuple(u.text for u in units)
            )
    return None


def _iter_units(passage: Passage) -> Iterator[_Unit]:
    """Cut the chunk into table rows, sentences and lines."""
    starts = {first for record in passage.chunk.records if (first := _first_cell(record))}
    for span, text in _iter_spans(passage):
        for start, end in _iter_pieces(text, starts):
            piece = text[start:end]
            left = span.char_start + start + len(piece) - len(piece.lstrip())
            stripped = piece.strip()
            if stripped:
                yield _Unit(span.page_number, left, left + len(stripped), stripped, (stripped,))


def _iter_pieces(text: str, row_starts: Set[str]) -> Iterator[tuple[int, int]]:
    """Yield half-open places: a table row, from its first cell to the next row, is one piece."""
    bounds = [0]
    offset = 0
    for line in text.splitlines(keepends=True):
        if offset and line.lstrip().startswith(tuple(row_starts)):
            bounds.append(offset)
        offset += len(line)
    for start, end in pairwise([*bounds, len(text)]):
        if text[start:end].lstrip().startswith(tuple(row_starts)):
            yield start, end
        else:
            yield from ((start + a, start + b) for a, b in iter_passage_sentences(text[start:end]))


def _first_cell(record: Mapping[str, str]) -> str:
    """Return the first words of a row, as far as they are sure to stand in one line."""
    cell = next((cell for cell in record.values() if cell.strip()), "")
    return next(iter(cell.strip().splitlines()), "")


def _iter_spans(passage: Passage) -> Iterator[tuple[Span, str]]:
    """Yield each span with its text; the chunk's text is the spans joined by newlines."""
    offset = 0
    for span in passage.chunk.spans:
        length = span.char_end - span.char_start
        yield span, passage.chunk.text[offset : offset + length]
        offset += length + 1


def _place_markers(body: str, markers: str) -> str:
    """Put the markers before the final punctuation, after a space in text that has spaces."""
    tail = _TAIL.search(body)
    end = tail.start() if tail else len(body)
    gap = " " if body[end - 1 : end].isascii() and detect_language(body) == "en" else ""
    return f"{body[:end]}{gap}{markers}{body[end:]}"
