"""Cuts generated text at the first stop sequence, also when it comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopFilter:
    """Passes text on, holding back only what may be the beginning of a stop sequence."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self._sequences = [sequence for sequence in sequences if sequence]
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """Return what may be shown now; sets `stopped` when a sequence was met, and drops the rest."""
        held = self._held + text
        found = [place for sequence in self._sequences if (place := held.find(sequence)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return held[: min(found)]
        keep = max((self._overlap(held, sequence) for sequence in self._sequences), default=0)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def flush(self) -> str:
        """Return what was held back, at the end of the text."""
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _overlap(text: str, sequence: str) -> int:
        """Return the length of the longest beginning of `sequence` at the end of `text`."""
        longest = min(len(text), len(sequence) - 1)
        return next((size for size in range(longest, 0, -1) if text.endswith(sequence[:size])), 0)
