"""Content words of a text, for measuring how much of one text stands in another."""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache

from kb.language import CJK
from kb.resources import read_prompt

_LATIN = re.compile(r"[a-z0-9]+(?:[._/:#'-][a-z0-9]+)*")
_PARTS = re.compile(r"[._/:#'-]")
_CJK_RUN = re.compile(rf"{CJK}(?:\s*{CJK})*")
# A question asks for the terms of every candidate several times, and the next one of many of the same.
_TEXTS_REMEMBERED = 2048
_WORDS_REMEMBERED = 65_536


@cache
def _english_stop_words() -> frozenset[str]:
    return frozenset(read_prompt("stopwords.en").split())


@cache
def _chinese_stop_words(*, glue: bool = False) -> re.Pattern[str]:
    """Match words that ask or glue but carry no subject; longest first, so that 为什么 goes before 什么."""
    words = read_prompt("stopwords.zh").split() + (read_prompt("glue.zh").split() if glue else [])
    return re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))))


@cache
def _english_glue() -> frozenset[str]:
    return frozenset(map(stem, read_prompt("glue.en").split()))


@cache
def _stop_stems() -> frozenset[str]:
    return frozenset(map(stem, _english_stop_words()))


def is_stop_word(word: str) -> bool:
    """Return whether a lower-case English word, or its stem, asks or glues but carries no subject."""
    return word in _english_stop_words() or word in _stop_stems()


def strip_glue(text: str) -> str:
    """Return the folded text without what only joins an answer's words to its content.

    "E-0471 means that …", "…，处理措施如下": such words need no support. A bar stands in their place, so
    that what was apart stays apart.
    """
    folded = _chinese_stop_words(glue=True).sub("|", fold(text))
    return _LATIN.sub(lambda match: "|" if stem(match.group()) in _english_glue() else match.group(), folded)


def fold(text: str) -> str:
    """Return the NFKC, case-folded form, in which width and case do not matter."""
    return unicodedata.normalize("NFKC", text).casefold()


def squeeze(text: str) -> str:
    """Return the letters and digits of `text`, folded: equal for texts that differ in layout only."""
    return "".join(char for char in fold(text) if char.isalnum())


@lru_cache(maxsize=_WORDS_REMEMBERED)
def stem(word: str) -> str:
    """Return a rough English stem; equal for the usual endings of a word, not a real word itself."""
    if len(word) <= 3 or not word.isalpha():
        return word
    for ending, rest in (("ies", "y"), ("sses", "ss"), ("ing", ""), ("edly", ""), ("ed", ""), ("ly", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)] + rest
            break
    else:
        if word.endswith("s") and not word.endswith(("ss", "us", "is")):
            word = word[:-1]
    if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def get_terms(text: str) -> frozenset[str]:
    """Return the content words: English stems without stop words, Chinese character pairs.

    Chinese is split at question and glue words first, so that no pair spans one; a character that
    stands alone after that is a term of its own.
    """
    folded = fold(text)
    stop = _english_stop_words()
    terms = {stem(word) for word in _iter_latin(folded) if word not in stop}
    for run in _iter_cjk_runs(folded):
        for piece in _chinese_stop_words().split(run):
            if len(piece) == 1:
                terms.add(piece)
            terms.update(piece[i : i + 2] for i in range(len(piece) - 1))
    return frozenset(terms)


@lru_cache(maxsize=_TEXTS_REMEMBERED)
def get_all_terms(text: str) -> frozenset[str]:
    """Return every term that `get_terms` of some other text could ask for, stop words included."""
    folded = fold(text)
    terms = {stem(word) for word in _iter_latin(folded)}
    for run in _iter_cjk_runs(folded):
        terms.update(run)
        terms.update(run[i : i + 2] for i in range(len(run) - 1))
    return frozenset(terms)


def _iter_latin(folded: str) -> list[str]:
    """Return words and codes; a joined one also in its parts."""
    words: list[str] = []
    for match in _LATIN.finditer(folded):
        word = match.group()
        parts = _PARTS.split(word)
        words.extend(parts)
        if len(parts) > 1:
            words.append("".join(parts))
    return [word for word in words if word]


def _iter_cjk_runs(folded: str) -> list[str]:
    """Return the stretches of Chinese characters; white space inside a stretch is layout."""
    return ["".join(run.split()) for run in _CJK_RUN.findall(folded)]


def get_units(text: str) -> list[frozenset[str]]:
    """Return the content of `text` piece by piece, each with the terms that prove it is present.

    A piece is an English content word, or one Chinese character of a content word; a character is
    present when a pair that holds it is, so that pairs which span two words cost nothing.
    """
    folded = fold(text)
    stop = _english_stop_words()
    units: list[frozenset[str]] = []
    for word in dict.fromkeys(_LATIN.findall(folded)):
        parts = _PARTS.split(word)
        if all(map(str.isalpha, parts)):
            units.extend(frozenset({stem(part)}) for part in parts if part not in stop)
        else:
            units.append(frozenset({"".join(parts)}))
    for run in _iter_cjk_runs(folded):
        for piece in _chinese_stop_words().split(run):
            for index, char in enumerate(piece):
                pairs = [piece[i : i + 2] for i in (index - 1, index) if i >= 0 and i + 2 <= len(piece)]
                units.append(frozenset(pairs or [char]))
    return units
