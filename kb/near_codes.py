"""Codes that look or sound like one that no document has: suggestions, never answers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from heapq import nlargest
from itertools import product
from math import prod
from operator import eq

_LOOK_ALIKES = str.maketrans("OIL", "011")
_LEAST_RATIO = 0.7
_LEAST_RATIO_OF_SERIES = 0.5
"""Enough when the letters are the same: E2 for E1."""
_MOST_COMPARED = 200
"""Codes that are compared closely, those with most characters at the same place."""
_MOST_LOOK_ALIKES = 36
_MOST_LENGTH_DIFFERENCE = 2


def find_near_codes(code: str, known: Iterable[str], *, limit: int) -> list[str]:
    """Return up to `limit` of the known codes, nearest first; all are canonical.

    Those that differ only by look-alikes (O and 0, l, I and 1) go first, then those that share most
    characters in order (Ratcliff and Obershelp, 1988), then the nearer number.
    """
    difference = min(_MOST_LENGTH_DIFFERENCE, max(1, len(code) // 3))
    skeleton = code.translate(_LOOK_ALIKES)
    likely = nlargest(
        _MOST_COMPARED,
        (other for other in known if other != code and abs(len(other) - len(code)) <= difference),
        key=lambda other: _count_equal(skeleton, other.translate(_LOOK_ALIKES)),
    )
    matcher = SequenceMatcher(a="", b=skeleton, autojunk=False)
    ranked: list[tuple[float, int, str]] = []
    for other in likely:
        shape = other.translate(_LOOK_ALIKES)
        least = _LEAST_RATIO_OF_SERIES if _letters(shape) == _letters(skeleton) else _LEAST_RATIO
        matcher.set_seq1(shape)
        if (ratio := matcher.ratio()) >= least:
            ranked.append((-ratio, _measure_distance(skeleton, shape), other))
    return [other for _, _, other in sorted(ranked)[:limit]]


def list_look_alikes(code: str) -> list[str]:
    """Return what the code may be a look-alike of, itself included; nothing if that is too much."""
    choices = [next((group for group in ("O0", "IL1") if char in group), char) for char in code]
    if prod(map(len, choices)) > _MOST_LOOK_ALIKES:
        return []
    return ["".join(chars) for chars in product(*choices)]


def _count_equal(code: str, other: str) -> int:
    """Return how many characters stand at the same place, from the left or from the right."""
    from_left: list[bool] = list(map(eq, code, other))
    from_right: list[bool] = list(map(eq, reversed(code), reversed(other)))
    return max(sum(from_left), sum(from_right))


def _measure_distance(code: str, other: str) -> int:
    """Return how far the numbers of two codes lie apart, far if their letters differ."""
    if _letters(code) != _letters(other):
        return 10**9
    digits, other_digits = re.sub(r"\D", "", code), re.sub(r"\D", "", other)
    return abs(int(digits or 0) - int(other_digits or 0))


def _letters(code: str) -> str:
    return re.sub(r"\d", "", code)
