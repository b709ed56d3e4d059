"""Tells revisions of one document apart by the marks in their names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from kb.types import Passage
from kb.words import squeeze

_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,5}$")
_DATE = re.compile(
    r"(?<!\d)(?P<year>(?:19|20)\d\d)(?:[-_.年]?(?P<month>0[1-9]|1[0-2]|[1-9](?=月)))?(?:[-_.月]?(?P<day>0[1-9]|[12]\d|3[01]))?"
    r"[月日]?\s*年?\s*(?:版本?|修订版?|edition)?(?!\d)",
    re.IGNORECASE,
)
_VERSION = re.compile(
    r"(?<![A-Za-z])(?:v|ver\.?|version|rev\.?|revision)[ _.-]?(?P<number>\d+(?:\.\d+)*)(?![\dA-Za-z])"
    r"|第\s*(?P<edition>\d+|[一二三四五六七八九十])\s*版|(?:版本|修订版?)\s*(?P<release>\d+(?:\.\d+)*)"
    r"|(?P<nth>\d+)(?:st|nd|rd|th)[ _-]edition",
    re.IGNORECASE,
)
_LETTER = re.compile(
    r"(?<![A-Za-z])(?:rev\.?|revision)[ _.-]?(?P<letter>[A-Z])(?![A-Za-z0-9])|(?P<alone>[A-Z])\s?版",
    re.IGNORECASE,
)
_NUMERALS = {char: value for value, char in enumerate("一二三四五六七八九十", start=1)}
_LEAST_SERIES_CHARS = 2


@dataclass(frozen=True, slots=True)
class Revision:
    """`mark` is how the revision is written; of two of one `series`, that with the higher `order` is newer."""

    series: str
    mark: str
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Superseded:
    """An older revision whose passages gave way to those of a newer one; both are document names."""

    older: str
    newer: str


def read_revision(document_name: str) -> Revision | None:
    """Return the revision that a document's name states, None if it states none.

    A version number comes before a letter, and either before a date.
    """
    stem = _SUFFIX.sub("", unicodedata.normalize("NFKC", document_name))
    for kind, pattern in enumerate((_VERSION, _LETTER, _DATE)):
        found = pattern.search(stem)
        if found is None:
            continue
        series = stem
        for mark in (_VERSION, _LETTER, _DATE):
            series = mark.sub(" ", series)
        series = squeeze(series)
        if len(series) < _LEAST_SERIES_CHARS:
            return None
        # orders of different kinds can't be compared, so each kind is a series of its own
        return Revision(f"{kind}:{series}", found.group().strip(" _-."), _read_order(found))
    return None


def prefer_newest(
    passages: Sequence[Passage], *, question: str
) -> tuple[list[Passage], tuple[Superseded, ...]]:
    """Return the passages without those of older revisions where the newest is among them, and what gave way.

    A revision that the question names by its mark stays.
    """
    revisions = {passage.document_name: read_revision(passage.document_name) for passage in passages}
    asked = squeeze(question)
    newest: dict[str, tuple[Revision, str]] = {}
    for name, revision in revisions.items():
        if revision is None:
            continue
        known = newest.get(revision.series)
        if known is None or revision.order > known[0].order:
            newest[revision.series] = (revision, name)
    superseded: dict[str, str] = {}
    for name, revision in revisions.items():
        if revision is None or squeeze(revision.mark) in asked:
            continue
        best, newer = newest[revision.series]
        if revision.order < best.order:
            superseded[name] = newer
    kept = [passage for passage in passages if passage.document_name not in superseded]
    return kept, tuple(Superseded(older, newer) for older, newer in superseded.items())


def _read_order(found: re.Match[str]) -> tuple[int, ...]:
    groups = found.groupdict()
    if "year" in groups:
        return tuple(int(groups[part] or 0) for part in ("year", "month", "day"))
    if "letter" in groups:
        return (ord((groups["letter"] or groups["alone"]).upper()),)
    number = next(value for value in groups.values() if value)
    return tuple(_NUMERALS.get(part) or int(part) for part in number.split("."))
