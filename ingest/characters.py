"""Characters as files hold them, made clean: what is stripped, what is joined, what counts as a word."""

from __future__ import annotations

import re
import unicodedata

_LIGATURES = {
    "ﬀ": "ff",
    "ﬁ": "fi",
    "ﬂ": "fl",
    "ﬃ": "ffi",
    "ﬄ": "ffl",
    "ﬅ": "st",
    "ﬆ": "st",
}
_DROPPED = "\u00ad\u200b\u2060\ufeff\ufffe\uffff"
_SPACES = (
    "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\t\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029"
)
_CLEAN = str.maketrans(
    {
        **{chr(code): None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t\v\f\x85"},
        **dict.fromkeys(_DROPPED),
        **dict.fromkeys(_SPACES, " "),
        **_LIGATURES,
    }
)
_RUNS_OF_SPACE = re.compile(r" {2,}")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_CID = re.compile(r"\(cid:\d+\)")
_HYPHENS = "-\u2010\u00ad"
_WORD = re.compile(r"[^\W_]+(?:['’._:/#@+-][^\W_]+)*")


def clean_text(raw: str) -> str:
    """Return `raw` without control characters, NULs, lone surrogates and ligatures; line feeds stay."""
    text = _LONE_SURROGATE.sub("\ufffd", raw.replace("\r\n", "\n").replace("\r", "\n"))
    return text.translate(_CLEAN)


def clean_line(raw: str) -> str:
    """Return `raw` clean, on one line, with single spaces and none at its ends."""
    return _RUNS_OF_SPACE.sub(" ", join_lines(clean_text(raw).split("\n"))).strip()


def is_wide(char: str) -> bool:
    """Return whether a script without spaces between words uses the character: Chinese, kana, marks."""
    return (
        "\u3000" <= char <= "\u30ff"
        or "\u3400" <= char <= "\u4dbf"
        or "\u4e00" <= char <= "\u9fff"
        or "\uf900" <= char <= "\ufaff"
        or "\uff00" <= char <= "\uffef"
        or "\u2e80" <= char <= "\u2fdf"
        or "\U00020000" <= char <= "\U0003ffff"
    )


def joint(former: str, following: str) -> tuple[int, str]:
    """Return how many characters to drop at the end of `former` and what to put before `following`.

    Undoes hyphenation between lower-case letters, keeps the hyphen of a broken code or compound,
    and puts no space between characters of scripts that have none.
    """
    if not former or not following:
        return 0, ""
    last, first = former[-1], following[0]
    if last in _HYPHENS and len(former) > 1 and former[-2].isalnum():
        if former[-2].islower() and first.islower():
            return 1, ""
        if first.isalnum():
            return 0, ""
    if is_wide(last) and is_wide(first):
        return 0, ""
    return 0, " "


def join_lines(lines: list[str]) -> str:
    """Return the lines as running text, by the rules of `joint`; blank lines are left out."""
    text = ""
    for raw in lines:
        line = raw.strip()
        if not line:
            continue
        drop, glue = joint(text, line)
        text = text[: len(text) - drop] + glue + line
    return text


def count_words(text: str) -> int:
    """Return the number of words; each Chinese, Japanese or other wide character counts as one."""
    count = 0
    for word in _WORD.findall(text):
        wide = sum(map(is_wide, word))
        count += wide + (1 if wide < len(word) else 0)
    return count


def undecodable_share(text: str) -> float:
    """Return the share of replacement, private-use, control and `(cid:n)` characters, 0..1."""
    marks = _CID.findall(text)
    total = sum(1 for char in text if not char.isspace()) - sum(len(mark) - 1 for mark in marks)
    if total <= 0:
        return 0.0
    bad = len(marks) + sum(_is_undecodable(char) for char in text)
    return min(1.0, bad / total)


def _is_undecodable(char: str) -> bool:
    if char == "\ufffd":
        return True
    if char.isspace() or char < "\u0100":
        return unicodedata.category(char) == "Cc" and not char.isspace()
    return unicodedata.category(char) in ("Co", "Cn", "Cs")
