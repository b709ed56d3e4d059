"""The language of a question or a chunk, for prompts, messages and search."""

from __future__ import annotations


def is_cjk(char: str) -> bool:
    """Return whether the character is a Chinese character (CJK unified, extension A, compatibility)."""
    return "\u4e00" <= char <= "\u9fff" or "\u3400" <= char <= "\u4dbf" or "\uf900" <= char <= "\ufaff"


def detect_language(text: str) -> str:
    """Return `zh` when Chinese characters outweigh Latin words, else `en`."""
    chinese = sum(map(is_cjk, text))
    words = sum(1 for word in text.split() if sum("a" <= char.lower() <= "z" for char in word) > 1)
    return "zh" if chinese and chinese >= words else "en"
