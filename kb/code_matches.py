"""What the codes of a question mean for a collection: faults and parts, machines, or mere labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from kb.codes import CodeMention, iter_codes
from kb.evidence import CodeMatch, contains_code, match_code
from kb.found import Found
from kb.fusion import interleave
from kb.resources import read_lines
from kb.words import fold, get_units

MOST_CODES = 16
_FEW = 5
"""A code that is in more chunks than this names a machine or a series, and can't decide alone."""
_MANY = 12
"""A code that is in more chunks than this tells nothing apart, not even as one sign of several."""
_TITLE_CHUNKS = 2
_LEAST_TITLED = 3
_LEAST_WORDS = 3
_LABEL = re.compile(r"[A-Za-z]{2,3} ?[0-9]{2,6}")


def list_codes(query: str) -> list[CodeMention]:
    """Return the codes of the query, each once, at most `MOST_CODES`."""
    unique: dict[str, CodeMention] = {}
    for mention in iter_codes(query):
        unique.setdefault(mention.canonical, mention)
    return list(unique.values())[:MOST_CODES]


def match_everywhere(
    canonical: str, indexed: Sequence[Found], candidates: Iterable[Found]
) -> dict[str, CodeMatch]:
    """Return every chunk with the code, the index's finds and what the other candidates show."""
    matches = {hit.chunk.id: max(CodeMatch.MENTIONED, match_code(canonical, hit.chunk)) for hit in indexed}
    for hit in candidates:
        if hit.chunk.id not in matches and (match := match_code(canonical, hit.chunk)):
            matches[hit.chunk.id] = match
    return matches


def soften(matches: dict[str, CodeMatch]) -> dict[str, CodeMatch]:
    """Take a code that is defined all over for what it is: the name of the machine, not of a fault."""
    if sum(match is CodeMatch.DEFINED for match in matches.values()) <= _FEW:
        return matches
    return dict.fromkeys(matches, CodeMatch.MENTIONED)


def is_machine(canonical: str, hits: Sequence[Found]) -> bool:
    """Return whether a code names a machine: many chunks hold it, or it is a longer document's title."""
    if len(hits) > _MANY:
        return True
    counts = Counter(hit.chunk.document_id for hit in hits)
    titled = {
        hit.chunk.document_id
        for hit in hits
        if contains_code(hit.document_name, canonical)
        or (
            hit.chunk.index <= _TITLE_CHUNKS
            and any(contains_code(heading, canonical) for heading in hit.chunk.heading_path[:1])
        )
    }
    return any(counts[document] >= _LEAST_TITLED for document in titled)


def find_homes(
    names: Sequence[str], matches: Mapping[str, Mapping[str, CodeMatch]], found: Mapping[str, Found]
) -> frozenset[str]:
    """Return the documents that name one of the machines, empty if no machine is asked for."""
    return frozenset(found[item].chunk.document_id for name in names for item in matches[name])


def strip_codes(query: str, names: Sequence[CodeMention]) -> str:
    """Return the query without these codes."""
    for name in names:
        query = query.replace(name.text, " ")
    return " ".join(query.split())


def order_exact(matches: Mapping[str, Mapping[str, CodeMatch]], order: Sequence[str]) -> list[str]:
    """Return the chunks that a code puts ahead: definitions, then mentions if they are few; codes in turn."""
    place = {item: index for index, item in enumerate(order)}
    queues = [
        sorted(
            (item for item, match in by_id.items() if match is CodeMatch.DEFINED or len(by_id) <= _FEW),
            key=lambda item, by_id=by_id: (-by_id[item], place.get(item, len(place))),  # type: ignore[misc]
        )
        for by_id in matches.values()
    ]
    merged: list[str] = []
    for queue in queues:
        merged = interleave(merged, queue)
    return merged


def find_labels(
    query: str, unknown: Sequence[CodeMention], *, has_relatives: Callable[[str], bool]
) -> list[CodeMention]:
    """Return those of the unknown codes that only say whose note this is, such as a vehicle's number.

    "PH639 REPL TRANS TEMP SENSOR" is about the sensor. A label stands at either end of a note that asks
    nothing and says enough without it, and no word beside it announces a code. One with relatives, codes
    in the collection that begin alike, may be one of them and is no label: a neighbour must not answer.
    """
    rest = strip_codes(query, unknown)
    if len(get_units(rest)) < _LEAST_WORDS or asks(query):
        return []
    return [
        code for code in unknown if _is_label(query.strip(), code) and not has_relatives(_get_series(code))
    ]


def _is_label(query: str, code: CodeMention) -> bool:
    if not _LABEL.fullmatch(code.text) or not (query.startswith(code.text) or query.endswith(code.text)):
        return False
    announcing = read_lines("announcing_words")
    before, _, after = fold(query).partition(fold(code.text))
    beside = {*re.findall(r"[a-z]+", before)[-1:], *re.findall(r"[a-z]+", after)[:1]}
    return fold(_get_series(code)) not in announcing and beside.isdisjoint(announcing)


def _get_series(code: CodeMention) -> str:
    """Return the letters that a code begins with."""
    return re.sub(r"[0-9].*", "", code.canonical)


def asks(query: str) -> bool:
    """Return whether the text asks something, in either language."""
    folded = fold(query)
    words = set(re.findall(r"[a-z]+", folded))
    return "?" in folded or any(
        word in words if word.isascii() else word in folded for word in read_lines("asking_words")
    )
