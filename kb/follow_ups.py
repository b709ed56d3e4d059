"""Completes a question that leans on earlier turns, so that it can be searched for by itself."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from kb.codes import iter_codes
from kb.language import detect_language
from kb.types import Message
from kb.words import get_units

_OPENING = re.compile(
    r"^(?:还有|还会|还能|还要|那|另外|其他|其它|别的|再|除此|除了|为什么呢|为啥|具体|然后|接着|如果还|要是还|它|他们|这|上面|上述|前面|刚才)"
    r"|^why(?: not)?\s*\?*$"
    r"|^(?:and|but|or|so|then|what about|how about|anything else|any other|any more|what else|else"
    r"|which one|what if (?:it|that|this)|is (?:it|that|this|there another)|does (?:it|that|this)|can (?:it|that|this))\b",
    re.IGNORECASE,
)
_POINTING = re.compile(
    r"它|该(?:故障|报警|代码|设备|机器|参数|零件|步骤)|这(?:个|种|些|台|样|里)|那(?:个|种|些|台|样|里)|上述|上面|刚才|前面|别的|其他|其它|还有"
    r"|\b(?:it|its|they|them|their|that one|this one|these|those|the same|the other|others?|above|else)\b",
    re.IGNORECASE,
)
_END = re.compile(r"呢\s*[?？]?\s*$")
_MOST_UNITS = {"zh": 8, "en": 4}
"""Content, in characters or words, from which on a question that points at something says itself at what."""
_FILLER = re.compile(
    r"^(?:那么?|and|but|so|then|what about|how about)\s*|[呢吗]?\s*[?？。.!！]*\s*$", re.IGNORECASE
)
_MOST_CARRIED_CHARS = 160
_MOST_COMPLETED_CHARS = 300


def leans_on_history(question: str, history: Sequence[Message]) -> bool:
    """Return whether the question can't be understood without an earlier one.

    It opens or ends like the continuation of a talk, or is short and points at something; a question that
    names a code stands by itself unless the code is all it says.
    """
    if not any(turn.role == "user" for turn in history):
        return False
    text = unicodedata.normalize("NFKC", question).strip()
    if _codes(text):
        return bool((_OPENING.search(text) or _END.search(text)) and not _get_predicate(text))
    units = len(get_units(text))
    language = detect_language(text)
    if _OPENING.search(text) or _END.search(text):
        return units <= 2 * _MOST_UNITS[language]
    return bool(_POINTING.search(text)) and units <= _MOST_UNITS[language]


def carry_over(question: str, history: Sequence[Message]) -> str:
    """Return the question with the codes of the last question that stood by itself, or with all its words.

    A question that only names another code is the earlier one with that code in the place of its own.
    """
    earlier = [turn.content.strip() for turn in history if turn.role == "user" and turn.content.strip()]
    subject = ""
    for place in range(len(earlier) - 1, -1, -1):
        subject = earlier[place]
        before = [Message("user", text) for text in earlier[:place]]
        if not leans_on_history(subject, before):
            break
    subject = subject[:_MOST_CARRIED_CHARS]
    asked, known = _codes(question), _codes(subject)
    if asked:
        return _exchange_codes(subject, asked) if known else f"{subject} {question}".strip()
    if known:
        return f"{' '.join(known)} {question}"
    return f"{subject.rstrip('?？。.!！ ')} {question}"


def is_faithful(completed: str, question: str, history: Sequence[Message]) -> bool:
    """Return whether a completed question keeps to what was said: no new code or number, none of its own lost."""
    said = "\n".join([*(turn.content for turn in history), question])
    if not 0 < len(completed) <= _MOST_COMPLETED_CHARS or "\n" in completed.strip():
        return False
    if detect_language(completed) != detect_language(question):
        return False
    known = {mention.canonical for mention in iter_codes(said)}
    new = {mention.canonical for mention in iter_codes(completed)}
    own = {mention.canonical for mention in iter_codes(question)}
    carried = {mention.canonical for mention in iter_codes(carry_over(question, history))}
    numbers = set(re.findall(r"\d+", completed)) <= set(re.findall(r"\d+", said))
    return numbers and new <= known and own <= new and carried <= new


def _codes(text: str) -> list[str]:
    return list(dict.fromkeys(mention.text for mention in iter_codes(text)))


def _get_predicate(text: str) -> bool:
    """Return whether the text says more than its codes and fillers."""
    for mention in reversed(list(iter_codes(text))):
        text = f"{text[: mention.char_start]} {text[mention.char_end :]}"
    return bool(get_units(_FILLER.sub(" ", text.strip())))


def _exchange_codes(subject: str, codes: Sequence[str]) -> str:
    """Return the earlier question with the new codes in the place of its first; its other codes go."""
    mentions = list(iter_codes(subject))
    for number, mention in reversed(list(enumerate(mentions))):
        new = " ".join(codes) if number == 0 else ""
        subject = f"{subject[: mention.char_start]}{new}{subject[mention.char_end :]}"
    return " ".join(subject.split())
