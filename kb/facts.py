"""What must not change between a source and an answer: numbers with units, codes, prohibitions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from kb.codes import iter_codes
from kb.evidence import contains_code

# One group per unit; the first spelling is its name. Spellings are compared folded, without spaces.
_UNIT_GROUPS = (
    ("mm", "毫米", "millimeter", "millimeters", "millimetre", "millimetres"),
    ("cm", "厘米", "公分", "centimeter", "centimeters", "centimetre", "centimetres"),
    ("m", "米", "meter", "meters", "metre", "metres"),
    ("km", "公里", "千米", "kilometer", "kilometers", "kilometre", "kilometres"),
    ("um", "μm", "µm", "微米", "micron", "microns"),
    ("inch", "inches", "英寸"),
    ("foot", "feet", "ft", "英尺"),
    ("kg", "公斤", "千克", "kilogram", "kilograms"),
    ("g", "克", "gram", "grams"),
    ("mg", "毫克"),
    ("t", "吨", "ton", "tons", "tonne", "tonnes"),
    ("lb", "lbs", "磅", "pound", "pounds"),
    ("mpa", "兆帕"),
    ("kpa", "千帕"),
    ("pa", "帕"),
    ("bar", "巴"),
    ("psi",),
    ("s", "秒", "秒钟", "sec", "secs", "second", "seconds"),
    ("ms", "毫秒", "millisecond", "milliseconds"),
    ("us", "μs", "µs", "微秒"),
    ("ns", "纳秒", "nanosecond", "nanoseconds"),
    ("min", "分钟", "minute", "minutes", "mins"),
    ("h", "小时", "个小时", "hr", "hrs", "hour", "hours"),
    ("d", "天", "日", "day", "days"),
    ("week", "周", "星期", "个星期", "weeks"),
    ("month", "月", "个月", "months"),
    ("year", "年", "years"),
    ("°c", "℃", "摄氏度", "度", "degc", "deg", "degree", "degrees", "°", "celsius"),
    ("°f", "℉", "华氏度", "degf"),
    ("v", "伏", "伏特", "vdc", "vac", "volt", "volts"),
    ("mv", "毫伏"),
    ("kv", "千伏"),
    ("a", "安", "安培", "amp", "amps", "ampere", "amperes"),
    ("ma", "毫安"),
    ("w", "瓦", "瓦特", "watt", "watts"),
    ("kw", "千瓦", "kilowatt", "kilowatts"),
    ("kwh", "千瓦时", "度电"),
    ("hz", "赫兹", "赫", "hertz"),
    ("khz", "千赫"),
    ("mhz", "兆赫"),
    ("rpm", "转/分", "转/分钟", "r/min", "转每分"),
    ("nm", "n·m", "n.m", "牛米", "牛·米"),
    ("n", "牛", "牛顿"),
    ("kn", "千牛"),
    ("ω", "欧", "欧姆", "ohm", "ohms"),
    ("kω", "千欧", "kohm"),
    ("mω", "兆欧", "mohm"),
    ("l", "升", "liter", "liters", "litre", "litres"),
    ("ml", "毫升"),
    ("l/min", "升/分", "升/分钟"),
    ("%", "％", "percent", "百分之"),
    ("db", "分贝"),
    ("mm/s", "毫米/秒"),
    ("m/s", "米/秒"),
    ("cst", "mm²/s", "mm2/s"),
)
_UNITS = {spelling: group[0] for group in _UNIT_GROUPS for spelling in group}
_UNIT_PATTERN = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True))
_NUMBER = re.compile(
    r"(?<![a-z0-9_.])(?P<value>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)"
    rf"(?:\s?(?P<unit>{_UNIT_PATTERN})(?![a-zω全装]))?",
)
_BARE_NUMBER = re.compile(r"(?<![\d.])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
_ZH_DIGITS = {char: value for value, char in enumerate("零一二三四五六七八九十")} | {"两": 2}
_EN_NUMBERS = {
    word: value
    for value, word in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
        ]
    )
}
_ENUMERATOR = re.compile(r"^\s*(?:[-*•●]\s*)?[(（]?\d{1,2}[.)）、．:：](?!\d)\s*")
_STEP = re.compile(r"\b(?:steps?|no\.|items?)\s*\d+|第\s*\d+\s*[步项条点页章节]", re.IGNORECASE)

_PROHIBITION = re.compile(
    r"不得|严禁|禁止|不能|不可(?!靠|避免|逆)|切勿|请勿|勿|不要|不应|不允许|不准|不宜|不需要|无需|不必|"
    r"\b(?:must|shall|should|do|does|can|may|will|is|are|need) ?n[o']t\b|\bcannot\b|\bnever\b|"
    r"\bprohibit|\bforbid|\bnot (?:allowed|permitted|be )|\bno need\b",
    re.IGNORECASE,
)
_ASKS_NUMBER = re.compile(
    r"多少|多大|多长|多久|多高|几[个点天次年月号]|\bhow (?:many|much|long|often|high)\b", re.IGNORECASE
)
_ASKS_CODE = re.compile(
    r"(?:哪个|哪些|哪几个|什么|几号)(?:参数|指令|命令|代码|报警|故障码|功能码|菜单)"
    r"|\b(?:which|what) (?:\w+ )?(?:commands?|parameters?|codes?|alarms?|instructions?|settings?|registers?)\b",
    re.IGNORECASE,
)
_ASKS_TIME = re.compile(r"多久|多长时间|周期|间隔|\bhow (?:long|often)\b", re.IGNORECASE)
_ASKED_ATTRIBUTE = re.compile(
    r"([\u4e00-\u9fff]{2})(?:应该?|需要?|要)?(?:设|调|设定|设置)?(?:是|为|有)(?:多少|多大|多高|多长)"
)
_ASKS_WHAT_TO_DO = re.compile(
    r"怎么|怎样|如何|为什么|原因|处理|解决|查哪|检查什么|该查|步骤|办法|能.{0,12}吗|可以.{0,12}吗|是否"
    r"|\bhow (?:do|can|should|to)\b|\bwhy\b|\bwhat (?:should|to|can|must|causes?|happen)"
    r"|\bcauses?\b|\bsteps?\b|\b(?:can|may|should|must) (?:i|we)\b|\bwill not\b|\bwon't\b|\bdoes not\b",
    re.IGNORECASE,
)
_ASKED_SUBJECT = re.compile(
    r"([^，,。;；：:?？\s][^，,。;；：:?？]*?)的[^的，,。?？]{2,12}?(?:应该?|需要?|要)?(?:设|调|设定|设置)?(?:是|为|有)?"
    r"(?:多少|多大|多高|多长|几(?!乎))"
    r"|\b(?:what is|what's|how (?:high|large|big|long|much) is) the [a-z -]{3,40}? (?:of|for) (?:the |an? )?"
    r"(?P<of>[^?,.;]{3,60})",
    re.IGNORECASE,
)
_NUMBERED = re.compile(
    r"(?P<number>\d{1,3}|[一二三四五六七八九十])\s*(?:号|#)\s*(?P<name>[\u4e00-\u9fff]{2})"
    r"|\b(?P<noun>press|pump|line|machine|drive|motor|unit|crane|compressor|robot|station|boiler|furnace)"
    r" (?:no\.? ?|#)?(?P<index>\d{1,3})\b",
    re.IGNORECASE,
)
_DIGITS = {numeral: str(value) for value, numeral in enumerate("一二三四五六七八九十", start=1)}
_PERMISSION = re.compile(
    r"允许|可以(?!靠)|能够|可继续|能继续|方可|才能|可(?=[开复继使运操打进])|"
    r"\b(?:may|can) (?:be|still|continue|operate|run|keep)\b|\bmay\b|\ballowed\b|\bpermitted\b|\bsafe to\b",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"[不勿未无非没禁]|避免|防止|\b(?:not|no|never|without|cannot|nor|neither|avoid|prevent)\b|n't\b|"
    r"\bprohibit|\bforbid",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it is compared: no thousands separators, no trailing zeros; `unit` may be empty."""

    value: str
    unit: str


def iter_numbers(text: str) -> Iterator[Number]:
    """Yield the numbers of a text that could be a claim; enumerators, step numbers and codes are none."""
    text = _STEP.sub(" ", _ENUMERATOR.sub("", unicodedata.normalize("NFKC", text), count=1))
    for mention in reversed(list(iter_codes(text))):
        text = f"{text[: mention.char_start]} {text[mention.char_end :]}"
    yield from (_read(match) for match in _NUMBER.finditer(_fold(text)))


def strip_numbers(text: str) -> str:
    """Return the folded text without its numbers and their units, which are compared by themselves."""
    return _NUMBER.sub("|", _fold(text))


def has_number(text: str, number: Number) -> bool:
    """Return whether the number stands in the text, with its unit if it has one.

    A unit may also stand apart from a bare number, as in a table whose header holds the unit; a number
    with another unit is another number. Small numbers may be spelled out.
    """
    folded = _fold(text)
    found = [_read(match) for match in _NUMBER.finditer(folded)]
    if number in found:
        return True
    if not number.unit:
        loose = (_normalise(match.group()) for match in _BARE_NUMBER.finditer(folded))
        return number.value in loose or _is_spelled(folded, number.value)
    bare = Number(number.value, "") in found or _is_spelled(folded, number.value)
    return bare and _names_unit(folded, number.unit)


def get_codes(text: str) -> list[str]:
    """Return the canonical codes of a text, each once."""
    return list(dict.fromkeys(mention.canonical for mention in iter_codes(text)))


def count_missing(claim: str, source: str) -> int:
    """Return how many numbers and codes of `claim` do not stand in `source`."""
    numbers = {number for number in iter_numbers(claim) if not has_number(source, number)}
    return len(numbers) + sum(not _has_code(source, code) for code in get_codes(claim))


def prohibits(text: str) -> bool:
    """Return whether the text says that something must not be done."""
    return bool(_PROHIBITION.search(unicodedata.normalize("NFKC", text)))


def asks_number(question: str) -> bool:
    """Return whether only a number can answer the question."""
    return bool(_ASKS_NUMBER.search(unicodedata.normalize("NFKC", question)))


def asks_for_name_of_code(question: str) -> bool:
    """Return whether a command, parameter or code is asked for by its name."""
    return bool(_ASKS_CODE.search(unicodedata.normalize("NFKC", question)))


def asks_time(question: str) -> bool:
    """Return whether a span of time or an interval is asked for."""
    return bool(_ASKS_TIME.search(unicodedata.normalize("NFKC", question)))


def find_asked_attribute(question: str) -> str | None:
    """Return the end of what a Chinese question asks the number of: 流量 of 额定流量是多少."""
    found = _ASKED_ATTRIBUTE.search(unicodedata.normalize("NFKC", question))
    return found[1] if found else None


def asks_what_to_do(question: str) -> bool:
    """Return whether causes, steps or a permission are asked for, rather than a fact."""
    return bool(_ASKS_WHAT_TO_DO.search(unicodedata.normalize("NFKC", question)))


def find_asked_subject(question: str) -> str | None:
    """Return whose number a question asks for, codes left out: 立柱螺母 of 立柱螺母的拧紧力矩是多少."""
    found = _ASKED_SUBJECT.search(unicodedata.normalize("NFKC", question))
    if found is None:
        return None
    subject = found[1] or found["of"]
    for mention in reversed(list(iter_codes(subject))):
        subject = f"{subject[: mention.char_start]} {subject[mention.char_end :]}"
    return subject.strip() or None


def names_another(asked: Mapping[str, Set[str]], text: str) -> bool:
    """Return whether the text names a machine of an asked kind by another number only.

    `asked` is what `list_numbered` read in the question. 3号压机 and press 3 are others than 1号压机 and
    press 1; a text that names both is about either.
    """
    named = list_numbered(text)
    return any(name in named and numbers.isdisjoint(named[name]) for name, numbers in asked.items())


def list_numbered(text: str) -> dict[str, set[str]]:
    """Return the numbers by which the text names machines, by the kind of machine."""
    numbers: dict[str, set[str]] = {}
    for found in _NUMBERED.finditer(unicodedata.normalize("NFKC", text)):
        number = found["number"] or found["index"]
        name = (found["name"] or found["noun"]).casefold()
        numbers.setdefault(name, set()).add(_DIGITS.get(number, number.lstrip("0") or "0"))
    return numbers


def permits(text: str) -> bool:
    """Return whether the text says that something may be done; a denied permission is a prohibition."""
    return bool(_PERMISSION.search(unicodedata.normalize("NFKC", text)))


def strip_prohibitions(text: str) -> str:
    """Return what the text forbids, without the words that forbid it."""
    return _PROHIBITION.sub(" ", unicodedata.normalize("NFKC", text))


def negates(text: str) -> bool:
    """Return whether the text holds any negation, or a word that works as one."""
    return bool(_NEGATION.search(unicodedata.normalize("NFKC", text)))


def _has_code(source: str, code: str) -> bool:
    """A code that is a word and a number may be split over a table's header and its cell."""
    if contains_code(source, code):
        return True
    parts = re.fullmatch(r"([A-Z]{3,})(\d+)", code)
    if parts is None:
        return False
    folded = _fold(source)
    word = re.search(rf"(?<![a-z]){parts[1].casefold()}(?![a-z])", folded)
    return bool(word) and has_number(source, Number(_normalise(parts[2]), ""))


def _fold(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return re.sub(r"[‐‑‒–—−]", "-", folded).replace("μ", "µ").replace("µ", "μ")


def _read(match: re.Match[str]) -> Number:
    """Read a number; a minus sign counts for temperatures only, elsewhere it is a dash."""
    unit = _UNITS[match["unit"]] if match["unit"] else ""
    value = _normalise(match["value"])
    before = match.string[max(0, match.start() - 2) : match.start()]
    below_zero = unit in ("°c", "°f") and before.endswith("-") and not before[:1].isdigit()
    return Number(f"-{value}" if below_zero else value, unit)


def _normalise(value: str) -> str:
    value = value.replace(",", "")
    if "." in value:
        value = value.rstrip("0").rstrip(".")
    value = value.lstrip("0")
    return value if value[:1].isdigit() else f"0{value}"


def _is_spelled(folded: str, value: str) -> bool:
    if not value.isdigit() or int(value) > 12:
        return False
    words = [word for word, number in _EN_NUMBERS.items() if number == int(value)]
    if any(re.search(rf"\b{word}\b", folded) for word in words):
        return True
    return any(char in folded for char, number in _ZH_DIGITS.items() if number == int(value))


def _names_unit(folded: str, unit: str) -> bool:
    for spelling, name in _UNITS.items():
        if name != unit:
            continue
        left = r"(?<![a-zω])" if spelling[0].isascii() and spelling[0].isalpha() else ""
        if re.search(rf"{left}{re.escape(spelling)}(?![a-zω])", folded):
            return True
    return False
