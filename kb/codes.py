"""Codes in text: fault codes, part numbers, parameter names, and their canonical form."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

# A code is ASCII, begins and ends with a letter or digit, holds at least one digit and one letter
# (E-0471, F30001, 0x0F4A, BRG-6217-2RS) and may be joined by single - . _ : / or #. A letter group and a
# digit group may also be parted by one space (ALARM 2, E 0471): those are found by `_SPACED`.
_JOINED = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]+(?:[-._:/#][A-Za-z0-9]+)*(?![A-Za-z0-9])")
_SPACED = re.compile(r"(?<![A-Za-z0-9])([A-Z]{1,5}) ([0-9]{2,6}(?:[-.][0-9A-Za-z]+)*)(?![A-Za-z0-9])")
_QUANTITY = re.compile(
    r"\d+(?:\.\d+)?(?:k?hz|mhz|k?w|k?v|k?va|m?a|mpa|bar|rpm|r|min|h|s|ms|mm|cm|m|km|um|kg|g|t|l|ml|nm|n|kn|"
    r"°?c|k|%|x|th|st|nd|rd|mb|gb|kb|bit|px|pt|dpi|d|days?|hours?|in|ft|lb|psi|db|deg|ohm|v?dc|v?ac|pm|am)"
)
_ORDINARY = frozenset({"mp3", "mp4", "h264", "utf-8", "utf8", "co2", "h2o", "o2", "n2", "win10", "win11"})


@dataclass(frozen=True, slots=True)
class CodeMention:
    """A code as it stands in a text, with its canonical form and its half-open place."""

    text: str
    canonical: str
    char_start: int
    char_end: int


def canonicalise(code: str) -> str:
    """Return the form in which variants of a code are equal: NFKC, upper case, no separators."""
    folded = unicodedata.normalize("NFKC", code).upper()
    return "".join(char for char in folded if char.isascii() and char.isalnum())


def iter_codes(text: str) -> Iterator[CodeMention]:
    """Yield the codes in `text`; offsets count in `text` itself, also when it holds full-width forms."""
    folded = "".join(_fold(char) for char in text)
    seen: set[tuple[int, int]] = set()
    for match in _SPACED.finditer(folded):
        yield _mention(text, match.start(), match.end())
        seen.add(match.span())
    for match in _JOINED.finditer(folded):
        if any(start <= match.start() and match.end() <= end for start, end in seen):
            continue
        if _is_code(match.group()):
            yield _mention(text, match.start(), match.end())


def _fold(char: str) -> str:
    """Return the NFKC form where it is one character, so that offsets stay equal."""
    folded = unicodedata.normalize("NFKC", char)
    if len(folded) != 1:
        return char
    return "-" if folded in "‐‑‒–—−" else folded


def _mention(text: str, start: int, end: int) -> CodeMention:
    found = text[start:end]
    return CodeMention(found, canonicalise(found), start, end)


def _is_code(token: str) -> bool:
    lower = token.lower()
    if lower in _ORDINARY or _QUANTITY.fullmatch(lower):
        return False
    has_digit = any(char.isdigit() for char in token)
    has_letter = any(char.isalpha() for char in token)
    if not (has_digit and has_letter):
        return False
    # "1st-floor", "v2/readme": long lower-case words with a stray digit are prose or paths
    letters = max((len(run) for run in re.findall(r"[A-Za-z]+", token)), default=0)
    return letters <= 8
