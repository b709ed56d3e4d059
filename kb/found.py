"""Chunks as the indexes found them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from kb.language import count_cjk
from kb.types import Chunk

_LEAST_CONTENT = 0.35
_CHINESE_SHARE = 0.08
_TEXTS_REMEMBERED = 4096
"""The same chunks are found again and again."""


@dataclass(frozen=True, slots=True)
class Found:
    """A visible chunk with what one index said of it.

    `centred` is set for chunks in another language: the cosine above that to unrelated questions.
    `languages` are those in which it can be read.
    """

    chunk: Chunk
    document_name: str
    score: float
    centred: float = 0.0
    languages: frozenset[str] = frozenset()

    def has_content(self) -> bool:
        """Return False for rows of dots and rules, such as the lines of a table of contents."""
        return _has_content(self.chunk.text)

    def is_in(self, language: str) -> bool:
        """Return whether a reader of this language can read it."""
        return language in self.languages


def find_languages(chunk: Chunk) -> frozenset[str]:
    """Return in which of `zh` and `en` a reader can read the chunk; a bilingual page is in both.

    A table row of codes and numbers is in the language of its headings.
    """
    return _find_languages(chunk.indexed_text)


@lru_cache(maxsize=_TEXTS_REMEMBERED)
def _has_content(text: str) -> bool:
    marks = "".join(text.split())
    return sum(map(str.isalnum, marks)) > _LEAST_CONTENT * len(marks)


@lru_cache(maxsize=_TEXTS_REMEMBERED)
def _find_languages(text: str) -> frozenset[str]:
    letters = sum(map(str.isalpha, text))
    chinese = count_cjk(text)
    readable = {"zh": chinese > _CHINESE_SHARE * letters, "en": chinese * 2 < letters}
    return frozenset(language for language, is_readable in readable.items() if is_readable)


def make_found(chunk: Chunk, document_name: str, *, score: float) -> Found:
    """Return the chunk as found, with the languages in which it can be read."""
    return Found(chunk, document_name, score=score, languages=find_languages(chunk))
