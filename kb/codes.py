"""Codes in text: fault codes, part numbers, parameter names, and their canonical form."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

# A code is ASCII, begins and ends with a letter or digit, holds at least one digit and one letter
# (E-0471, F30001, 0x0F4A, BRG-6217-2RS) and may be joined by single - . _ : / or #. A group of capitals
# and a group of digits may also be parted by one space (E 0471, SRVO 050): those are found by `_SPACED`.
_JOINED = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]+(?:[-._:/#][A-Za-z0-9]+)*(?![A-Za-z0-9])")
_SPACED = re.compile(
    r"(?<![A-Za-z0-9])(?<![A-Za-z0-9][-._:/#])"
    # a single digit is enough after a word that announces a code, a leading zero after a small letter
    r"(?:([A-Z]{1,5}) [0-9]{2,6}|(?:ALARM|ERROR|FAULT|ERR|FLT|AL) [0-9]|[a-z] 0[0-9]{1,5})"
    r"(?:[-.][0-9A-Za-z]+)*(?![A-Za-z0-9])"
)
_POSSIBLE = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{1,5} [0-9]{2,6}(?:[-.][0-9A-Za-z]+)*(?![A-Za-z0-9])")
_ADDRESS = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://[^\s<>\",;\u3000-\u9fff\uff00-\uffef]+|[\w.+-]+@[\w-]+\.[\w.-]+"
)

_NUMBER = r"\d+(?:\.\d+)?"
_UNIT = (
    r"(?:[kmg]?hz|m?w|k?wh?|m?v|k?v|k?va|k?var|m?a|mah|ah|[kmg]?pa|m?bar|psi|rpm|r|min|h|s|ms|us|ns|[cdkmun]?m[23]?|"
    r"[kmu]?g|t|m?l|[km]?n|j|kj|cal|°?[cf]|k|%|x|th|st|nd|rd|[kmgt]i?b|bits?|px|pt|dpi|d|days?|hours?|in|ft|lbs?|db|"
    r"deg|k?ohm|v?dc|v?ac|pm|am|ppm|pcs)"
)
# 15kW, 3.5mm, 10-20mm, AC220V, 24V/5A, 20N.m, 7.5kW/h, 100x200
_QUANTITY = re.compile(
    rf"(?:ac|dc)?{_NUMBER}(?:[-/:x]{_NUMBER})*-?{_UNIT}(?:[-./x](?:{_NUMBER})?{_UNIT}[23]?)*|{_NUMBER}(?:x{_NUMBER})+"
)
_BARE_UNIT = re.compile(r"[cdkm]?m[23](?:/(?:h|s|min|d))?|(?:m|mm|k?g|k?n|w|kgf)/(?:[cm]?m|s)[23]")
_HEX = re.compile(r"0x[0-9a-f]{2,}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}.*")
_VERSION = re.compile(r"v\d+(?:\.\d+)+")
# 3-phase, 24-hour, 1st-floor
_PROSE = re.compile(r"\d+(?:st|nd|rd|th)?-[a-z]{3,}(?:-[a-z]+)*")
# A number after one of these tells a place in a document or a time, not a fault.
_COUNTED_NUMBER = re.compile(
    r"(?:(?:steps?|figure|page|section|chapter|table|item|part|phase|level|version|class|line|row)[-._:/# ]?"
    r"|(?:fig|sec|tab|no|nr|rev|ver|col|day|week|year|in|on|of|to|at|by|for|from|the|and|or|is|max|min|ac|dc|top|qty|tel|"
    r"fax|jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[. ])\d+(?:[-.]\d+)*"
    # No2 and swing#5 count things
    r"|no\d{1,3}|(?!(?:alarm|err|error|fault|code|flt)#)[a-z]{3,}#\d{1,2}"
)
_MOST_BARE_LETTERS = 5
_DIGIT = re.compile("[0-9]")
_LETTER = re.compile("[A-Za-z]")
_ORDINARY = frozenset(
    {
        *("mp3", "mp4", "h264", "h265", "utf-8", "utf8", "utf-16", "gb18030", "gb2312", "base64"),
        *(
            "co2",
            "h2o",
            "o2",
            "n2",
            "win10",
            "win11",
            "x86",
            "x64",
            "ipv4",
            "ipv6",
            "html5",
            "usb2.0",
            "usb3.0",
        ),
    }
)


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
    """Yield the codes in `text`, in order; offsets count in `text` itself, full-width forms included."""
    folded = "".join(map(_fold, text))
    # Addresses are blanked, not cut out: offsets stay what they are.
    folded = _ADDRESS.sub(lambda match: " " * len(match.group()), folded)
    spaced = [match.span() for match in _SPACED.finditer(folded) if _is_spaced_code(match.group())]
    joined = [match.span() for match in _JOINED.finditer(folded) if _is_code(match.group())]
    alone = [span for span in joined if not any(start <= span[0] and span[1] <= end for start, end in spaced)]
    for start, end in sorted([*spaced, *alone]):
        yield _mention(text, start, end)


def iter_possible_codes(text: str) -> Iterator[CodeMention]:
    """Yield what would be a code if a collection holds it: small letters, a space and digits ("f 30050")."""
    folded = "".join(map(_fold, text))
    yield from (_mention(text, *match.span()) for match in _POSSIBLE.finditer(folded))


def is_code_like(text: str) -> bool:
    """Return whether the whole text is meant as a code: one found here, a word with a digit, or "OC"."""
    bare = unicodedata.normalize("NFKC", text).strip()
    mentions = [*iter_codes(bare), *iter_possible_codes(bare)]
    if any((mention.char_start, mention.char_end) == (0, len(bare)) for mention in mentions):
        return True
    if not bare.isascii() or len(bare.split()) != 1:
        return False
    return any(map(str.isdigit, bare)) or (bare.isupper() and len(bare) <= _MOST_BARE_LETTERS)


@lru_cache(maxsize=10_000)
def _fold(char: str) -> str:
    """Return the NFKC form where it is one character, so that offsets stay equal."""
    folded = unicodedata.normalize("NFKC", char)
    if len(folded) != 1:
        return char
    return "-" if folded in "‐‑‒–—−" else folded


def _mention(text: str, start: int, end: int) -> CodeMention:
    found = text[start:end]
    return CodeMention(found, canonicalise(found), start, end)


def _is_spaced_code(token: str) -> bool:
    return not _COUNTED_NUMBER.fullmatch(token.lower())


def _is_code(token: str) -> bool:
    # the commonest case first: a plain word
    if token.isalpha() or not (_DIGIT.search(token) and _LETTER.search(token)):
        return False
    lower = token.lower()
    if _HEX.fullmatch(lower):
        return True
    ordinary = (_QUANTITY, _BARE_UNIT, _DATE, _VERSION, _COUNTED_NUMBER)
    if lower in _ORDINARY or any(pattern.fullmatch(lower) for pattern in ordinary):
        return False
    if _PROSE.fullmatch(token):
        return False
    # "version2/readme": long words with a stray digit are prose or paths
    letters = max(len(run) for run in re.findall(r"[A-Za-z]+", token))
    return letters <= 8
