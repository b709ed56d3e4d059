"""What the beginning of a line says: the number of a section, or the mark of a list item."""

from __future__ import annotations

import re

_CHINESE_DIGITS = "〇零一二三四五六七八九十百"
_PART = re.compile(
    rf"第\s*[{_CHINESE_DIGITS}\d]+\s*(?P<unit>[篇部编章节条])(?=[\s:：、　]|[^\s\d,，。;；的个次])"
)
_WORD = re.compile(r"(?:chapter|part|appendix|section|annex)\s+(?:[A-Z]|\d+|[IVXLC]+)\b(?P<rest>.*)", re.I)
_APPENDIX = re.compile(r"附录\s*[A-Z\d一二三四五六七八九十]?(?=[\s:：]|$)")
_DECIMAL = re.compile(
    r"(?P<number>\d{1,3}(?:[.．]\d{1,3}){0,5})(?P<mark>[.．、)]?)(?P<space>[\s　]*)(?P<rest>\S.*)"
)
_CHINESE = re.compile(rf"(?:[（(][{_CHINESE_DIGITS}]{{1,3}}[)）]|[{_CHINESE_DIGITS}]{{1,3}}、)\s*\S")
_BULLET = re.compile(r"[•●○◦▪■□◆◇‣⁃·∙➢➤►▶✓✔*–—-](?:\s+|(?=[\u4e00-\u9fff]))\S?")
_ITEM = re.compile(
    r"(?:[（(]\s*(?:\d{1,2}|[a-zA-Z]|[ivx]{1,4})\s*[)）]|(?:\d{1,2}|[a-zA-Z]|[ivx]{1,4})[)）]|"
    r"\d{1,2}[.．、](?=\s|\D)|[①-⑳❶-❿])\s*\S"
)
_UNIT_LEVELS = {"篇": 1, "部": 1, "编": 1, "章": 1, "节": 2, "条": 3}
_SENTENCE_END = tuple("。；;，,：:.!?！？")
_MAX_HEADING = 70


def heading_level(line: str) -> int:
    """Return the level that the line's numbering gives it as a heading, from 1; 0 if it is none.

    `第三章` and `Chapter 3` are 1, `1.2.3` is 3, `一、` is 2. A single number (`1 Safety`) counts only
    when no mark follows it, as `1.` begins list items more often than headings.
    """
    text = line.strip()
    if not text or len(text) > _MAX_HEADING or text.endswith(_SENTENCE_END):
        return 0
    part = _PART.match(text)
    if part:
        return _UNIT_LEVELS[part["unit"]]
    if _APPENDIX.match(text):
        return 1
    word = _WORD.match(text)
    if word:
        return 1 if len(text) <= 60 else 0
    decimal = _DECIMAL.match(text)
    if decimal:
        return _decimal_level(decimal)
    if _CHINESE.match(text) and len(text) <= 40:
        return 3 if text[0] in "（(" else 2
    return 0


def _decimal_level(match: re.Match[str]) -> int:
    number, rest = match["number"], match["rest"]
    depth = number.replace("．", ".").count(".") + 1
    if not rest[0].isalpha() or _is_unit(rest):
        return 0
    if depth > 1:
        # 3.5kW and 380.5 V are quantities, 1.2.3 油泵 needs no space before Chinese.
        if not match["space"] and rest[0].isascii() and not match["mark"]:
            return 0
        return depth
    if match["mark"] or not match["space"] or number.startswith("0"):
        return 0
    return 1 if rest[0].isupper() or not rest[0].isascii() else 0


def _is_unit(rest: str) -> bool:
    """Return whether a number before `rest` is an amount: `2.5 mm`, `3 个`."""
    return bool(
        re.match(
            r"(?:[a-zµΩ°℃%]{1,3}|[kMG]?[VAWNJ]|[kMG]?(?:Hz|Pa|VA|Ohm)|bar|rpm|[年月日时分秒个台次件级小])(?:[\s,.;/)）。，]|$)",
            rest,
        )
    )


def is_list_item(line: str) -> bool:
    """Return whether the line begins with a bullet, `1.`, `1)`, `(a)`, `①` or the like."""
    return bool(_BULLET.match(line) or _ITEM.match(line))
