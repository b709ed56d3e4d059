"""Words that say the same of machines, for choosing among what was found."""

from __future__ import annotations

import re
from functools import cache

from kb.resources import read_lines
from kb.words import fold, get_units


@cache
def _groups() -> dict[str, str]:
    """Return the name of the group of each word."""
    lines = [line.split() for line in read_lines("synonyms") if not line.startswith("#")]
    return {word: f"~{group[0]}" for group in lines for word in group}


@cache
def _pattern() -> re.Pattern[str]:
    words = sorted(_groups(), key=len, reverse=True)
    return re.compile("|".join(rf"\b{word}\b" if word.isascii() else re.escape(word) for word in words))


def get_groups(text: str) -> frozenset[str]:
    """Return the names of the groups of which a word stands in the text."""
    return frozenset(_groups()[found.group()] for found in _pattern().finditer(fold(text)))


def get_units_or_synonyms(text: str) -> list[frozenset[str]]:
    """Return what `kb.words.get_units` does; words of a group are also proved by the group's name."""
    folded = fold(text)
    pieces: list[frozenset[str]] = []
    rest, end = [], 0
    for found in _pattern().finditer(folded):
        rest.append(folded[end : found.start()])
        end = found.end()
        name = _groups()[found.group()]
        pieces.extend(piece | {name} for piece in get_units(found.group()))
    rest.append(folded[end:])
    return [*get_units(" | ".join(rest)), *pieces]
