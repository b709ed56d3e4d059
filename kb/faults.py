"""Fault look-up without a model: a code, or a symptom in words, to rows and sections as fields."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from kb.codes import canonicalise, iter_codes
from kb.errors import CallerError, CodeUnknownError
from kb.fault_units import (
    FaultUnit,
    list_code_rows,
    list_fault_units,
    list_faults_of,
    place_on_page,
)
from kb.found import find_languages
from kb.language import detect_language
from kb.near_codes import find_near_codes, list_look_alikes
from kb.ports import Catalog, Embedder, LexicalIndex
from kb.relevance import Relevance
from kb.retrieval import PassageRetriever, Retrieval
from kb.types import Collection, Fault, FaultKind, Page, Passage, ScoredId
from kb.units import Unit, list_units

_MOST_CHUNKS = 1000
"""Most chunks with one code that a look-up reads, such as work orders of years."""
_NEAR_CODES = 5
_HOLDERS = 5
"""Chunks in which a suggested code is looked for, as one that is not visible suggests nothing."""
_LEAST_FIT = 0.3
_GOOD_FIT = 0.5
"""Share of the symptom that a fault must cover, and from which on its own language is enough."""
_RELATIVE_FIT = 0.6
"""Least score of a fault, as a share of that of the best sentence on any subject."""
_CLEARLY = 0.1
"""How much more evidence the symptom's own language must have for the other not to be looked at."""
_COMPARED = 16
"""Most faults in another language whose vectors are compared."""
_COMPARED_CHARS = 200
_NEAR = 0.03
"""How far behind the best a cosine across languages still counts."""
_PASSAGES = 24
"""Passages that a search reads: several times what it returns, as not all describe faults."""


@dataclass(frozen=True, slots=True)
class FaultLookUp:
    """What the documents say of one code, best first; `total` counts those beyond the limit, too."""

    code: str
    faults: tuple[Fault, ...]
    total: int


@dataclass(frozen=True, slots=True)
class FaultSearch:
    """Faults that fit a symptom, best first; none if `evidence` (0..1) is below the threshold.

    `unknown_codes` are codes in the symptom that no document has: then there are no faults either.
    """

    faults: tuple[Fault, ...]
    evidence: float
    unknown_codes: tuple[str, ...] = ()


class FaultFinder:
    """Looks faults up. Needs no generator, and no embedder for a code. May be used from several threads."""

    def __init__(
        self,
        *,
        retriever: PassageRetriever,
        embedder: Embedder,
        lexical: LexicalIndex,
        catalog: Catalog,
    ) -> None:
        self._retriever = retriever
        self._embedder = embedder
        self._lexical = lexical
        self._catalog = catalog

    # -- a code
    def look_up(self, collection: Collection, code: str, *, limit: int) -> FaultLookUp:
        """Return every row, section and mention of the code, best first.

        Case, width and separators make no difference. Raises `CodeUnknownError` with the nearest codes
        that exist when no visible document has it; a neighbour is never returned in its place.
        """
        canonical = _read_code(code)
        passages = self._fetch(lambda k: self._lexical.find_code(collection.id, canonical, top_k=k))
        faults = list_faults_of(canonical, passages)
        if not faults and (words := _find_words(code, canonical)):
            passages = self._fetch(lambda k: self._lexical.query(collection.id, words, top_k=k // 5))
            faults = list_code_rows(code, passages)
        if not faults:
            raise CodeUnknownError(
                code, collection=collection.name, near=self._find_near(collection.id, canonical)
            )
        return FaultLookUp(canonical, self._place(faults[:limit]), len(faults))

    def _find_near(self, collection_id: str, canonical: str) -> list[str]:
        """Return the nearest codes that a visible document has, as they are written there."""
        near = self._list_near(collection_id, canonical)
        holders = [self._lexical.find_code(collection_id, other, top_k=_HOLDERS) for other in near]
        visible = self._catalog.find_visible_chunks([item.chunk_id for found in holders for item in found])
        written = {
            mention.canonical: mention.text
            for chunk, _ in visible.values()
            for mention in iter_codes(chunk.indexed_text)
            if mention.canonical in near
        }
        return [written[other] for other in near if other in written][:_NEAR_CODES]

    def _list_near(self, collection_id: str, canonical: str) -> list[str]:
        """Return near codes among those that begin alike if these are enough, else among all."""
        for length in (len(canonical) - 2, len(canonical) // 2):
            begins = list_look_alikes(canonical[: max(length, 0)])
            known = {
                code for begin in begins for code in self._lexical.list_codes(collection_id, prefix=begin)
            }
            near = find_near_codes(canonical, known, limit=2 * _NEAR_CODES)
            if len(near) >= _NEAR_CODES:
                return near
        return find_near_codes(canonical, self._lexical.list_codes(collection_id), limit=2 * _NEAR_CODES)

    def _fetch(self, find: Callable[[int], Sequence[ScoredId]]) -> list[Passage]:
        found = find(_MOST_CHUNKS)
        visible = self._catalog.find_visible_chunks([item.chunk_id for item in found])
        kept = [item for item in found if item.chunk_id in visible]
        return [
            Passage(*visible[item.chunk_id], score=item.score, rank=rank) for rank, item in enumerate(kept)
        ]

    def _place(self, faults: Iterable[Fault]) -> tuple[Fault, ...]:
        """Return the faults with their boxes; each page is read once."""
        pages: dict[tuple[str, int], Page | None] = {}
        placed: list[Fault] = []
        for fault in faults:
            key = (fault.document_id, fault.page_number)
            if key not in pages:
                pages[key] = self._catalog.find_laid_out_page(*key)
            page = pages[key]
            placed.append(place_on_page(fault, page) if page is not None else fault)
        return tuple(placed)

    # -- a symptom
    def search(self, collection: Collection, symptom: str, *, top_k: int) -> FaultSearch:
        """Return up to `top_k` faults that fit the symptom, best first; none when nothing fits.

        Codes in the symptom go first. In the symptom's own language faults are compared by the words that
        they share with it, in another one by their vectors.
        """
        found = self._retriever.retrieve(collection, symptom, top_k=_PASSAGES)
        if not found.passages or found.unknown_codes or found.evidence < found.threshold:
            return FaultSearch((), found.evidence, found.unknown_codes)
        exact = [
            replace(fault, score=1.0)
            for code in found.codes
            for fault in list_faults_of(code, found.passages)
            if fault.kind is not FaultKind.MENTION
        ]
        taken = {_locate(fault) for fault in exact}
        others = [fault for fault in self._rank(symptom, found) if _locate(fault) not in taken]
        return FaultSearch(self._place([*exact, *others][:top_k]), found.evidence)

    def _rank(self, symptom: str, found: Retrieval) -> list[Fault]:
        """Return the faults by score; those of another language only where they may say more."""
        language = detect_language(symptom)
        own = _rank_own(symptom, found.passages, language=language)
        best = max((fault.score or 0.0 for fault in own), default=0.0)
        evidence = found.evidence_by_language.get(language, 0.0)
        across = max(
            (value for other, value in found.evidence_by_language.items() if other != language), default=0.0
        )
        if across < found.threshold or (best >= _GOOD_FIT and evidence > across + _CLEARLY):
            return own
        foreign = [passage for passage in found.passages if language not in find_languages(passage.chunk)]
        others = self._rank_across(symptom, foreign, evidence=across)
        if best >= _GOOD_FIT:
            # words that are shared are the safer sign
            least = min(fault.score or 0.0 for fault in own)
            others = [replace(fault, score=min(least, fault.score or 0.0)) for fault in others]
        return sorted([*own, *others], key=lambda fault: -(fault.score or 0.0))

    def _rank_across(self, symptom: str, passages: Sequence[Passage], *, evidence: float) -> list[Fault]:
        """Return the faults among passages in another language, nearest vector first.

        There are none when what the nearest passage says of something else is nearer.
        """
        candidates = list_fault_units(passages)[:_COMPARED]
        if not candidates:
            return []
        first = [unit for unit in list_units(passages[:1]) if not _is_part_of(unit, candidates)]
        texts = [*map(_describe, candidates), *(unit.text for unit in first[:_COMPARED])]
        vectors = self._embedder.embed_passages([self._shorten(text) for text in texts])
        cosines = (vectors @ self._embedder.embed_query(symptom)).tolist()
        best = max(cosines[: len(candidates)])
        if best < max(cosines):
            return []
        return [
            replace(item.fault, score=evidence * (1.0 - (best - cosine) / _NEAR))
            for item, cosine in zip(candidates, cosines, strict=False)
            if best - cosine < _NEAR
        ]

    def _shorten(self, text: str) -> str:
        """Return the beginning of the text, which says what it is about, as the embedder takes it."""
        text = text[:_COMPARED_CHARS]
        while self._embedder.count_tokens(text) > self._embedder.max_tokens:
            text = text[: len(text) // 2]
        return text


def _is_part_of(unit: Unit, candidates: Sequence[FaultUnit]) -> bool:
    return any(
        unit.passage is item.unit.passage
        and unit.page_number == item.unit.page_number
        and item.unit.char_start <= unit.char_start < item.unit.char_end
        for item in candidates
    )


def _rank_own(symptom: str, passages: Sequence[Passage], *, language: str) -> list[Fault]:
    """Return the faults that cover the symptom, scored by the share of its content that they cover.

    They must cover a good part of what the best sentence on any subject does; a section without a code
    also most of the symptom.
    """
    relevance = Relevance(symptom, list_units(passages))
    ranked: list[Fault] = []
    for item in list_fault_units([p for p in passages if language in find_languages(p.chunk)]):
        score = relevance.score(replace(item.unit, text=_describe(item)))
        least = _LEAST_FIT if item.fault.code or item.unit.is_row else _GOOD_FIT
        if score >= max(least, _RELATIVE_FIT * relevance.best):
            ranked.append(replace(item.fault, score=score))
    return sorted(ranked, key=lambda fault: -(fault.score or 0.0))


def _describe(item: FaultUnit) -> str:
    """Return what the fault is and why: what to do tells of no symptom."""
    fault = item.fault
    told = (fault.code, fault.description, fault.cause) if fault.kind is FaultKind.ROW else (item.unit.text,)
    return "\n".join(filter(None, told))


def _locate(fault: Fault) -> tuple[str, int, int]:
    return fault.document_id, fault.page_number, fault.char_start


def _read_code(code: str) -> str:
    """Return the canonical form; raises `CallerError` for what can't be a code."""
    folded = unicodedata.normalize("NFKC", code)
    canonical = canonicalise(folded)
    if not canonical or any(char.isalnum() and not char.isascii() for char in folded):
        raise CallerError(
            f"{code!r} is not a code: codes are made of the letters A to Z and digits",
            next_step="Search for words with POST /v1/collections/{collection}/faults/search, or "
            "`kb fault --symptom`.",
        )
    return canonical


def _find_words(code: str, canonical: str) -> str:
    """Return the words under which a code stands that the index doesn't know as one, empty if there are none.

    A number or a few letters ("414", "OC") are a code only in a column of codes; "ALARM:2" may be a 2 in
    the column "Alarm". Any other code would have been found.
    """
    parts = re.fullmatch(r"([A-Z]{2,})(\d+)", canonical)
    if parts is not None:
        return f"{parts[1]} {parts[2]}"
    known = any(mention.canonical == canonical for mention in iter_codes(code))
    return "" if known else code
