"""Reads a fault's code, description, cause and remedy out of a table row or a section, by its headers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from kb.codes import canonicalise, iter_codes
from kb.evidence import is_numbered
from kb.resources import read_names
from kb.words import fold, squeeze

CODE, DESCRIPTION, CAUSE, REMEDY = "code", "description", "cause", "remedy"
_FIELDS = (CODE, DESCRIPTION, CAUSE, REMEDY)
_MOST_CODE_CHARS = 24
_MOST_HEADERS = 4096
_EXACT, _TAIL = 2, 1
_BRACKETS = re.compile(r"[(（\[【].*?[)）\]】]")
_JOINT = re.compile(r"[/／、&+\n]|及其?|和|与|\band\b|\bor\b")
# "Cause of the fault" is about a cause, "action to take" about an action.
_OBJECT = re.compile(r"\b(?:of|for|to|in case)\b.*")
_NUMBERING = r"(?:\d{1,2}(?:\.\d{1,2})*[.)、]?|[（(]?\d{1,2}[)）])"
_SEPARATORS = " \t\n:：-–—|,，.;；、"
_LINE_LABEL = re.compile(
    rf"(?:^|\n)[ \t]*(?:[-–•●▪*·]\s*)?(?:{_NUMBERING}\s*)?(?P<name>[^\n:：。；;|]{{1,30}}?)[ \t]*(?:[:：]|(?=\n|$))"
)
_INNER_LABEL = re.compile(r"[。；;.]\s*(?P<name>[^\n:：。；;.|,，]{1,30}?)[ \t]*[:：]")


@dataclass(frozen=True, slots=True)
class FaultFields:
    """What a row or section says of one fault, as it stands there; an absent field is empty."""

    code: str = ""
    description: str = ""
    cause: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class _Names:
    alone: frozenset[str]
    ends: tuple[str, ...]


@cache
def _read_names() -> dict[str, _Names]:
    tables = read_names("fault_fields")
    return {
        field: _Names(
            frozenset(map(squeeze, [*tables[field]["alone"], *tables[field]["ends"]])),
            tuple(map(squeeze, tables[field]["ends"])),
        )
        for field in _FIELDS
    }


@cache
def _heading_pattern() -> re.Pattern[str]:
    words = map(re.escape, read_names("fault_fields")["heading"]["words"])
    return re.compile("|".join(rf"\b{word}\b" if word.isascii() else word for word in words))


def tells_of_faults(heading: str) -> bool:
    """Return whether a heading announces faults, alarms or symptoms."""
    return bool(_heading_pattern().search(fold(heading)))


def is_fault_row(record: Mapping[str, str]) -> bool:
    """Return whether the row describes a fault: what happened or its code, and why or what to do.

    A row with only a code of a fault and its name describes one, too.
    """
    columns = _find_columns(record)
    filled = {field for field, found in columns.items() if any(record[column].strip() for column in found)}
    if not filled & {CODE, DESCRIPTION}:
        return False
    named = any(squeeze(column).endswith(_read_names()[CODE].ends) for column in columns.get(CODE, ()))
    return bool(filled & {CAUSE, REMEDY}) or (named and DESCRIPTION in filled)


def is_headed_by(record: Mapping[str, str], code: str) -> bool:
    """Return whether the row is about the canonical code: it stands in the column of codes.

    In a table that has no such column the first cell counts, a running number passed over.
    """
    columns = _find_columns(record).get(CODE)
    if columns:
        return any(_holds(column, record[column], code) for column in columns)
    first = next(((column, cell) for column, cell in record.items() if _is_head(cell)), None)
    return first is not None and _holds(*first, code, at_start=True)


def find_leading_code(record: Mapping[str, str]) -> str:
    """Return the canonical code that the row is about, empty if it names none."""
    columns = _find_columns(record).get(CODE)
    cells = [record[column] for column in columns] if columns else list(filter(_is_head, record.values()))[:1]
    return next((mention.canonical for cell in cells for mention in iter_codes(cell)), "")


def is_code_row(record: Mapping[str, str], code: str) -> bool:
    """Return whether a cell of the column of codes is exactly `code`, as written but for case and width.

    For what is a code only there: a number, a few letters, or a word and a number that stand apart
    ("ALARM:2" for 2 below "Alarm").
    """
    written, canonical = fold(code).strip(), canonicalise(code)
    return any(
        fold(record[column]).strip() == written or is_numbered(canonical, column, record[column])
        for column in _find_columns(record).get(CODE, ())
    )


def is_same_code(text: str, code: str) -> bool:
    """Return whether the text is nothing but the canonical code."""
    # canonical forms leave out what is not ASCII, so that more than the code may be there
    return canonicalise(text) == code and not any(
        char.isalnum() and not char.isascii() for char in fold(text)
    )


def read_row(record: Mapping[str, str], *, code: str = "") -> FaultFields:
    """Return the fields of a row; `code` is the canonical one that was asked for, if any."""
    columns = _find_columns(record)
    values = {
        field: "\n".join(dict.fromkeys(record[column].strip() for column in found if record[column].strip()))
        for field, found in columns.items()
    }
    cell = values.get(CODE) or next((cell.strip() for cell in record.values() if _is_head(cell)), "")
    written, rest = _split_code(cell, code, at_start=CODE not in columns)
    if not written and code:
        written = next((found for value in record.values() if (found := _split_code(value, code)[0])), "")
        rest = ""
    named = values.get(CODE, "")
    return FaultFields(
        code=written or (named if len(named) <= _MOST_CODE_CHARS else ""),
        description=values.get(DESCRIPTION) or (rest if written else ""),
        cause=values.get(CAUSE, ""),
        remedy=values.get(REMEDY, ""),
    )


def read_section(heading: str, text: str, *, code: str = "") -> tuple[FaultFields, dict[str, str]]:
    """Return the fields of a section, and its labelled parts as they stand ("原因：…", "Remedy: …").

    `text` begins below the heading, or is a paragraph that begins with the code when there is none.
    """
    parts = list(_iter_parts(text))
    lead = text[: parts[0][1]] if parts else text
    title = heading or (lead.strip().splitlines() or [""])[0]
    written, rest = _split_code(re.sub(rf"^\s*{_NUMBERING}\s+", "", title), code)
    values: dict[str, str] = {}
    labelled: dict[str, str] = {}
    for number, (label, _, begin) in enumerate(parts):
        end = parts[number + 1][1] if number + 1 < len(parts) else len(text)
        value = text[begin:end].strip()
        labelled[label] = "\n".join(filter(None, (labelled.get(label, ""), value)))
        for field in _match(label):
            if value and value not in values.get(field, ""):
                values[field] = "\n".join(filter(None, (values.get(field, ""), value)))
    name = rest if written or heading else ""
    fields = FaultFields(
        code=written or values.get(CODE, ""),
        description=values.get(DESCRIPTION) or name,
        cause=values.get(CAUSE, ""),
        remedy=values.get(REMEDY, ""),
    )
    return fields, labelled


def _find_columns(record: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the columns of each field in order; a whole name goes before one that only ends so."""
    found: dict[str, list[tuple[int, str]]] = {}
    for column, cell in record.items():
        matches = _match(column)
        if _is_vague(column):
            chosen = CODE if _looks_like_code(cell) else DESCRIPTION
            matches = {chosen: matches[chosen]}
        for field, strength in matches.items():
            found.setdefault(field, []).append((strength, column))
    return {
        field: [column for strength, column in columns if strength == max(columns)[0]]
        for field, columns in found.items()
    }


@lru_cache(_MOST_HEADERS)
def _match(header: str) -> Mapping[str, int]:
    """Return the fields that a header or label names, with how surely; several if it joins them."""
    bare = _BRACKETS.sub(" ", fold(header)).strip()
    whole = _match_one(bare)
    if whole:
        return whole
    parts = [part for part in _JOINT.split(bare) if part.strip()]
    if len(parts) < 2:
        return {}
    matches = [_match_one(part) for part in parts]
    return {field: strength for match in matches for field, strength in match.items()} if all(matches) else {}


def _match_one(name: str) -> dict[str, int]:
    key, short = squeeze(name), squeeze(_OBJECT.sub("", name))
    exact = {field: _EXACT for field, names in _read_names().items() if {key, short} & names.alone}
    if exact or _JOINT.search(name):
        return exact
    for field, names in _read_names().items():
        if any(_ends_with(name, key, ending) or _ends_with(name, short, ending) for ending in names.ends):
            return {field: _TAIL}
    return {}


def _ends_with(name: str, key: str, ending: str) -> bool:
    if not key.endswith(ending) or (not ending.isascii() and key == ending):
        return key == ending
    if not ending.isascii():
        return True
    # an English name begins with a word: "reaction" is no action
    words = re.findall(r"[a-z0-9]+", name)
    return any("".join(words[start:]).startswith(ending) for start in range(len(words)))


@lru_cache(_MOST_HEADERS)
def _is_vague(header: str) -> bool:
    """Return whether the header may stand above codes or names ("Alarm", 故障)."""
    return {CODE, DESCRIPTION} <= _match_one(fold(header)).keys()


def _looks_like_code(cell: str) -> bool:
    text = cell.strip()
    if not text or len(text) > _MOST_CODE_CHARS or len(text.split()) > 2 or not text.isascii():
        return False
    return any(map(str.isdigit, text)) or (text.isupper() and len(text) <= 6)


def _is_head(cell: str) -> bool:
    """Return whether the cell can head its row: it says something, and is no running number."""
    return bool(cell.strip()) and not re.fullmatch(r"\d{1,4}\.?", cell.strip())


def _holds(column: str, cell: str, code: str, *, at_start: bool = False) -> bool:
    if is_same_code(cell, code) or is_numbered(code, column, cell):
        return True
    mentions = iter_codes(cell.strip())
    return any(mention.canonical == code and not (at_start and mention.char_start) for mention in mentions)


def _split_code(text: str, code: str, *, at_start: bool = False) -> tuple[str, str]:
    """Return the code as written, and the text without it; the first code if none is asked for."""
    if code and is_same_code(text, code):
        return text.strip(), ""
    for mention in iter_codes(text):
        if code in ("", mention.canonical) and not (at_start and mention.char_start):
            rest = f"{text[: mention.char_start]} {text[mention.char_end :]}"
            return mention.text, " ".join(rest.split()).strip(_SEPARATORS)
    return "", " ".join(text.split()).strip(_SEPARATORS)


def _iter_parts(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield each label with where it begins and where its text begins."""
    found = [
        (match["name"].strip(), match.start("name"), match.end())
        for pattern in (_LINE_LABEL, _INNER_LABEL)
        for match in pattern.finditer(text)
        if _match(match["name"])
    ]
    yield from sorted(found, key=lambda part: part[1])
