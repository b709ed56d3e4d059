"""Finds where two documents give different values for what was asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from kb.codes import iter_codes
from kb.evidence import contains_code
from kb.facts import asks_number, asks_what_to_do, iter_numbers, list_numbered
from kb.language import is_cjk
from kb.relevance import Relevance
from kb.units import Unit
from kb.words import get_terms, is_stop_word, squeeze

_TOKEN = re.compile(r"\d+(?:[.,:]\d+)*|[A-Za-zÀ-ɏ]+|[^\W\d_]")
_MONTHS = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_QUANTITY = re.compile(
    rf"(?:\d{{4}}年)?\d{{1,2}}月(?:\d{{1,2}}[日号])?|{_MONTHS} \d{{1,2}}(?:, ?| )\d{{4}}|\d{{1,2}} {_MONTHS},? \d{{4}}"
    r"|[$€£¥]?\s?\d[\d.,:]*\s?(?:million|billion|[A-Za-zΩ°µ%‰℃][\w/°·]{0,7}"
    r"|[万亿千百]?(?:个月|小时|分钟|[\u4e00-\u9fff])?)?",
    re.ASCII | re.IGNORECASE,
)
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_LEAST_TOKENS = 6
_LEAST_ALIKE = 0.6
"""Least share of tokens that two sentences have in common to be versions of one statement."""
_LEAST_CONTEXT = 4
_MOST_VALUE_TOKENS = 10
_MOST_ADDED = 2
_LEAST_RELEVANCE = 0.35
_LEAST_RELEVANCE_UNSAID = 0.5
"""The same, as a share of the best, for what the answer doesn't say."""
_AS_RELEVANT = 0.5
_SAME_WORDS = 0.4
_INSIDE_NAMES = frozenset({"of", "the", "and", "for", "de", "in"})
_NEGATIONS = frozenset("不未无非没禁勿") | {"not", "no", "never", "without"}


@dataclass(frozen=True, slots=True)
class Statement:
    """A unit with those of its words that another document has otherwise."""

    unit: Unit
    value: str


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int
    end: int


class ConflictFinder:
    """Compares what an answer rests on with what other documents say, for one question.

    Two units disagree when they are the same sentence or row but for a value, or when a number was
    asked for and each gives one, in the same unit of measure and nearly the same words. What the
    question names is no value; another code, machine or year is another subject.
    """

    def __init__(self, question: str, units: Sequence[Unit]) -> None:
        self._units = units
        self._relevance = Relevance(question, units)
        self._asked = {token.text for token in _tokenize(question)}
        self._asks_number = asks_number(question)
        self._asks_fact = not asks_what_to_do(question)
        self._years = set(_YEAR.findall(question))
        self._codes = {mention.canonical for mention in iter_codes(question)}

    def find(self, stated: Sequence[Unit], *, said: str) -> list[Statement]:
        """Return the first disagreement as a statement per value, the one that was `said` first.

        `stated` are the units that the answer rests on, in its order. If nothing disagrees with them, the
        other units that are about the question are compared: an answer may have missed the value.
        """
        told = squeeze(said)
        least = _LEAST_RELEVANCE * self._relevance.best
        scores = {id(unit): self._relevance.score(unit) for unit in (*self._units, *stated)}
        unsaid = _LEAST_RELEVANCE_UNSAID * self._relevance.best
        relevant = [unit for unit in self._units if scores[id(unit)] >= unsaid > 0]
        for unit in stated:
            if scores[id(unit)] >= least > 0:
                statements = self._list_statements(unit, told=told)
                if statements:
                    return statements
        if self._asks_fact or self._asks_number:
            for unit in sorted(relevant, key=lambda unit: -scores[id(unit)]):
                if statements := self._list_statements(unit, told=""):
                    return statements
        return []

    def _list_statements(self, unit: Unit, *, told: str) -> list[Statement]:
        statements: dict[str, Statement] = {}
        for other in self._units:
            pair = self._compare(unit, other)
            if pair is None or (told and squeeze(pair[0]) not in told):
                continue
            statements.setdefault(squeeze(pair[0]), Statement(unit, pair[0]))
            statements.setdefault(squeeze(pair[1]), Statement(other, pair[1]))
        return list(statements.values()) if len(statements) > 1 else []

    def _compare(self, unit: Unit, other: Unit) -> tuple[str, str] | None:
        """Return the value of each, if they differ on what was asked."""
        if unit.passage.chunk.document_id == other.passage.chunk.document_id:
            return None
        if unit.is_row != other.is_row or unit.language != other.language:
            return None
        if self._relevance.score(other) < _AS_RELEVANT * self._relevance.score(unit):
            return None
        if not self._have_one_subject(unit, other):
            return None
        return self._find_replaced(unit, other) or self._find_other_number(unit, other)

    def _have_one_subject(self, unit: Unit, other: Unit) -> bool:
        if any(year not in side.passage.chunk.text for year in self._years for side in (unit, other)):
            return False
        if unit.codes != other.codes or list_numbered(unit.text) != list_numbered(other.text):
            return False
        return all(
            contains_code(f"{unit.scope}\n{unit.text}", code)
            == contains_code(f"{other.scope}\n{other.text}", code)
            for code in self._codes
        )

    def _find_replaced(self, unit: Unit, other: Unit) -> tuple[str, str] | None:
        """Return what one sentence has in the place of the other's value, all else being the same."""
        ours, theirs = _tokenize(unit.text), _tokenize(other.text)
        if min(len(ours), len(theirs)) < _LEAST_TOKENS:
            return None
        matcher = SequenceMatcher(
            None, [token.text for token in ours], [token.text for token in theirs], autojunk=False
        )
        if matcher.ratio() < _LEAST_ALIKE:
            return None
        pairs: dict[tuple[str, str], tuple[str, str]] = {}
        for left, right in _list_changes(matcher):
            before, after = ours[slice(*left)], theirs[slice(*right)]
            added = before or after
            if not before or not after:
                if len(added) > _MOST_ADDED or any(token.text in _NEGATIONS for token in added):
                    return None
                continue
            if max(len(before), len(after)) > _MOST_VALUE_TOKENS or self._names_asked(before, after):
                return None
            if _holds_number(before) and _holds_number(after) and not _begin_with_number(before, after):
                # what was measured differs, too
                return None
            if _is_stub(before) or _is_stub(after):
                # 乒乓球 and 网球 differ in their heads only
                before, after = (ours[left[0] : left[1] + 1], theirs[right[0] : right[1] + 1])
            value, rival = _show(unit.text, before), _show(other.text, after)
            pairs.setdefault((squeeze(value), squeeze(rival)), (value, rival))
        if len(pairs) != 1:
            return None
        value, rival = next(iter(pairs.values()))
        if not (_is_value(value) and _is_value(rival)) or squeeze(value) == squeeze(rival):
            return None
        numeric = any(map(str.isdigit, value)) and any(map(str.isdigit, rival))
        fits = numeric if self._asks_number else numeric or self._asks_fact
        return (value, rival) if fits else None

    def _names_asked(self, before: Sequence[_Token], after: Sequence[_Token]) -> bool:
        """Return whether the question names one side: then the other is about something else."""
        return any(all(token.text in self._asked for token in side) for side in (before, after))

    def _find_other_number(self, unit: Unit, other: Unit) -> tuple[str, str] | None:
        """Return the one quantity of each, if a number is asked for and they say nearly the same of it."""
        if not self._asks_number:
            return None
        ours, theirs = set(iter_numbers(unit.text)), set(iter_numbers(other.text))
        if len(ours) != 1 or len(theirs) != 1:
            return None
        value, rival = ours.pop(), theirs.pop()
        if not value.unit or value.unit != rival.unit or value.value == rival.value:
            return None
        words, others = get_terms(unit.text), get_terms(other.text)
        if len(words & others) < _SAME_WORDS * len(words | others):
            return None
        found = _QUANTITY.search(unit.text), _QUANTITY.search(other.text)
        return (found[0].group().strip(), found[1].group().strip()) if found[0] and found[1] else None


def _tokenize(text: str) -> list[_Token]:
    return [_Token(found.group().casefold(), *found.span()) for found in _TOKEN.finditer(text)]


def _list_changes(matcher: SequenceMatcher[str]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the changed places of both sides; changes that a token or two part are one."""
    changes: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for tag, left, left_end, right, right_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        if changes and left - changes[-1][0][1] < _LEAST_CONTEXT // 2:
            changes[-1] = ((changes[-1][0][0], left_end), (changes[-1][1][0], right_end))
        else:
            changes.append(((left, left_end), (right, right_end)))
    return changes


def _is_stub(tokens: Sequence[_Token]) -> bool:
    """Return whether the tokens are one Chinese character, which is seldom a word."""
    return len(tokens) == 1 and is_cjk(tokens[0].text[0])


def _holds_number(tokens: Sequence[_Token]) -> bool:
    return any(token.text[0].isdigit() for token in tokens)


def _begin_with_number(before: Sequence[_Token], after: Sequence[_Token]) -> bool:
    return before[0].text[0].isdigit() and after[0].text[0].isdigit()


def _is_value(words: str) -> bool:
    """Return whether the words name something: sentences worded differently differ in verbs, too."""
    return not any(
        word not in _INSIDE_NAMES and is_stop_word(word) for word in map(str.casefold, words.split())
    )


def _show(text: str, tokens: Sequence[_Token]) -> str:
    """Return the words of the tokens, a number with its unit."""
    start, end = tokens[0].start, tokens[-1].end
    if any(map(str.isdigit, text[start:end])):
        for found in _QUANTITY.finditer(text):
            if found.start() < end and start < found.end():
                start, end = min(start, found.start()), max(end, found.end())
    return " ".join(text[start:end].split())
