"""Checks generated sentences against the passages, and turns their support into citations."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from kb.codes import iter_codes
from kb.evidence import contains_code
from kb.facts import (
    count_missing,
    get_codes,
    has_number,
    iter_numbers,
    negates,
    permits,
    prohibits,
    strip_numbers,
    strip_prohibitions,
)
from kb.language import detect_language
from kb.relevance import Relevance
from kb.sentences import MARKER
from kb.types import Citation, Passage
from kb.units import Unit, list_units, list_windows, slice_window
from kb.words import get_all_terms, get_terms, get_units, squeeze, strip_glue

SUPPORT = 0.75
"""Least share of a sentence's content that must stand in its quote or above it, glue not counted."""
_UNMARKED_SUPPORT = 0.8
_CLAUSE_SUPPORT = 0.6
_LEAST_CLAUSE_UNITS = 4
_QUOTED_SUPPORT = 0.45
"""Least share that must stand in the quote itself; the rest may stand in the title above it."""
_ECHO = 0.9
_MISSING_ASKED = 0.2
_BORROWED = 0.6
_RELATIVE_RELEVANCE = 0.5
"""Least relevance of a quote, as a share of the best that the passages offer."""
_RELEVANCE_MERIT = 0.3
_LEAST_LEAD_IN = 0.5
_MOST_LEAD_IN_CHARS = 80
_LEAD_IN = re.compile(r"[:：]\s*$")
_EMPTY_LEAD_IN = re.compile(
    r"(?:具体|相应|可能)?的?(?:处理|解决|操作|检查|更换|维修)?(?:方法|步骤|措施|原因|办法)?(?:如下|包括|有|是|为|以下)*"
    r"(?:方法|步骤|措施|原因)?[:：]|(?:the |take |these |do )*(?:following )?(?:possible |likely )?"
    r"(?:steps?|causes?|remed(?:y|ies)|checks?|answer)(?: are| is| include)?(?: as follows)?\s*:",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,，;；。.!！?？\n]+")
_RESTATED = 0.8
_TAIL = re.compile(r"[ \t]*(?P<kept>[\s。！？!?.;；]*)$")
"""The end of a sentence; blanks before its punctuation are what a marker left behind."""


@dataclass(frozen=True)
class _Source:
    """A passage of the prompt, prepared for comparison."""

    passage: Passage
    units: tuple[Unit, ...]

    @cached_property
    def title(self) -> str:
        """What was shown above the passage: the document, its headings, a table's header."""
        return f"{self.passage.document_name}\n{self.passage.chunk.context}"

    @cached_property
    def terms(self) -> frozenset[str]:
        """Every word the model was shown of it."""
        return get_all_terms(f"{self.title}\n{self.passage.chunk.text}")

    @cached_property
    def denials(self) -> tuple[str, ...]:
        """What its clauses forbid, and those of its clauses that hold another negation."""
        clauses = [clause for clause in _CLAUSE.split(self.passage.chunk.text) if negates(clause)]
        denied = (strip_prohibitions(clause) for clause in clauses)
        return tuple(clause for clause in denied if get_units(clause))

    @cached_property
    def windows(self) -> tuple[_Window, ...]:
        """Every quote that could be cited."""
        return tuple(_Window(window) for window in list_windows(self.units))


@dataclass(frozen=True)
class _Window:
    """A row, or a few neighbouring sentences: what one sentence of an answer may rest on."""

    units: tuple[Unit, ...]

    @cached_property
    def text(self) -> str:
        """The slice of the page."""
        return slice_window(self.units)

    @cached_property
    def shown(self) -> str:
        """The slice with what stands above it."""
        return f"{self.units[0].scope}\n{self.text}"

    @cached_property
    def terms(self) -> frozenset[str]:
        """The words of the slice."""
        return get_all_terms(self.text)

    @cached_property
    def shown_terms(self) -> frozenset[str]:
        """The words of the slice and of what stands above it."""
        return self.terms | self.units[0].scope_terms


@dataclass(frozen=True, slots=True)
class _Claim:
    """A sentence of the answer without the names that its document carries, which need no proof here.

    `words` lacks glue and numbers, too: numbers are compared by value.
    """

    text: str
    words: str
    codes: tuple[str, ...]

    @property
    def is_about_numbers(self) -> bool:
        """True if the sentence states a number."""
        return any(True for _ in iter_numbers(self.text))


@dataclass(frozen=True, slots=True)
class _Support:
    source: _Source
    share: float
    quote: _Window


class CitationChecker:
    """Lets through what the passages support, sentence by sentence, and numbers the citations.

    One checker serves one answer. Markers in the generated text count from 1 in the order of
    `passages`; markers in the checked text count from 1 in the order in which they appear there.
    """

    def __init__(
        self, passages: Sequence[Passage], *, question: str, codes: Sequence[str] | None = None
    ) -> None:
        """`codes` are the question's codes if retrieval recognised them; see `GenerationRequest`."""
        self._units = list_units(passages)
        self._sources = [
            _Source(passage, tuple(unit for unit in self._units if unit.passage_index == index))
            for index, passage in enumerate(passages)
        ]
        self._question = question
        self._language = detect_language(question)
        self._asked = tuple(dict.fromkeys([*(codes or ()), *get_codes(question)]))
        parts = self._asked if codes is None else tuple(codes)
        names = [code for code in self._asked if code not in parts]
        self._relevance = Relevance(question, self._units, names=names)
        self._heads = frozenset(self._relevance.list_defining(parts))
        self._headings = {squeeze(h) for passage in passages for h in passage.chunk.heading_path}
        self._citations: dict[tuple[str, int, int, int], Citation] = {}
        self._lead_ins: list[str] = []
        self._seen: set[str] = set()
        self.cited: list[Unit] = []
        """What the citations quote, in their order."""
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
        markers = "".join(f"[{self.cite(support.quote.units)}]" for support in supports)
        lead_in, self._lead_ins = "".join(self._lead_ins), []
        return lead_in + _place_markers(body, markers)

    def cite(self, units: Sequence[Unit]) -> int:
        """Return the number of the citation of neighbouring units, a new one if they had none."""
        first, last = units[0], units[-1]
        chunk = first.passage.chunk
        key = (chunk.document_id, first.page_number, first.char_start, last.char_end)
        if key not in self._citations:
            self._citations[key] = Citation(
                number=len(self._citations) + 1,
                document_id=chunk.document_id,
                document_name=first.passage.document_name,
                page_number=first.page_number,
                quote=slice_window(units),
                char_start=first.char_start,
                char_end=last.char_end,
                chunk_id=chunk.id,
                heading_path=chunk.heading_path,
            )
            self.cited.extend(units)
        return self._citations[key].number

    def _is_lead_in(self, body: str) -> bool:
        """An introduction is short, and claims nothing that neither question nor passages show."""
        if len(body.strip()) > _MOST_LEAD_IN_CHARS:
            return False
        if _EMPTY_LEAD_IN.fullmatch(body.strip()):
            return True
        shown = "\n".join(f"{source.title}\n{source.passage.chunk.text}" for source in self._sources)
        known = get_all_terms(self._question).union(*(source.terms for source in self._sources))
        return not count_missing(body, f"{self._question}\n{shown}") and _share(body, known) >= _LEAST_LEAD_IN

    def _find_support(self, body: str, cited: Sequence[_Source]) -> list[_Support]:
        """Return the cited passages that support the sentence, else the one passage that does best."""
        if self._adds_nothing(body):
            return []
        kept = [support for source in cited if (support := self._support(body, source, least=SUPPORT))]
        if kept:
            return kept
        others = [
            support
            for source in self._sources
            if source not in cited and (support := self._support(body, source, least=_UNMARKED_SUPPORT))
        ]
        return sorted(others, key=lambda support: -support.share)[:1]

    def _adds_nothing(self, body: str) -> bool:
        """Return whether the sentence only says the question again."""
        if count_missing(body, self._question):
            return False
        return _share(strip_glue(body), get_all_terms(self._question)) >= _ECHO

    def _support(self, body: str, source: _Source, *, least: float) -> _Support | None:
        """Return the quote that supports the sentence, None if there is none.

        A quote has every number and code of the sentence, in its own words or those above it, says
        what the sentence forbids and allows, and holds nearly all of its words, those of the question
        in particular. Names of the question that another chunk of the document carries are no claim.
        Between two languages words can't be compared, so there a marker is believed when something
        stands that can be and that the question didn't give.
        """
        foreign = detect_language(body) != source.passage.chunk.language
        claim = self._read_claim(body, source)
        if foreign and least > SUPPORT:
            return None
        supports: list[tuple[float, _Support]] = []
        for window in source.windows:
            if self._is_about_another(window, claim) or count_missing(claim.text, window.shown):
                continue
            if not (self._is_relevant(window) and self._keeps_columns(claim, window)):
                continue
            if not get_units(claim.words) and not self._defines_asked(window):
                continue
            share, quoted = _share(claim.words, window.shown_terms), _share(claim.words, window.terms)
            if foreign:
                held = self._tells_something(claim, window) and not self._is_borrowed(claim, source)
            else:
                held = (
                    share >= least
                    and (quoted >= _QUOTED_SUPPORT or self._is_number_of(claim, window))
                    and _supports_clauses(claim.words, window.shown_terms)
                    and self._keeps_asked_words(claim.words, window)
                )
            if held and _keeps_permissions(body, window.shown, foreign=foreign):
                # a longer quote must earn its length, and a mere number is the one that was asked for
                merit = quoted + _RELEVANCE_MERIT * self._relevance.score(window.units[0])
                supports.append((merit - len(window.text) / 4000, _Support(source, share, window)))
        if not supports:
            return None
        best = max(supports, key=lambda scored: scored[0])[1]
        return best if _keeps_negations(body, best, foreign=foreign) else None

    def _read_claim(self, body: str, source: _Source) -> _Claim:
        """Take off glue and the asked names that stand elsewhere in the document but head nothing."""
        document_id = source.passage.chunk.document_id
        carriers = [other for other in self._sources if other.passage.chunk.document_id == document_id]
        carried = {
            code
            for code in self._asked
            if code not in self._heads
            and any(contains_code(f"{other.title}\n{other.passage.chunk.text}", code) for other in carriers)
        }
        bare = body
        for mention in reversed(list(iter_codes(body))):
            if mention.canonical in carried:
                bare = f"{bare[: mention.char_start]} {bare[mention.char_end :]}"
        return _Claim(bare, strip_glue(strip_numbers(bare)), tuple(get_codes(bare)))

    def _is_about_another(self, window: _Window, claim: _Claim) -> bool:
        """Return whether a row is headed by a code like the wanted ones, but by none of them.

        An answer about one fault must not borrow the remedy of the next.
        """
        wanted = {*self._asked, *claim.codes}
        shapes = {_shape(code) for code in wanted}
        heads = {unit.head_code for unit in window.units if unit.head_code is not None}
        return any(head not in wanted and _shape(head) in shapes for head in heads)

    def _is_relevant(self, window: _Window) -> bool:
        """Return whether the quote, or the section of a sentence, is about what was asked."""
        first = window.units[0]
        if self._heads:
            return any(map(first.is_under, self._heads))
        if not self._relevance.has_content or first.language != self._language:
            return True
        related = [first]
        if not first.is_row:
            related = [
                unit
                for unit in self._units
                if unit.passage_index == first.passage_index and unit.heading == first.heading
            ]
        if all(map(self._relevance.is_about_another, related)):
            return False
        best = max(map(self._relevance.score, related))
        return best >= _RELATIVE_RELEVANCE * self._relevance.best

    def _defines_asked(self, window: _Window) -> bool:
        """Return whether the quote is about an asked code, if the documents say what that is.

        A bare number as an answer must not come from a sentence that only mentions the code.
        """
        return not self._heads or any(map(window.units[0].defines, self._heads))

    def _keeps_columns(self, claim: _Claim, window: _Window) -> bool:
        """Return whether numbers out of a row come from the columns asked for, or those the sentence names.

        "Left in store" must not be answered by "Reorder at".
        """
        record = window.units[0].record
        if record is None:
            return True
        asked = get_terms(self._question)
        matching = [column for column in record if get_terms(column) & asked]
        if not matching:
            return True
        named = get_all_terms(claim.text) - get_all_terms(self._question)
        allowed = [
            column
            for column in record
            if column in matching or get_terms(column) & named or get_terms(record[column]) & asked
        ]
        shown = "\n".join(f"{column} {record[column]}" for column in allowed)
        return not any(
            not has_number(shown, number) and has_number(window.text, number)
            for number in iter_numbers(claim.text)
        )

    def _is_number_of(self, claim: _Claim, window: _Window) -> bool:
        """Return whether the sentence states numbers, and all of them stand in the quote itself."""
        return claim.is_about_numbers and not count_missing(claim.text, window.text)

    def _keeps_asked_words(self, claim: str, window: _Window) -> bool:
        """Return whether the quote has the words that the sentence took over from the question.

        顶出力 of the question must not become the 顶出缸 of some row.
        """
        asked = get_terms(claim) & get_terms(strip_glue(self._question))
        missing = asked - window.shown_terms
        return len(missing) <= _MISSING_ASKED * len(asked)

    def _tells_something(self, claim: _Claim, window: _Window) -> bool:
        """Return whether a number, code or word of the quote is in the sentence and not in the question."""
        asked = get_all_terms(self._question)
        told = get_all_terms(claim.text) & window.terms - asked
        return any(term.isascii() and (len(term) > 1 or term.isdigit()) for term in told) or (
            bool(set(claim.codes) - set(self._asked)) or (claim.is_about_numbers and bool(told))
        )

    def _is_borrowed(self, claim: _Claim, source: _Source) -> bool:
        """Return whether the sentence's words come from another passage in its own language."""
        asked = get_all_terms(self._question)
        pieces = [piece for piece in get_units(claim.words) if piece.isdisjoint(asked)]
        if len(pieces) < _LEAST_CLAUSE_UNITS:
            return False
        return any(
            sum(not piece.isdisjoint(unit.terms) for piece in pieces) >= _BORROWED * len(pieces)
            for unit in self._units
            if unit.passage is not source.passage
        )


def _supports_clauses(claim: str, shown: Set[str]) -> bool:
    """Return whether no clause stands apart: a symptom from here must not get its cause from there."""
    return all(
        _share(clause, shown) >= _CLAUSE_SUPPORT
        for clause in _CLAUSE.split(claim)
        if len(get_units(clause)) >= _LEAST_CLAUSE_UNITS
    )


def _shape(code: str) -> str:
    """Return the letters of a code, which tell a series of fault codes from part numbers."""
    return re.sub(r"\d+", "0", code)


def _share(body: str, terms: Set[str]) -> float:
    """Return the share, 0..1, of the sentence's content that is among the terms."""
    units = get_units(body)
    if not units:
        return 1.0
    return sum(not unit.isdisjoint(terms) for unit in units) / len(units)


def _keeps_permissions(body: str, shown: str, *, foreign: bool) -> bool:
    """Return whether the quote forbids what the sentence forbids, and allows what it allows.

    What is allowed is allowed on a condition: the sentence must hold most of the clause that allows it.
    """
    if foreign:
        return not prohibits(body) or prohibits(shown)
    sources = [clause for clause in _CLAUSE.split(shown) if clause.strip()]
    for clause in _CLAUSE.split(body):
        if prohibits(clause):
            terms = [get_all_terms(source) for source in sources if prohibits(source)]
            if not any(_share(strip_prohibitions(clause), known) >= SUPPORT for known in terms):
                return False
        elif permits(clause):
            said = get_all_terms(body)
            allowing = [source for source in sources if permits(source) and not prohibits(source)]
            if not any(_share(source, said) >= SUPPORT for source in allowing):
                return False
    return True


def _keeps_negations(body: str, support: _Support, *, foreign: bool) -> bool:
    """Return False where a prohibition was lost between quote and sentence."""
    if negates(body):
        return True
    if foreign:
        return not prohibits(support.quote.text)
    # the same passage may forbid elsewhere what the quote seems to allow
    terms = get_all_terms(body)
    return all(_share(clause, terms) < _RESTATED for clause in support.source.denials)


def _place_markers(body: str, markers: str) -> str:
    """Put the markers before the final punctuation, after a space in text that has spaces."""
    tail = _TAIL.search(body)
    end, kept = (tail.start(), tail["kept"]) if tail else (len(body), "")
    gap = " " if body[end - 1 : end].isascii() and detect_language(body) == "en" else ""
    return f"{body[:end]}{gap}{markers}{kept}"
