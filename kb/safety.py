"""Clauses of a text that keep people and machines safe: what must be done first, and what must not be done."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kb.words import get_all_terms, get_units

_CLAUSE = re.compile(r"[^,，;；。!！\n|]+")
_PRECAUTION = re.compile(
    r"断电|断开.{0,4}电源|切断.{0,6}(?:电源|气源|油源)|上锁|挂牌|泄压|卸压|释放.{0,4}压力|"
    r"停机(?=[，,后并再泄断])|立即停机|严禁|禁止|不得|切勿|不准|不要|务必|必须|佩戴|戴.{0,4}(?:手套|护目镜|面罩)|"
    r"\block(?:ed)? ?out\b|\btag(?:ged)? ?out\b|\bdisconnect\b|\bisolate\b|\bde-?energi[sz]e\b|"
    r"\bdepressuri[sz]e\b|\brelieve .{0,20}pressure\b|\bswitch(?:ed)? off\b|\bpower off\b|\bunplug\b|"
    r"\bnever\b|\bdo not\b|\bdon't\b|\bmust\b|\bwear (?:gloves|goggles|ear|eye|a |the |safety|protective)",
    re.IGNORECASE,
)
_SAID = 0.6
"""Share of a clause's words from which on an answer says it."""


def iter_precautions(text: str) -> Iterator[str]:
    """Yield the clauses that demand a precaution or forbid something, as they stand in the text."""
    for match in _CLAUSE.finditer(text):
        clause = match.group().strip()
        if _PRECAUTION.search(clause):
            yield clause


def list_unsaid_precautions(quote: str, *, said: str) -> list[str]:
    """Return the precautions of the quote that `said` leaves out."""
    known = get_all_terms(said)
    unsaid: list[str] = []
    for clause in iter_precautions(quote):
        pieces = get_units(clause)
        present = sum(not piece.isdisjoint(known) for piece in pieces)
        if pieces and present < _SAID * len(pieces):
            unsaid.append(clause)
    return unsaid
