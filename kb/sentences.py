"""Finds sentence ends, in a whole text and in text that is still arriving."""

from __future__ import annotations

import re
from collections.abc import Iterator

MARKER = re.compile(r"[\[【［][ \t]*\^?[ \t]*(\d{1,3}(?:[ \t]*[,，、;；][ \t]*\d{1,3})*)[ \t]*[\]】］]")
"""A citation marker: [1], 【2】, [1, 3]; the group holds the numbers."""

# An end takes closing quotes and the markers behind it along.
_END = re.compile(
    r"(?:[。！？!?]+[\"”’」』）)]*|\.[\"”’)]*(?=\s|[\[【［]|$))"
    rf"(?:[ \t]*{MARKER.pattern})*"
    r"|\n"
)
_NOT_AN_END = re.compile(
    r"(?:(?:^|[\s。；;：:|])[(（]?\d{1,2}|\b(?:e\.g|i\.e|etc|no|fig|figs|approx|vs|dr|mr|ms|min|max|ca|eq|sec|ref|st|cf))\.$",
    re.IGNORECASE,
)
_LIST_START = re.compile(r"\s*(?:[-*•●▪·]|[(（]?\d{1,2}[.)）、]|[①-⑳]|\n)")
_MARKER_START = re.compile(r"[ \t]*(?:[\[【［][\d \t,，、;；^]*)?\Z")


def iter_sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield half-open places of the sentences of `text`; together they hold every character."""
    start = 0
    for end in _iter_ends(text):
        if text[start:end].strip():
            yield start, end
            start = end
    if start < len(text):
        yield start, len(text)


def iter_passage_sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield half-open places of the sentences of stored page text, where a line end may be a mere wrap.

    A line end ends a sentence after punctuation, after a line much shorter than the others, and before
    a bullet or a number of a list.
    """
    full = max((len(line) for line in text.splitlines()), default=0)
    start = 0
    for _, end in iter_sentences(text):
        line = text[text.rfind("\n", 0, end - 1) + 1 : end].rstrip()
        wrapped = (
            text[:end].endswith("\n")
            and len(line) * 2 > full
            and line[-1:] not in "。！？；：.!?;:"
            and not _LIST_START.match(text, end)
        )
        if not wrapped:
            yield start, end
            start = end
    if start < len(text):
        yield start, len(text)


class SentenceBuffer:
    """Collects deltas and hands out whole sentences, markers behind the full stop included."""

    def __init__(self) -> None:
        self._text = ""

    def feed(self, delta: str) -> list[str]:
        """Add a piece of text; return the sentences that are certainly complete now."""
        self._text += delta
        sentences: list[str] = []
        start = 0
        for end in _iter_ends(self._text):
            # what follows may still be a marker of this sentence, a closing quote or a decimal
            if _MARKER_START.match(self._text, end) and not self._text[:end].endswith("\n"):
                break
            if self._text[start:end].strip():
                sentences.append(self._text[start:end])
                start = end
        self._text = self._text[start:]
        return sentences

    def add(self, text: str) -> None:
        """Add a last piece of text, for `flush`."""
        self._text += text

    def flush(self) -> list[str]:
        """Return what is left, as sentences, and forget it."""
        text, self._text = self._text, ""
        return [text[start:end] for start, end in iter_sentences(text) if text[start:end].strip()]


def ends_sentence(sentence: str) -> bool:
    """Return whether the text ends like a finished sentence or a line, not in the middle of one."""
    if sentence.endswith("\n"):
        return True
    bare = MARKER.sub("", sentence).rstrip().rstrip('"”’」』）)')
    return bare.endswith(("。", "！", "？", "!", "?", ".", "；", ";"))


def _iter_ends(text: str) -> Iterator[int]:
    start = 0
    for match in _END.finditer(text):
        if match.group().startswith(".") and _NOT_AN_END.search(text[start : match.start() + 1]):
            continue
        start = match.end()
        yield start
