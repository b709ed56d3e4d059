"""Bytes to text: which encoding a file without a trustworthy label is in."""

from __future__ import annotations

import codecs
import re

import chardet
from charset_normalizer import from_bytes

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# A superset decodes whatever its subset does, and files labelled with the subset often hold more.
_SUPERSETS = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "gb18030": "gb18030",
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "cp950",
}
_MULTI_BYTE = frozenset({"gb18030", "cp950", "cp932", "cp949", "euc_jp", "iso2022_jp"})
# Western text has fewer bytes above ASCII than this share.
_HIGH_SHARE = 0.3
_SAMPLE_BYTES = 256 * 1024
# What Western European text has beside ASCII; other letters of the code page are rare in it, and what
# Asian or DOS text looks like in it.
_WESTERN_LETTERS = "äöüÄÖÜßàâæçéèêëîïôœùûÀÂÇÉÈÊËÎÏÔÙÛáíñóúÁÍÑÓÚåøÅØÆãõÃÕìòÌÒ"
_WESTERN_MARKS = "°µ±²³§«»·×€©®½¼–—…’¿¡ºª\u00a0"
_WESTERN_QUOTES = "„“”‚‘"
_QUOTE_INSIDE_WORD = re.compile(rf"\w[{_WESTERN_QUOTES}]\w")
_HIGH_RUN = re.compile(rb"[\x80-\xff]+")
# Punctuation and full-width forms, or characters; GB 2312 holds the 3,755 common ones first. No kana.
_GB2312_RUN = re.compile(rb"(?:[\xa1\xa3\xb0-\xf7][\xa1-\xfe])+")
_RARE_SHARE = 0.15
_WORD = re.compile(r"[^\W\d_]+")
_LATIN = re.compile(r"cp125[0247]|iso8859[-_](1|2|3|4|9|10|13|14|15|16)$")


def decode(data: bytes, *, declared: str | None = None) -> tuple[str, str]:
    """Return the text without its byte order mark, and the name of the encoding it was in.

    Order: byte order mark, zero bytes of UTF-16, strict UTF-8, the `declared` encoding if it decodes
    everything, then detection. Never fails: what no encoding explains becomes U+FFFD.
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, errors="replace"), encoding
    wide = _utf16_by_zero_bytes(data)
    if wide:
        return data.decode(wide, errors="replace"), wide
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        pass
    named, detected = _known(declared), _detected(data)
    if detected not in _MULTI_BYTE and _is_simplified_chinese(data):
        detected = "gb18030"
    elif (detected is None or not _LATIN.match(detected)) and _is_western(data):
        detected = "cp1252"
    if named is not None and _is_hollow(named, detected, data):
        named = None
    for candidate in (named, detected, "gb18030", "cp1252"):
        if candidate is None:
            continue
        try:
            return data.decode(candidate), candidate
        except UnicodeDecodeError:
            continue
    best = detected or "utf-8"
    return data.decode(best, errors="replace"), best


def _is_hollow(named: str, detected: str | None, data: bytes) -> bool:
    """Return whether a label is what editors write by default: a Western one on bytes of an Asian text."""
    sample = data[:_SAMPLE_BYTES]
    high = sum(byte > 0x7F for byte in sample)
    return named not in _MULTI_BYTE and detected in _MULTI_BYTE and high > len(sample) * _HIGH_SHARE


def _is_simplified_chinese(data: bytes) -> bool:
    """Return whether all bytes beyond ASCII are pairs of GB 2312, nearly all of common characters.

    A few characters among much ASCII are too little for detection, and usual in lists of parts and alarms.
    Other scripts have words of an odd number of bytes, and Western ones of a single one.
    """
    common = rare = 0
    for run in _HIGH_RUN.findall(data[:_SAMPLE_BYTES]):
        if not _GB2312_RUN.fullmatch(run):
            return False
        leads = run[::2]
        common += sum(0xB0 <= lead <= 0xD7 for lead in leads)
        rare += sum(lead > 0xD7 for lead in leads)
    return common > 0 and rare <= (common + rare) * _RARE_SHARE


def _is_western(data: bytes) -> bool:
    """Return whether a text with few bytes beyond ASCII reads well in cp1252, where detection only guesses.

    Its letters must stand in words with ASCII letters: those of other scripts stand among themselves.
    """
    try:
        text = data[:_SAMPLE_BYTES].decode("cp1252")
    except UnicodeDecodeError:
        return False
    high = [char for char in text if char > "\x7f"]
    if not high or len(high) > len(text) * _HIGH_SHARE:
        return False
    if not set(high) <= {*_WESTERN_LETTERS, *_WESTERN_MARKS, *_WESTERN_QUOTES}:
        return False
    words = [word for word in _WORD.findall(text) if not word.isascii()]
    lone = sum(not any(char.isascii() for char in word) for word in words if len(word) > 1)
    return not lone and not _QUOTE_INSIDE_WORD.search(text)


def _utf16_by_zero_bytes(data: bytes) -> str | None:
    """Name UTF-16 for text whose every second byte is often zero: Latin text, digits, line ends."""
    sample = data[:4096]
    if len(sample) < 4 or len(sample) % 2 or b"\0" not in sample:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    half = len(sample) // 2
    if odd > half * 0.3 and even < half * 0.05:
        return "utf-16-le"
    if even > half * 0.3 and odd < half * 0.05:
        return "utf-16-be"
    if even + odd == 0:
        return None
    return _utf16_by_line_ends(sample)


def _utf16_by_line_ends(sample: bytes) -> str | None:
    """Name UTF-16 for Chinese text, whose only zero bytes are those of line feeds and ASCII marks."""
    for encoding in ("utf-16-le", "utf-16-be"):
        try:
            text = sample.decode(encoding)
        except UnicodeDecodeError:
            continue
        common = len(re.findall(r"[\u4e00-\u9fff\u3000-\u303f\uff00-\uff5e\x20-\x7e\n\r\t]", text))
        if common >= len(text) * 0.95:
            return encoding
    return None


def _known(name: str | None) -> str | None:
    """Return Python's name of a declared encoding, widened to its superset."""
    if not name:
        return None
    try:
        found = codecs.lookup(name.strip().strip("\"'")).name
    except (LookupError, ValueError):
        return None
    if found.startswith(("utf-16", "utf-32")):
        return None
    return _SUPERSETS.get(found, found)


def _detected(data: bytes) -> str | None:
    """Return what chardet says, or charset-normalizer where chardet has no opinion."""
    sample = data[:_SAMPLE_BYTES]
    name = _known(chardet.detect(sample)["encoding"])
    if name is not None:
        return name
    match = from_bytes(sample).best()
    return None if match is None else match.encoding
