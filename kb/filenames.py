"""Clean display names for uploaded files, whatever encoding and tricks the client sent.

A name is shown and compared, never used as a path: stored bytes are found by their hash.
"""

from __future__ import annotations

import binascii
import re
import unicodedata
from email.errors import HeaderParseError
from email.header import decode_header
from urllib.parse import unquote_to_bytes

MAX_NAME_BYTES = 255
FALLBACK_NAME = "unnamed"
SEPARATOR = " › "
"""Stands for a slash in the name of a document, because a name has no folders."""

_OWN_NAME_BYTES = 120

_EXTENSION = re.compile(r"\.\w{1,10}$")
_ENCODED_WORD = re.compile(r"=\?[\w-]+\?[bBqQ]\?[^?\s]*\?=")
_EXTENDED_VALUE = re.compile(r"([\w.:-]+)'[\w-]*'(.*)", re.DOTALL)
_PARAMETER = re.compile(
    rb";\s*(?P<key>[\w-]+\*?)\s*=\s*"
    # a quote ends the value unless it is escaped; an escaped quote before `;` or the end ends it
    # too, because the second byte of a GBK character may be a backslash
    rb'(?:"(?P<quoted>(?:\\"(?!\s*(?:;|$))|[^"])*)"|(?P<token>[^;"]*))'
)


def clean_filename(raw: str | bytes) -> str:
    """Return a name to show: one line, no folders, 1 to 255 bytes of UTF-8.

    Bytes are taken as UTF-8, else as GB 18030, else as Windows-1252. In a string, damage done by
    a wrong decoding (UTF-8 or GBK read as Latin-1), percent-encoded UTF-8 and RFC 2047 words are
    repaired.
    """
    text = _decode(raw) if isinstance(raw, bytes) else raw
    return _shorten(_strip(_repair(text))) or FALLBACK_NAME


def name_attachment(parent: str, name: str) -> str:
    """Return the name of a document that came attached to another: `mail.eml › report.pdf`.

    Both are clean names. What is too long is cut, of the parent first.
    """
    own = _shorten(name, max_bytes=_OWN_NAME_BYTES)
    room = MAX_NAME_BYTES - len(f"{SEPARATOR}{own}".encode())
    return f"{_cut(parent, max_bytes=room)}{SEPARATOR}{own}"


def find_disposition_filename(header: bytes) -> str | None:
    """Return the raw file name of a Content-Disposition header, None if it names no file.

    `filename*` (RFC 5987) wins over `filename` where it can be decoded.
    """
    values = {
        match["key"].lower(): match["quoted"] if match["quoted"] is not None else match["token"].strip()
        for match in _PARAMETER.finditer(header)
    }
    extended = values.get(b"filename*")
    if extended is not None:
        decoded = _decode_extended(extended.decode("latin-1"))
        if decoded is not None:
            return decoded
    plain = values.get(b"filename")
    return None if plain is None else _decode(plain.replace(b'\\"', b'"'))


def _decode_extended(value: str) -> str | None:
    """Return the text of an RFC 5987 value such as `UTF-8''%E6%95%85`, None if it isn't one."""
    match = _EXTENDED_VALUE.fullmatch(value)
    if match is None:
        return None
    try:
        return unquote_to_bytes(match[2]).decode(match[1])
    except (UnicodeDecodeError, LookupError):
        return None


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        chinese = _decode_chinese(raw, least=1)
        return chinese if chinese is not None else _decode_western(raw)


def _decode_chinese(raw: bytes, *, least: int) -> str | None:
    """Return the GB 18030 reading if it makes sense as Chinese.

    Nearly any two bytes are some Chinese character, so the common ones (GB 2312 level 1, rows
    0xB0 to 0xD7) must be at least `least` and outnumber the rare ones.
    """
    try:
        text = raw.decode("gb18030")
    except UnicodeDecodeError:
        return None
    common = rare = 0
    for char in text:
        code = char.encode("gb18030")
        if len(code) == 2 and 0xB0 <= code[0] <= 0xD7 and code[1] >= 0xA1:
            common += 1
        elif len(code) > 1 and not (len(code) == 2 and 0xA1 <= code[0] <= 0xA9):
            rare += 1
    return text if common >= least and common > rare else None


def _decode_western(raw: bytes) -> str:
    return "".join(bytes([byte]).decode("cp1252", "replace") for byte in raw).replace("�", "")


def _repair(text: str) -> str:
    """Undo wrong decodings until nothing changes; each step makes the text shorter."""
    while True:
        repaired = _repair_once(text)
        if repaired == text:
            return text
        text = repaired


def _repair_once(text: str) -> str:
    if text.isascii():
        return _decode_ascii_escapes(text)
    raw = _encode_western(text)
    if raw is None:
        return text
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        # two, because one pair of accented capitals ("CRÉÉ") may look like one Chinese character
        return _decode_chinese(raw, least=2) or text


def _encode_western(text: str) -> bytes | None:
    """Return the bytes of which `text` may be the Latin-1 or Windows-1252 reading, else None."""
    raw = bytearray()
    for char in text:
        try:
            raw += char.encode("latin-1") if ord(char) < 0x100 else char.encode("cp1252")
        except UnicodeEncodeError:
            return None
    return bytes(raw)


def _decode_ascii_escapes(text: str) -> str:
    if "%" in text:
        try:
            unquoted = unquote_to_bytes(text).decode("utf-8")
        except UnicodeDecodeError:
            return text
        # "100%25.pdf" may be meant as it stands; %E6%95%85 is not
        return text if unquoted.isascii() else unquoted
    if _ENCODED_WORD.search(text):
        try:
            parts = decode_header(text)
            return "".join(
                part if isinstance(part, str) else part.decode(charset or "ascii") for part, charset in parts
            )
        except (UnicodeDecodeError, LookupError, HeaderParseError, binascii.Error):
            return text
    return text


def _strip(text: str) -> str:
    """Return the last path component without control, format, private and unassigned characters."""
    text = unicodedata.normalize("NFC", text)
    name = re.split(r"[/\\]", text.rstrip("/\\"))[-1]
    kept = "".join(" " if char.isspace() else char for char in name if char.isspace() or _is_shown(char))
    kept = re.sub(r"^[A-Za-z]:", "", kept)
    return " ".join(kept.split()).strip(". ")


def _is_shown(char: str) -> bool:
    # category C: controls, direction overrides, zero-width marks, surrogates, private use
    return not unicodedata.category(char).startswith("C")


def _shorten(name: str, *, max_bytes: int = MAX_NAME_BYTES) -> str:
    """Cut the stem, not the extension, to at most `max_bytes`; never inside a character."""
    match = _EXTENSION.search(name)
    extension = match.group() if match else ""
    return _cut(name.removesuffix(extension), max_bytes=max_bytes - len(extension.encode())) + extension


def _cut(text: str, *, max_bytes: int) -> str:
    if len(text.encode()) <= max_bytes:
        return text
    kept = text.encode()[: max_bytes - len("…".encode())].decode("utf-8", "ignore")
    while kept and unicodedata.combining(kept[-1]):
        kept = kept[:-1]
    return f"{kept.rstrip()}…"
