"""Judges whether the passages found are about the question, before a model is asked."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from statistics import median

from kb.codes import canonicalise
from kb.types import Chunk
from kb.words import fold, get_all_terms, get_units

# The weights were fitted on questions with their documents present, with their documents removed and
# on questions about something else, in Chinese and English, with multilingual-e5-small. Similarities
# enter relative to unrelated text, so another embedder moves them little.
_COVERAGE_WEIGHT = 0.18
_HALF = 0.45
_WIDTH = 0.075
_MENTION_BONUS = 0.10
_DEFINED_EVIDENCE = 0.75
_CROSS_SIMILARITY, _CROSS_MARGIN, _CROSS_BASE = 0.31, 0.95, 0.135
_LEAST_CANDIDATES = 8


class CodeMatch(IntEnum):
    """How a code stands in a chunk; higher is better."""

    ABSENT = 0
    MENTIONED = 1
    DEFINED = 2


@dataclass(frozen=True, slots=True)
class Similarity:
    """Cosines of one language's candidates, put on a scale that embedders share.

    `best` is 0 for text that has nothing to do with the question and 1 for the question itself;
    `margin` is how far the best candidate stands above the middle of the candidates, same scale.
    """

    best: float
    margin: float


def measure_similarity(cosines: Sequence[float], *, background: float) -> Similarity:
    """Relate cosines, best first, to `background`, the cosine of unrelated text."""
    if not cosines:
        return Similarity(best=0.0, margin=0.0)
    room = max(1.0 - background, 1e-3)
    best = max(0.0, (cosines[0] - background) / room)
    if len(cosines) < _LEAST_CANDIDATES:
        return Similarity(best=best, margin=best / 2)
    return Similarity(best=best, margin=max(0.0, (cosines[0] - median(cosines)) / room))


def measure_coverage(question: str, texts: Sequence[str]) -> float:
    """Return the largest share, 0..1, of the question's content that one text holds.

    A word that most of the texts hold counts little: it says what the collection is about, not
    what was asked.
    """
    units = get_units(question)
    if not units or not texts:
        return 0.0
    hits = [[not unit.isdisjoint(terms) for unit in units] for terms in map(get_all_terms, texts)]
    weights = [1.15 - sum(column) / len(texts) for column in zip(*hits, strict=True)]
    covered = [sum(w for w, hit in zip(weights, row, strict=True) if hit) for row in hits]
    return float(max(covered) / sum(weights))


def score_evidence(
    similarity: Similarity, *, coverage: float, same_language: bool, code: CodeMatch = CodeMatch.ABSENT
) -> float:
    """Return 0..1: how likely the passages are about the question; 0.5 is the balanced cut.

    Across languages words can't be compared, so the best passage must stand out from its neighbours.
    A code that a passage defines is evidence whatever the words around it say.
    """
    if same_language:
        strength = similarity.best
    else:
        strength = _CROSS_SIMILARITY * similarity.best + _CROSS_MARGIN * similarity.margin + _CROSS_BASE
    strength += _COVERAGE_WEIGHT * coverage + (_MENTION_BONUS if code else 0.0)
    evidence = 1.0 / (1.0 + math.exp(-(strength - _HALF) / _WIDTH))
    return max(evidence, _DEFINED_EVIDENCE) if code is CodeMatch.DEFINED else evidence


def match_code(canonical: str, chunk: Chunk) -> CodeMatch:
    """Return how the canonical code stands in the chunk.

    It is defined where it is a table cell, begins a line or stands in the heading; a code that is a
    word and a number (ALARM:2) is also defined by a row with that number in a column named so.
    """
    for record in chunk.records:
        for column, cell in record.items():
            if canonicalise(cell) == canonical or _is_numbered(canonical, column, cell):
                return CodeMatch.DEFINED
    if any(contains_code(heading, canonical) for heading in chunk.heading_path[-1:]):
        return CodeMatch.DEFINED
    pattern = _code_pattern(canonical)
    folded = fold(chunk.text)
    for line in folded.splitlines():
        found = pattern.search(line)
        if found and not any(char.isalnum() for char in line[: found.start()]):
            return CodeMatch.DEFINED
    if pattern.search(folded) or contains_code(chunk.context, canonical):
        return CodeMatch.MENTIONED
    return CodeMatch.ABSENT


def contains_code(text: str, canonical: str) -> bool:
    """Return whether the code stands in the text under any width, case and separators."""
    return bool(_code_pattern(canonical).search(fold(text)))


def _code_pattern(canonical: str) -> re.Pattern[str]:
    """Allow one separator between any two characters, and no letter or digit around the code."""
    body = r"[ \-._:/#‐‑–—]?".join(map(re.escape, canonical.casefold()))
    return re.compile(rf"(?<![a-z0-9]){body}(?![a-z0-9])")


def _is_numbered(canonical: str, column: str, cell: str) -> bool:
    parts = re.fullmatch(r"([A-Z]{2,})(\d+)", canonical)
    return parts is not None and parts[1].casefold() in fold(column).split() and cell.strip() == parts[2]
