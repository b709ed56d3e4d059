"""Takes what a model thinks aloud out of the text it writes."""

from __future__ import annotations

_OPEN, _CLOSE = "<think>", "</think>"


class ThoughtFilter:
    """Drops what stands before `</think>`, in text that arrives in pieces.

    Some chat templates open the thought themselves, so where one is `expected` everything waits for the
    closing tag; else only text that begins with the opening tag does.
    """

    def __init__(self, *, expected: bool) -> None:
        self._expected = expected
        self._held = ""
        self._done = False
        self._begins = False

    def feed(self, text: str) -> str:
        """Take the next piece; return what of it is answer for certain."""
        if self._done:
            return self._trim(text)
        self._held += text
        before, tag, behind = self._held.partition(_CLOSE)
        opened = before.lstrip()
        if tag and (self._expected or opened.startswith(_OPEN)):
            self._done, self._held, self._begins = True, "", True
            return self._trim(behind)
        if self._expected or opened.startswith(_OPEN) or _OPEN.startswith(opened):
            return ""
        return self._release()

    def flush(self) -> str:
        """Return what is left; a thought that never ended is dropped."""
        if self._held.lstrip().startswith(_OPEN):
            self._held = ""
        return self._release()

    def _trim(self, text: str) -> str:
        """Take off the white space between thought and answer."""
        if self._begins:
            text = text.lstrip()
            self._begins = not text
        return text

    def _release(self) -> str:
        text, self._held, self._done = self._held, "", True
        return text
