"""Text to search terms: Chinese characters with bigrams, words with their stems, canonical codes."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

from kb.codes import canonicalise, iter_codes
from kb.words import is_stop_word, stem

CODE_PREFIX = "code_"
STEM_PREFIX = "stem_"

# Word characters of any script in runs; Chinese and Japanese script is cut out of them below.
_WORD = re.compile(r"\w+(?:[-.'/_:#]\w+)*")
_IDEOGRAPHS = re.compile(
    r"([\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]+)"
)
_PART = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['’](?:s|t|re|ve|ll|d|m)?$")


def tokenise(text: str) -> list[str]:
    """Return the terms of `text` in its order, repeated ones included; no term holds a space.

    A Chinese run gives each character and each pair of neighbours; a word that is joined by
    hyphens and the like gives itself and its parts; an English word also gives `stem_<its stem>`, so
    that the very word counts twice and another form of it once; a code (see `kb.codes`) also gives
    `code_<canonical form in lower case>`, equal for all its spellings.
    """
    folded = unicodedata.normalize("NFKC", text).lower()
    terms: list[str] = []
    for word in _WORD.findall(folded):
        for index, run in enumerate(_IDEOGRAPHS.split(word)):
            if index % 2:
                terms.extend(_split_ideographs(run))
            else:
                terms.extend(_split_word(run))
    terms.extend(code_term(mention.canonical) for mention in iter_codes(text))
    return terms


def list_query_terms(text: str) -> list[str]:
    """Return the terms to search for, each once; English words that carry no subject only if all are such.

    Single characters are left out where they are part of a pair: see `list_single_characters`.
    """
    paired = set(list_single_characters(text))
    terms = [term for term in dict.fromkeys(tokenise(text)) if term not in paired]
    telling = [term for term in terms if not is_stop_word(term.removeprefix(STEM_PREFIX))]
    return telling or terms


def list_single_characters(text: str) -> list[str]:
    """Return the characters of the text's pairs, each once.

    They find words of one character and other ways to say the same, and many of them are found nearly
    everywhere, which costs time: an index leaves those out.
    """
    pairs = [term for term in tokenise(text) if len(term) == 2 and _IDEOGRAPHS.fullmatch(term)]
    return list(dict.fromkeys(char for pair in pairs for char in pair))


def code_term(code: str) -> str:
    """Return the term under which all spellings of `code` are found."""
    return f"{CODE_PREFIX}{canonicalise(code).lower()}"


def _split_ideographs(run: str) -> list[str]:
    return [*run, *(first + second for first, second in pairwise(run))]


def _split_word(run: str) -> list[str]:
    word = _POSSESSIVE.sub("", run).strip("-.'/_:#")
    parts = _PART.findall(word)
    stems = [f"{STEM_PREFIX}{stem(part)}" for part in parts if part.isascii() and part.isalpha()]
    if len(parts) < 2:
        return [*parts, *stems]
    # An identifier such as max_torque is one word to its reader; e-0471 is e0471 to another.
    return ["".join(parts), *parts, *stems]
