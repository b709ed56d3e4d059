"""How well a unit of a document answers a question: the share of the question's content it covers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from kb.facts import asks_time, find_asked_subject, list_numbered, names_another
from kb.language import detect_language
from kb.synonyms import get_units_or_synonyms
from kb.units import Unit
from kb.words import get_units

_SCOPE_SHARE = 0.8
"""What a word in the header or heading counts, against one in the row or sentence itself."""
_NEIGHBOUR_SHARE = 0.5
_TIMES = frozenset({"s", "min", "h", "d", "week", "month", "year"})
_TIME_SHARE = 0.2
_DEFINING_SHARE = 0.7
_ABSENT_COUNT = 1.0
"""How many units are taken to hold a word that none holds."""


class Relevance:
    """Scores units against one question; words that few units hold weigh more.

    Idf weights as in Spärck Jones (1972), over the units given.
    """

    def __init__(self, question: str, units: Sequence[Unit], *, names: Sequence[str] = ()) -> None:
        """`names` are canonical codes of whole machines: they don't tell one unit from another."""
        self._units = units
        self._machines = list_numbered(question)
        self._asks_time = asks_time(question)
        self._language = detect_language(question)
        own = {name.casefold() for name in names}
        pieces = get_units_or_synonyms(question)
        self._pieces = [piece for piece in pieces if piece.isdisjoint(own)] or pieces
        self._subject = get_units(find_asked_subject(question) or "")
        self._place = {id(unit): place for place, unit in enumerate(units)}
        everything = [unit.terms | unit.synonyms | unit.scope_terms for unit in units]
        counts = [sum(not piece.isdisjoint(terms) for terms in everything) for piece in self._pieces]
        self._weights = [math.log(1 + (len(units) + 1) / max(count, _ABSENT_COUNT)) for count in counts]
        self._total = sum(self._weights)

    def list_defining(self, codes: Sequence[str]) -> dict[str, list[Unit]]:
        """Return for each code the units that are about it, best first, if that is what was asked.

        A part that the question only mentions on its way to something else defines nothing: then
        another row or section that names the part says more. In another language words can't tell, so
        there any such unit counts.
        """
        defining = {code: [unit for unit in self._units if unit.defines(code)] for code in codes}
        taken = {id(unit) for units in defining.values() for unit in units}
        others = [unit for unit in self._units if id(unit) not in taken]
        kept: dict[str, list[Unit]] = {}
        for code, units in defining.items():
            rows = [unit for unit in units if unit.is_row] or units
            naming = [unit for unit in others if unit.is_under(code)]
            rival = max(map(self.score, naming), default=0.0)
            rows = [
                unit
                for unit in rows
                if unit.language != self._language or self.score(unit) >= _DEFINING_SHARE * rival
            ]
            if rows:
                kept[code] = sorted(rows, key=lambda unit: -self.score(unit))
        return kept

    @property
    def has_content(self) -> bool:
        """True if the question holds a word to look for."""
        return self._total > 0

    @cached_property
    def best(self) -> float:
        """The score of the best unit, 0 without units."""
        return max(map(self.score, self._units), default=0.0)

    def score(self, unit: Unit) -> float:
        """Return 0..1: the share of the question's content in the unit, its scope and its neighbours.

        It is 0 for a unit about another machine or part than the one whose number is asked for. A span of time that answers "how long" or "how often" counts a little by itself.
        """
        if not self._total:
            return 0.0
        near = self._get_neighbour_terms(unit)
        if self._is_about_another(unit, near):
            return 0.0
        covered = 0.0
        for piece, weight in zip(self._pieces, self._weights, strict=True):
            if not piece.isdisjoint(unit.terms) or not piece.isdisjoint(unit.synonyms):
                covered += weight
            elif not piece.isdisjoint(unit.scope_terms):
                covered += weight * _SCOPE_SHARE
            elif not piece.isdisjoint(near):
                covered += weight * _NEIGHBOUR_SHARE
        if self._asks_time and not unit.units_of_number.isdisjoint(_TIMES):
            covered += _TIME_SHARE * (self._total - covered)
        return covered / self._total

    def is_about_another(self, unit: Unit) -> bool:
        """Return whether the unit is about another machine or part than the one that was asked about."""
        return self._is_about_another(unit, self._get_neighbour_terms(unit))

    def _is_about_another(self, unit: Unit, near: frozenset[str]) -> bool:
        if self._machines and names_another(self._machines, f"{unit.scope}\n{unit.text}"):
            return True
        if not self._subject or unit.language != self._language:
            return False
        known = unit.terms | unit.scope_terms | near
        return all(piece.isdisjoint(known) for piece in self._subject)

    def _get_neighbour_terms(self, unit: Unit) -> frozenset[str]:
        """Return the words of the sentences before and behind; rows don't speak for one another."""
        place = self._place.get(id(unit))
        if place is None or unit.is_row:
            return frozenset()
        near = [self._units[i] for i in (place - 1, place + 1) if 0 <= i < len(self._units)]
        return frozenset().union(
            *(
                other.terms
                for other in near
                if other.passage_index == unit.passage_index
                and other.heading == unit.heading
                and not other.is_row
            )
        )
