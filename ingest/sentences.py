"""Where a text may be cut: at sentence ends first, then at clauses, then between words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kb.language import is_cjk

Piece = tuple[int, int]
"""A half-open slice of a text, without white space at either end."""

CountTokens = Callable[[str], int]

_CLOSERS = "\"'”’」』）)】》\\]"
_SENTENCE_END = re.compile(rf"(?:[。！？…]+|[.!?]+(?=[{_CLOSERS}]*(?:\s|$)))[{_CLOSERS}]*\s*")
_CLAUSE_END = re.compile(r"[；，、：]+\s*|[;,:]\s+|\s[-–—]\s|\n+|——")
_LINE_END = re.compile(r"\n+")
_PARAGRAPH_END = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+|\f")
_CELL_END = re.compile(r"\s*\|\s*|\t+|\n+|\s{2,}")

# A full stop after one of these ends no sentence.
_ABBREVIATION = re.compile(
    r"e\.g|i\.e|etc|vs|cf|approx|ca|figs?|nos?|nr|sect?|chap|ch|pp?|vol|ed|eq|refs?|tab|max|min|mrs?|ms|dr|st|"
    r"inc|ltd|co|resp|incl|excl|temp|dia|rev|ver|para|[a-z]",
    re.IGNORECASE,
)
_LAST_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.]*[A-Za-z0-9])?$")


def split_sentences(text: str, start: int, end: int) -> list[Piece]:
    """Return the sentences of `text[start:end]`, Chinese and English, in order."""
    return _cut(text, start, end, _iter_sentence_ends)


def split_lines(text: str, start: int, end: int) -> list[Piece]:
    """Return the lines of `text[start:end]` that hold more than white space."""
    return _cut(text, start, end, _ends_of(_LINE_END))


def split_paragraphs(text: str, start: int, end: int) -> list[Piece]:
    """Return the paragraphs of `text[start:end]`, which are parted by blank lines."""
    return _cut(text, start, end, _ends_of(_PARAGRAPH_END))


def fit_prose(text: str, piece: Piece, *, limit: int, count_tokens: CountTokens) -> list[tuple[Piece, int]]:
    """Return `piece`, or its parts if it is longer than `limit`, each with its tokens.

    Parts end at clauses where that is enough, else between words, else between characters.
    """
    return _fit(text, piece, limit, count_tokens, (_ends_of(_CLAUSE_END), _iter_word_ends))


def fit_row(text: str, piece: Piece, *, limit: int, count_tokens: CountTokens) -> list[tuple[Piece, int]]:
    """Like `fit_prose` for a table row, which is cut between cells first."""
    return _fit(
        text,
        piece,
        limit,
        count_tokens,
        (_ends_of(_CELL_END), _iter_sentence_ends, _ends_of(_CLAUSE_END), _iter_word_ends),
    )


_FindEnds = Callable[[str, int, int], Iterator[int]]


def _cut(text: str, start: int, end: int, find_ends: _FindEnds) -> list[Piece]:
    pieces = []
    at = start
    for cut in (*find_ends(text, start, end), end):
        piece = _strip(text, at, cut)
        if piece[0] < piece[1]:
            pieces.append(piece)
        at = cut
    return pieces


def _strip(text: str, start: int, end: int) -> Piece:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def _ends_of(pattern: re.Pattern[str]) -> _FindEnds:
    def find_ends(text: str, start: int, end: int) -> Iterator[int]:
        for match in pattern.finditer(text, start, end):
            yield match.end()

    return find_ends


def _iter_sentence_ends(text: str, start: int, end: int) -> Iterator[int]:
    at = start
    for match in _SENTENCE_END.finditer(text, start, end):
        if text[match.start()] == "." and not _is_full_stop(text, at, match):
            continue
        at = match.end()
        yield at


def _is_full_stop(text: str, sentence_start: int, match: re.Match[str]) -> bool:
    """Tell the end of a sentence from the dot of an abbreviation, an initial or a list number."""
    if match.end() < len(text) and text[match.end()].islower():
        return False
    before = _LAST_WORD.search(text, sentence_start, match.start())
    if before is None:
        return True
    word = before.group()
    if _ABBREVIATION.fullmatch(word):
        return False
    opens = not text[sentence_start : before.start()].strip()
    return not (opens and word.replace(".", "").isdigit())


def _iter_word_ends(text: str, start: int, end: int) -> Iterator[int]:
    for at in range(start + 1, end):
        if text[at - 1].isspace() or is_cjk(text[at - 1]) or is_cjk(text[at]):
            yield at


def _fit(
    text: str, piece: Piece, limit: int, count_tokens: CountTokens, cutters: tuple[_FindEnds, ...]
) -> list[tuple[Piece, int]]:
    tokens = count_tokens(text[piece[0] : piece[1]])
    if tokens <= limit:
        return [(piece, tokens)]
    if not cutters:
        return _halve(text, piece, limit, count_tokens)
    fitted: list[tuple[Piece, int]] = []
    for part in _cut(text, *piece, cutters[0]):
        fitted.extend(_fit(text, part, limit, count_tokens, cutters[1:]))
    return _join(text, fitted, limit, count_tokens)


def _halve(text: str, piece: Piece, limit: int, count_tokens: CountTokens) -> list[tuple[Piece, int]]:
    start, end = piece
    tokens = count_tokens(text[start:end])
    if tokens <= limit or end - start == 1:
        return [(piece, tokens)]
    middle = (start + end) // 2
    return _halve(text, (start, middle), limit, count_tokens) + _halve(
        text, (middle, end), limit, count_tokens
    )


def _join(
    text: str, parts: list[tuple[Piece, int]], limit: int, count_tokens: CountTokens
) -> list[tuple[Piece, int]]:
    """Join neighbours as far as they fit: the sum of their tokens guides, one count decides."""
    joined: list[tuple[Piece, int]] = []
    run: list[tuple[Piece, int]] = []

    def close() -> None:
        while run:
            whole = (run[0][0][0], run[-1][0][1])
            tokens = run[0][1] if len(run) == 1 else count_tokens(text[whole[0] : whole[1]])
            if tokens <= limit or len(run) == 1:
                joined.append((whole, tokens))
                run.clear()
            else:
                rest = run[len(run) // 2 :]
                del run[len(run) // 2 :]
                close()
                run.extend(rest)

    total = 0
    for part in parts:
        if run and total + part[1] > limit:
            close()
            total = 0
        run.append(part)
        total += part[1]
    close()
    return joined
