"""Answers made of sentences that stand in the passages, when no model writes."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kb.codes import iter_codes
from kb.language import is_cjk
from kb.types import Chunk, GenerationDelta, GenerationEnd, GenerationEvent, GenerationRequest, Passage

_CONTEXT_TOKENS = 8192
_CODE_WEIGHT = 8.0  # a sentence with the asked code beats any number of shared words
_CONTEXT_SHARE = 0.5  # a word in the heading path or table header counts half
_RANK_DECAY = 0.1
_LEAST_SHARE_OF_BEST = 0.5
_WORD = re.compile(r"[a-z0-9]+(?:[-'][a-z0-9]+)*")
_SENTENCE_END = re.compile(r"[。！？；!?]+[”’」』）)\"']*|\.(?=\s+[^\sa-z0-9])|\n+")
_MARKER = re.compile(r"\[(\d+)\]")
_EMPTY_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "can",
        "do",
        "does",
        "for",
        "from",
        "how",
        "i",
        "if",
        "in",
        "is",
        "it",
        "its",
        "me",
        "my",
        "of",
        "on",
        "or",
        "our",
        "that",
        "the",
        "their",
        "there",
        "this",
        "to",
        "was",
        "what",
        "when",
        "where",
        "which",
        "who",
        "why",
        "will",
        "with",
        "you",
        "your",
    ]
)


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    passage_index: int
    terms: frozenset[str]
    codes: frozenset[str]


class ExtractiveGenerator:
    """Quotes the best sentences and table rows, each followed by the marker of its passage.

    A sentence is scored by the words and Chinese bigrams it shares with the question, each weighted by its
    rarity among the sentences, by the codes it shares, and by the rank of its passage. When the
    question names a code, sentences about other codes are never quoted.
    """

    def __init__(self, *, max_sentences: int = 3) -> None:
        self._max_sentences = max_sentences

    @property
    def name(self) -> str:
        """See `kb.ports.Generator`."""
        return "extractive"

    @property
    def mode(self) -> str:
        """See `kb.ports.Generator`."""
        return "extractive"

    def get_context_limit(self) -> int:
        """See `kb.ports.Generator`."""
        return _CONTEXT_TOKENS

    def ping(self) -> str:
        """See `kb.ports.Generator`."""
        return "quotes sentences; needs no runtime"

    def stream(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        """See `kb.ports.Generator`; no passage, no delta. No tokens are counted, as no model runs."""
        separator = ""
        for sentence in self._choose(request.question, request.passages):
            quoted = _MARKER.sub(r"(\1)", sentence.text)  # a printed [2] must not look like a citation
            yield GenerationDelta(f"{separator}{quoted} [{sentence.passage_index + 1}]")
            separator = "\n"
        yield GenerationEnd("stop", prompt_tokens=0, completion_tokens=0)

    def _choose(self, question: str, passages: Sequence[Passage]) -> list[_Sentence]:
        asked_codes = _find_codes(question)
        sentences = [
            sentence
            for sentence in _iter_sentences(passages)
            if not _is_about_another_code(
                sentence.codes, asked_codes, _find_codes(passages[sentence.passage_index].chunk.context)
            )
        ]
        scored = self._score(question, asked_codes, sentences, passages)
        best = max(scored.values(), default=0.0)
        if best == 0:
            # Nothing in common, as in a question in another language: trust the ranking, unless a code
            # was asked for, which is the same in every language.
            return [] if asked_codes else sentences[:1]
        chosen = sorted(scored, key=lambda index: (-scored[index], index))[: self._max_sentences]
        chosen = [index for index in chosen if scored[index] >= _LEAST_SHARE_OF_BEST * best]
        return [sentences[index] for index in sorted(chosen)]

    def _score(
        self,
        question: str,
        asked_codes: frozenset[str],
        sentences: Sequence[_Sentence],
        passages: Sequence[Passage],
    ) -> dict[int, float]:
        """Return the score of each sentence that shares something with the question, by its place."""
        asked = _find_terms(question)
        spread = Counter(term for sentence in sentences for term in sentence.terms & asked)
        rarity = {term: math.log(1 + len(sentences) / count) for term, count in spread.items()}
        contexts = [passage.chunk.context for passage in passages]
        context_terms = [_find_terms(context) for context in contexts]
        context_codes = [_find_codes(context) for context in contexts]
        scores: dict[int, float] = {}
        seen: set[str] = set()
        for index, sentence in enumerate(sentences):
            if sentence.text in seen:
                continue
            seen.add(sentence.text)
            around = (context_terms[sentence.passage_index] & asked) - sentence.terms
            score = sum(rarity[term] for term in sentence.terms & asked)
            score += _CONTEXT_SHARE * sum(rarity.get(term, 1.0) for term in around)
            codes = sentence.codes | context_codes[sentence.passage_index]
            score += _CODE_WEIGHT * len(codes & asked_codes)
            if score > 0:
                scores[index] = score / (1 + _RANK_DECAY * sentence.passage_index)
        return scores


def _is_about_another_code(codes: frozenset[str], asked: frozenset[str], around: frozenset[str]) -> bool:
    """Return whether a sentence names codes, but none that the question or its own heading would allow.

    Codes that begin with the same letters are of one kind (E-0471, E-0472); a model's number in the
    heading does not vouch for a row about another fault.
    """
    if not codes or not asked:
        return False
    if not (codes | around) & asked:
        return True
    for kind in {_get_kind(code) for code in asked}:
        asked_of_kind = {code for code in asked if _get_kind(code) == kind}
        named_of_kind = {code for code in codes if _get_kind(code) == kind}
        if named_of_kind and not (named_of_kind | around) & asked_of_kind:
            return True
    return False


def _get_kind(code: str) -> str:
    return code.rstrip("0123456789") if code[:1].isalpha() else code[:2]


def _iter_sentences(passages: Sequence[Passage]) -> Iterator[_Sentence]:
    """Yield the sentences and table rows of all passages, in order."""
    for index, passage in enumerate(passages):
        for text in _split(passage.chunk):
            yield _Sentence(text, index, _find_terms(text), _find_codes(text))


def _split(chunk: Chunk) -> Iterator[str]:
    """Yield the chunk's table rows whole and the rest of its text in sentences."""
    place = 0
    for start, end in _iter_rows(chunk):
        yield from _split_prose(chunk.text[place:start])
        yield " ".join(chunk.text[start:end].split())
        place = end
    yield from _split_prose(chunk.text[place:])


def _iter_rows(chunk: Chunk) -> Iterator[tuple[int, int]]:
    """Yield where each record of the chunk stands in its text, extended to whole lines."""
    place = 0
    for record in chunk.records:
        cells = [cell.strip() for cell in record.values() if cell.strip()]
        found = [chunk.text.find(cell, place) for cell in cells]
        if not cells or min(found) < 0:
            continue
        start = chunk.text.rfind("\n", 0, min(found)) + 1
        last = max(at + len(cell) for at, cell in zip(found, cells, strict=True))
        end = chunk.text.find("\n", last)
        end = len(chunk.text) if end < 0 else end
        if start >= place:
            yield start, end
            place = end


def _split_prose(text: str) -> Iterator[str]:
    place = 0
    for match in _SENTENCE_END.finditer(text):
        if sentence := text[place : match.end()].strip():
            yield sentence
        place = match.end()
    if sentence := text[place:].strip():
        yield sentence


def _find_terms(text: str) -> frozenset[str]:
    """Return English words and Chinese bigrams; a Chinese character that stands alone is its own term."""
    folded = unicodedata.normalize("NFKC", text).lower()
    terms = {word for word in _WORD.findall(folded) if word not in _EMPTY_WORDS}
    run = ""
    for char in f"{folded} ":
        if is_cjk(char):
            run += char
            continue
        if run:
            terms |= {run[at : at + 2] for at in range(max(1, len(run) - 1))}
        run = ""
    return frozenset(terms)


def _find_codes(text: str) -> frozenset[str]:
    return frozenset(mention.canonical for mention in iter_codes(text))
