"""Judges whether the passages found are about the question, before a model is asked."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from enum import IntEnum

from kb.codes import canonicalise
from kb.language import detect_language
from kb.types import Chunk
from kb.words import fold, get_all_terms, get_units

# The weights were fitted on questions with their documents present, with their documents removed and
# on questions about something else, in Chinese and English, with multilingual-e5-small. Similarities
# enter relative to unrelated text, so another embedder moves them little.
_COVERAGE_WEIGHT = 0.18
_HALF = {"zh": 0.43, "en": 0.46}
_WIDTH = 0.075
_MENTION_BONUS = 0.10
_DEFINED_EVIDENCE = 0.75
_UNKNOWN_NAME_PENALTY = 0.12
# From Chinese into English the starter model tells subjects apart, from English into Chinese hardly:
# there the cut is where little that is wrong passes.
_HALF_ACROSS = {"zh": 0.37, "en": 0.45}
_LEAST_COMPARED = 10
_USUAL_PEAK = 0.1
_UNKNOWN_WEIGHT = 1.0
_WORDING_SHARE = 0.4
_CLIPPED = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{3,5}(?![A-Za-z0-9])")


class CodeMatch(IntEnum):
    """How a code stands in a chunk; higher is better."""

    ABSENT = 0
    MENTIONED = 1
    DEFINED = 2


def measure_similarity(cosine: float, *, background: float) -> float:
    """Put a cosine on a scale that embedders share: 0 at `background`, 1 for the question itself."""
    return (cosine - background) / max(1.0 - background, 1e-3)


def measure_share(units: Sequence[frozenset[str]], text: str) -> float:
    """Return the share, 0..1, of the units (see `kb.words.get_units`) that stand in the text."""
    terms = get_all_terms(text)
    return sum(not unit.isdisjoint(terms) for unit in units) / len(units) if units else 0.0


def complete_clipped(question: str, texts: Iterable[str]) -> str:
    """Return a note with its clipped words written out where a text has a word that begins so.

    "REPL TRANS TEMP SENSOR" is how people write work orders. The shortest such word is taken: it adds least.
    """
    words = set(re.findall(r"[a-z]+", fold("\n".join(texts))))

    def complete(match: re.Match[str]) -> str:
        clipped = fold(match.group())
        if clipped in words:
            return match.group()
        whole = [word for word in words if word.startswith(clipped)]
        return min(whole, key=lambda word: (len(word), word), default=match.group())

    return _CLIPPED.sub(complete, question)


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


def measure_unknown(question: str, texts: Sequence[str], *, names: Sequence[str] = ()) -> float:
    """Return the share, 0..1, of the question's content that none of the texts holds.

    `names` are canonical codes that count neither way: they name the machine, not what is asked of it.
    """
    own = {fold(name) for name in names}
    units = unknown = [unit for unit in get_units(question) if unit.isdisjoint(own)]
    for text in texts:
        if not unknown:
            break
        terms = get_all_terms(text)
        unknown = [unit for unit in unknown if unit.isdisjoint(terms)]
    return len(unknown) / len(units) if units else 0.0


def has_unknown_name(question: str, texts: Iterable[str]) -> bool:
    """Return whether the question names something in Latin letters that none of the texts holds.

    A name is a word with two capitals (EtherCAT, PLC), or any Latin word in a Chinese question. Names are
    the same in both languages. A question all in capitals has no names that could be told apart.
    """
    words = re.findall(
        r"(?<![A-Za-z0-9])[A-Za-z]{2,}(?![A-Za-z0-9])", unicodedata.normalize("NFKC", question)
    )
    if detect_language(question) != "zh":
        if len(words) > 2 and all(word.isupper() for word in words):
            return False
        words = [word for word in words if sum(map(str.isupper, word)) >= 2]
    names = {fold(word) for word in words}
    for text in texts:
        if not names:
            break
        folded = fold(text)
        names = {name for name in names if name not in folded}
    return bool(names)


def score_evidence(
    similarity: float,
    *,
    coverage: float,
    language: str,
    code: CodeMatch = CodeMatch.ABSENT,
    unknown_name: bool = False,
    unknown: float = 0.0,
) -> float:
    """Return 0..1: how likely passages in the question's language are about it; 0.5 is the balanced cut.

    `similarity` is that of the nearest passage, above unrelated text. A code that a passage defines is
    evidence whatever the words around it say. `unknown` is the share of the question's content that
    stands nowhere: a little is wording, much is another subject.
    """
    strength = similarity + _COVERAGE_WEIGHT * coverage - _HALF[language]
    strength -= _UNKNOWN_WEIGHT * max(0.0, unknown - _WORDING_SHARE)
    return _squash(strength, code=code, unknown_name=unknown_name)


def score_cross_evidence(
    centred: Sequence[float],
    *,
    background: float,
    language: str,
    code: CodeMatch = CodeMatch.ABSENT,
    unknown_name: bool = False,
) -> float:
    """Return the same for passages in another language, where words can't be compared.

    `centred` are the nearest passages' cosines, best first, above those to unrelated questions: some
    passages are near to everything. What stands out among them counts once more: a question about
    something else is about as near to all. `language` is the question's.
    """
    if not centred:
        return 0.0
    scale = max(1.0 - background, 1e-3)
    peak = (
        (centred[0] - sum(centred) / len(centred)) / scale if len(centred) >= _LEAST_COMPARED else _USUAL_PEAK
    )
    return _squash(centred[0] / scale + peak - _HALF_ACROSS[language], code=code, unknown_name=unknown_name)


def _squash(strength: float, *, code: CodeMatch, unknown_name: bool) -> float:
    strength += (_MENTION_BONUS if code else 0.0) - (_UNKNOWN_NAME_PENALTY if unknown_name else 0.0)
    evidence = 1.0 / (1.0 + math.exp(-strength / _WIDTH))
    return max(evidence, _DEFINED_EVIDENCE) if code is CodeMatch.DEFINED else evidence


def match_code(canonical: str, chunk: Chunk) -> CodeMatch:
    """Return how the canonical code stands in the chunk.

    It is defined where it is a table cell, begins a line or stands in the heading; a code that is a
    word and a number (ALARM:2) is also defined by a row with that number in a column named so.
    """
    for record in chunk.records:
        for column, cell in record.items():
            if canonicalise(cell) == canonical or is_numbered(canonical, column, cell):
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


def is_numbered(canonical: str, column: str, cell: str) -> bool:
    """Return whether a code of a word and a number (ALARM:2) is that number in a column named so."""
    parts = re.fullmatch(r"([A-Z]{2,})(\d+)", canonical)
    return parts is not None and parts[1].casefold() in fold(column).split() and cell.strip() == parts[2]
