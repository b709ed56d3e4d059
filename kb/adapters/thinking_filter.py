"""Parts a model's reasoning from its answer, also when the marks come in pieces."""

from __future__ import annotations

import re
from enum import Enum, auto

_OPEN, _CLOSE = "<think>", "</think>"
_MARKS = re.compile(f"({_OPEN}|{_CLOSE})")


class _Place(Enum):
    UNKNOWN = auto()
    REASONING = auto()
    ANSWER = auto()


class ThinkingFilter:
    """Takes generated text, gives the answer; what stands between the marks goes to `reasoning`.

    `begins_inside`: the prompt may have opened the reasoning already, so that only the closing mark
    comes. The text is held back then until a mark comes; if none does, all of it was the answer, or
    reasoning that was cut.
    """

    def __init__(self, *, begins_inside: bool) -> None:
        self.reasoning = ""
        self._place = _Place.UNKNOWN if begins_inside else _Place.ANSWER
        self._undecided: list[str] = []
        self._held = ""
        self._strips = False

    def feed(self, text: str) -> str:
        """Return what of the answer may be shown now."""
        held = self._held + text
        keep = max(_overlap(held, _OPEN), _overlap(held, _CLOSE))
        self._held = held[len(held) - keep :]
        return "".join(self._sort(piece) for piece in _MARKS.split(held[: len(held) - keep]) if piece)

    def flush(self, *, cut: bool = False) -> str:
        """Return what was held back, at the end of the text; `cut`: the model was not done."""
        rest = self._sort(self._held) if self._held else ""
        self._held = ""
        if self._place is _Place.UNKNOWN:
            text, self._undecided = "".join(self._undecided), []
            self.reasoning += text if cut else ""
            return "" if cut else text
        return rest

    def _sort(self, piece: str) -> str:
        """Put a mark or a stretch without marks where it belongs; return what is answer."""
        if piece in (_OPEN, _CLOSE):
            if self._place is _Place.UNKNOWN:
                self.reasoning += "".join(self._undecided)
                self._undecided = []
            self._strips = self._strips or self._place is not _Place.ANSWER
            self._place = _Place.REASONING if piece == _OPEN else _Place.ANSWER
            return ""
        if self._place is _Place.UNKNOWN:
            self._undecided.append(piece)
            return ""
        if self._place is _Place.REASONING:
            self.reasoning += piece
            return ""
        if self._strips:  # reasoning leaves empty lines before the answer
            piece = piece.lstrip()
            self._strips = not piece
        return piece


def _overlap(text: str, mark: str) -> int:
    """Return the length of the longest beginning of the mark that the text ends with."""
    longest = min(len(text), len(mark) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(mark[:size])), 0)
