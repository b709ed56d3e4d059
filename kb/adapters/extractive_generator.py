"""Answers made of sentences and table rows that stand in the passages, when no model writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kb.codes import iter_codes
from kb.evidence import contains_code
from kb.facts import asks_for_name_of_code, asks_number, asks_what_to_do, find_asked_attribute, iter_numbers
from kb.language import detect_language
from kb.relevance import Relevance
from kb.types import GenerationDelta, GenerationEnd, GenerationEvent, GenerationRequest
from kb.units import Unit, list_units
from kb.words import get_units, squeeze

_CONTEXT_TOKENS = 8192
_LEAST_SCORE = 0.15
"""Below it no unit says enough of what was asked."""
_LEAST_BESIDE = 0.5
"""The same for a sentence in the question's language beside a definition in another."""
_MOST_BESIDE = 1
_SHARE_OF_BEST = 0.85
_RANK_DECAY = 0.02
_WHOLE_SHARE = 0.5
_LEAST_OF_WHOLE = 0.5
"""How relevant for the whole question, as a share of the best, what answers a part must be."""
_LEAST_OF_PART = 0.5
"""Or how relevant for the part itself."""
_MOST_FOLLOWING = 3
_MOST_FOREIGN = 3
_LEAST_PART_UNITS = 4
_PART = re.compile(r"[,，;；。?？]")
_SPELLED = re.compile(
    r"[零一二两三四五六七八九十百半]|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|once|twice|daily|weekly|monthly)\b",
    re.IGNORECASE,
)
_MARKER = re.compile(r"\[(\d+)\]")


class ExtractiveGenerator:
    """Quotes the best sentences and table rows, each followed by the marker of its passage.

    A unit is scored by the share of the question's content that it covers, each word weighted by its
    rarity, header and headings included. When the question names a fault's code, the row or section that
    defines it is quoted alone. Rows are shown as "column: value".
    """

    def __init__(self, *, max_sentences: int = 3) -> None:
        self._max_sentences = max_sentences

    @property
    def name(self) -> str:
        """See `kb.ports.Generator`."""
        return "extractive"

    @property
    def mode(self) -> str:
        """See `kb.ports.Generator`."""
        return "extractive"

    def get_context_limit(self) -> int:
        """See `kb.ports.Generator`."""
        return _CONTEXT_TOKENS

    def ping(self) -> str:
        """See `kb.ports.Generator`."""
        return "quotes sentences; needs no runtime"

    def stream(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        """See `kb.ports.Generator`; no unit that fits, no delta. No tokens are counted, as no model runs."""
        separator = ""
        for unit in self._choose(request):
            # a printed [2] must not look like a citation
            shown = _MARKER.sub(r"(\1)", show_unit(unit))
            yield GenerationDelta(f"{separator}{shown} [{unit.passage_index + 1}]")
            separator = "\n"
        yield GenerationEnd("stop", prompt_tokens=0, completion_tokens=0)

    def _choose(self, request: GenerationRequest) -> list[Unit]:
        units = _drop_repeats(list_units(request.passages))
        asked = tuple(dict.fromkeys(mention.canonical for mention in iter_codes(request.question)))
        codes = asked if request.codes is None else request.codes
        names = [code for code in asked if code not in codes]
        relevance = Relevance(request.question, units, names=names)
        if defining := relevance.list_defining(codes):
            kept = [
                unit for found in defining.values() for unit in self._keep_best(found, relevance, request)
            ]
            kept = [near for unit in kept for near in _follow(unit, units, request.question)]
            return self._list_beside(kept, units, relevance, request) + kept
        units = [unit for unit in units if not _is_about_another(unit, codes)]
        own = [unit for unit in units if _reads_in(unit, request.language)]
        chosen = self._choose_best(request.question, own, names=names)
        if not chosen:
            foreign = [unit for unit in units if not _reads_in(unit, request.language)]
            chosen = _choose_foreign(request.question, foreign, codes=codes)
        return chosen

    def _keep_best(
        self, found: Sequence[Unit], relevance: Relevance, request: GenerationRequest
    ) -> list[Unit]:
        """Return what defines a code, without rows that fit the question less, where words can tell."""
        best = relevance.score(found[0])
        return [
            unit
            for unit in found
            if not _reads_in(unit, request.language) or relevance.score(unit) >= _SHARE_OF_BEST * best
        ][: self._max_sentences]

    def _list_beside(
        self, kept: Sequence[Unit], units: Sequence[Unit], relevance: Relevance, request: GenerationRequest
    ) -> list[Unit]:
        """Return what says more of the asked codes than their definitions, in the question's language."""
        readable = [relevance.score(unit) for unit in kept if _reads_in(unit, request.language)]
        least = max(readable, default=_LEAST_BESIDE)
        codes = {code for unit in kept for code in unit.codes}
        taken = {id(unit) for unit in kept}
        beside = [
            unit
            for unit in units
            if id(unit) not in taken
            and _reads_in(unit, request.language)
            and relevance.score(unit) >= least
            and not codes.isdisjoint(unit.codes)
            and any(contains_code(unit.text, code) for code in request.codes or codes)
        ]
        return sorted(beside, key=lambda unit: -relevance.score(unit))[:_MOST_BESIDE]

    def _choose_best(self, question: str, units: Sequence[Unit], *, names: Sequence[str]) -> list[Unit]:
        """Return the best units for the question, or for each of its parts if it asks several things."""
        parts = [part for part in _PART.split(question) if len(get_units(part)) >= _LEAST_PART_UNITS]
        chosen: dict[int, Unit] = {}
        whole = Relevance(question, units, names=names)
        for part in parts if len(parts) > 1 else [question]:
            relevance = Relevance(part, units, names=names)
            # what a part leaves out is said by the others: "which code is that?"
            scores = {
                id(unit): ((1 - _WHOLE_SHARE) * relevance.score(unit) + _WHOLE_SHARE * whole.score(unit))
                / (1 + _RANK_DECAY * unit.passage.rank)
                for unit in units
            }
            best = max(scores.values(), default=0.0)
            if best < _LEAST_SCORE or relevance.best < _LEAST_SCORE:
                continue
            ranked = sorted(
                (
                    unit
                    for unit in units
                    if relevance.score(unit) >= _LEAST_OF_PART
                    or whole.score(unit) >= _LEAST_OF_WHOLE * whole.best
                ),
                key=lambda unit: -scores[id(unit)],
            )
            if asks_number(part):
                ranked = [unit for unit in ranked if _has_other_number(unit, question)]
            if attribute := find_asked_attribute(part):
                # the rated pressure is no answer to the rated flow
                ranked = [unit for unit in ranked if attribute in unit.terms or attribute in unit.scope_terms]
            good = [unit for unit in ranked if scores[id(unit)] >= _SHARE_OF_BEST * best]
            if not good:
                continue
            if _lacks_code(good, part, question):
                # the finding, then what holds the command or parameter that was asked for
                named = [unit for unit in _list_near(good[0], units) if _has_other_code(unit, question)]
                good = [good[0], *named[: self._max_sentences]]
            elif not good[0].is_row and asks_what_to_do(question):
                # the finding is followed by its cause and what to do
                good = _list_section(good, units)[: 1 + _MOST_FOLLOWING]
            elif len(parts) > 1:
                good = good[:1]
            else:
                good = good[: self._max_sentences]
            chosen |= {id(unit): unit for unit in good}
        return list(chosen.values())


def show_unit(unit: Unit) -> str:
    """Return the unit as it is read: a row as "column: value", a sentence on one line."""
    if unit.record is None:
        return " ".join(unit.text.split())
    chinese = detect_language(f"{unit.text} {' '.join(unit.record)}") == "zh"
    colon, semicolon = ("：", "；") if chinese else (": ", "; ")
    cells = [(" ".join(key.split()), " ".join(cell.split())) for key, cell in unit.record.items()]
    shown = [f"{key}{colon}{cell}" if _is_named(key) else cell for key, cell in cells if cell]
    return semicolon.join(shown)


def _is_named(column: str) -> bool:
    return bool(column) and not re.fullmatch(r"(?:column|col|列)[ _-]?\d+", column, re.IGNORECASE)


def _reads_in(unit: Unit, language: str) -> bool:
    """Return whether the unit, or the whole chunk around it, is in the language."""
    return language in (unit.language, detect_language(unit.passage.chunk.indexed_text))


def _choose_foreign(question: str, units: Sequence[Unit], *, codes: Sequence[str]) -> list[Unit]:
    """Return a unit of each of the first passages in the other language, where words can't be compared.

    One with an asked code or, if a number is asked for, with a number goes first; else a passage's first.
    """
    wants_number = asks_number(question)

    def rate(unit: Unit) -> tuple[bool, bool]:
        quantity = any(number.unit for number in iter_numbers(unit.text))
        return any(code in unit.codes for code in codes), wants_number and quantity

    by_passage: dict[int, list[Unit]] = {}
    for unit in sorted(units, key=lambda unit: unit.passage.rank):
        by_passage.setdefault(unit.passage_index, []).append(unit)
    best = [max(there, key=rate) for there in by_passage.values()]
    if wants_number:
        best = [unit for unit in best if any(rate(unit)) or _has_other_number(unit, question)]
    return best[:_MOST_FOREIGN]


def _is_about_another(unit: Unit, codes: Sequence[str]) -> bool:
    """Return whether the unit is headed by a code of the asked kind that was not asked."""
    head = unit.head_code
    kinds = {re.sub(r"\d+", "0", code) for code in codes}
    return head is not None and head not in codes and re.sub(r"\d+", "0", head) in kinds


def _list_section(good: Sequence[Unit], units: Sequence[Unit]) -> list[Unit]:
    """Return from the first good unit of the best one's section on, as far as its heading reaches."""
    best = good[0]
    section = [
        unit
        for unit in units
        if unit.passage_index == best.passage_index and unit.heading == best.heading and not unit.is_row
    ]
    wanted = {id(unit) for unit in good}
    start = next(place for place, unit in enumerate(section) if id(unit) in wanted)
    return section[start:]


def _follow(unit: Unit, units: Sequence[Unit], question: str) -> list[Unit]:
    """Return the unit and, when cause or remedy is asked for, the sentences up to the next code's."""
    if unit.is_row or not asks_what_to_do(question):
        return [unit]
    behind = [
        other
        for other in units
        if other.passage_index == unit.passage_index
        and other.page_number == unit.page_number
        and other.char_start > unit.char_start
    ]
    following: list[Unit] = []
    for other in behind[:_MOST_FOLLOWING]:
        if other.is_row or other.heading != unit.heading or other.head_code is not None:
            break
        following.append(other)
    return [unit, *following]


def _has_other_number(unit: Unit, question: str) -> bool:
    """Return whether the unit holds a number that the question didn't give."""
    given = {number.value for number in iter_numbers(question)}
    if any(number.value not in given for number in iter_numbers(unit.text)):
        return True
    return bool(unit.codes) or bool(_SPELLED.search(unit.text))


def _lacks_code(good: Sequence[Unit], part: str, question: str) -> bool:
    """Return whether a command or parameter is asked for, and none of the sentences names one."""
    if not asks_for_name_of_code(part) or any(unit.is_row for unit in good):
        return False
    return not any(_has_other_code(unit, question) for unit in good)


def _has_other_code(unit: Unit, question: str) -> bool:
    return any(not contains_code(question, code) for code in unit.codes)


def _list_near(unit: Unit, units: Sequence[Unit]) -> list[Unit]:
    """Return the units of the same passage, those behind the unit first."""
    near = [other for other in units if other.passage_index == unit.passage_index and other is not unit]
    return sorted(near, key=lambda other: (other.char_start < unit.char_start, other.char_start))


def _drop_repeats(units: Sequence[Unit]) -> list[Unit]:
    unique: dict[tuple[str, str], Unit] = {}
    for unit in units:
        unique.setdefault((squeeze(unit.text), squeeze(unit.passage.chunk.context)), unit)
    return list(unique.values())
