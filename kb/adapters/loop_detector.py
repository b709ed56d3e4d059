"""Notices that a model writes the same again and again."""

from __future__ import annotations

_WINDOW_CHARS = 4000
_LEAST_REPEATS = 4
_LEAST_CHARS = 120
_MOST_PERIOD_CHARS = 400
_LOOK_EVERY_CHARS = 32


class LoopDetector:
    """Fed with text as it comes, says when its end is one piece, four times or more in a row.

    A piece may be a line, a phrase or a character; all repetitions together are at least 120 characters
    long, so that lists, rows of dashes and short repeated cells pass.
    """

    def __init__(self) -> None:
        self._text = ""
        self._unseen = 0

    def feed(self, text: str) -> bool:
        """Take the next piece; return whether the text has begun to loop."""
        self._text = (self._text + text)[-_WINDOW_CHARS:]
        self._unseen += len(text)
        if self._unseen < _LOOK_EVERY_CHARS:
            return False
        self._unseen = 0
        return _find_period(self._text) > 0


def _find_period(text: str) -> int:
    """Return the length of the piece that the text ends with over and over, 0 if there is none."""
    if len(text) < _LEAST_CHARS:
        return 0
    # the last few characters must have stood one period earlier: look only at those places
    probe = text[-16:]
    place = len(text) - len(probe)
    while (place := text.rfind(probe, 0, place + len(probe) - 1)) >= 0:
        period = len(text) - len(probe) - place
        if period > _MOST_PERIOD_CHARS:
            return 0
        needed = max(_LEAST_CHARS, _LEAST_REPEATS * period)
        if len(text) >= needed and text[-needed:-period] == text[len(text) - needed + period :]:
            piece = text[-period:]
            if any(char.isalnum() for char in piece):
                return period
    return 0
