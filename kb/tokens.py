"""Splits the context window, and packs what fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kb.sentences import iter_passage_sentences
from kb.types import Chunk, Message, Passage, Span

Count = Callable[[Sequence[Passage]], int]
"""Tokens of the whole rendered prompt with these passages in it."""

_LEAST_CUT_CHARS = 40


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """How the context window is split, in the generator's tokens.

    What is counted is always the whole prompt as the runtime renders it, so the template's overhead is
    part of every count and the prompt never exceeds `prompt_tokens`.
    """

    context_tokens: int
    answer_tokens: int

    @property
    def prompt_tokens(self) -> int:
        """Most tokens of the rendered prompt."""
        return max(0, self.context_tokens - self.answer_tokens)

    def pack(self, passages: Sequence[Passage], *, count: Count) -> list[Passage]:
        """Return the passages that fit, taken best first, in the order given.

        One that does not fit is passed over for a shorter one behind it. If not even the best one fits it
        is cut, at a sentence end where possible; the result is empty only if there is room for nothing.
        """
        kept: list[Passage] = []
        for passage in passages:
            if count([*kept, passage]) <= self.prompt_tokens:
                kept.append(passage)
        if kept or not passages:
            return kept
        for start in (passages[0], replace(passages[0], chunk=replace(passages[0].chunk, context=""))):
            cut = self._cut(start, count=count)
            if cut is not None:
                return [cut]
        return []

    def trim_history(
        self, history: Sequence[Message], *, count: Callable[[Sequence[Message]], int]
    ) -> list[Message]:
        """Return the newest turns that fit, beginning with one of the user; `count` as for `pack`."""
        kept = list(history)
        while kept and (kept[0].role != "user" or count(kept) > self.prompt_tokens):
            kept.pop(0)
        return kept

    def trim_text(self, text: str, *, count: Callable[[str], int]) -> str:
        """Return the longest beginning of `text` that fits; `count` as for `pack`."""
        return text[: _longest(len(text), lambda length: count(text[:length]) <= self.prompt_tokens)]

    def _cut(self, passage: Passage, *, count: Count) -> Passage | None:
        text = passage.chunk.text

        def fits(length: int) -> bool:
            return count([replace(passage, chunk=cut_chunk(passage.chunk, length))]) <= self.prompt_tokens

        ends = [end for _, end in iter_passage_sentences(text)]
        sentences = _longest(len(ends), lambda number: fits(ends[number - 1]))
        length = ends[sentences - 1] if sentences else _longest(len(text), fits)
        if length < min(_LEAST_CUT_CHARS, len(text)):
            return None
        return replace(passage, chunk=cut_chunk(passage.chunk, length))


def cut_chunk(chunk: Chunk, length: int) -> Chunk:
    """Return the chunk with the first `length` characters of its text, spans and rows to match."""
    spans: list[Span] = []
    left = length
    for span in chunk.spans:
        size = min(left, span.char_end - span.char_start)
        if size <= 0:
            break
        spans.append(replace(span, char_end=span.char_start + size))
        left -= size + 1
    text = chunk.text[: sum(span.char_end - span.char_start for span in spans) + len(spans) - 1]
    records = tuple(record for record in chunk.records if all(cell in text for cell in record.values()))
    return replace(chunk, text=text, spans=tuple(spans), records=records)


def _longest(size: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number in 1..size that fits, 0 if none does; what fits may shrink only."""
    low, high = 0, size
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
