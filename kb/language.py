"""The language of a question or a chunk, for prompts, messages and search."""

from __future__ import annotations

import re

CJK = "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff]"
"""Class of a regular expression: Chinese characters (CJK unified, extension A, compatibility)."""

_CJK = re.compile(CJK)


def count_cjk(text: str) -> int:
    """Return how many characters of the text are Chinese."""
    return len(_CJK.findall(text))


def is_cjk(char: str) -> bool:
    """Return whether the character is a Chinese character (CJK unified, extension A, compatibility)."""
    return "\u4e00" <= char <= "\u9fff" or "\u3400" <= char <= "\u4dbf" or "\uf900" <= char <= "\ufaff"


def detect_language(text: str) -> str:
    """Return `zh` when Chinese characters outweigh Latin words, else `en`."""
    chinese = count_cjk(text)
    words = sum(1 for word in text.split() if sum("a" <= char.lower() <= "z" for char in word) > 1)
    return "zh" if chinese and chinese >= words else "en"
