"""Finds the passages for a question: dense and lexical search, codes first, languages apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import median
from threading import Lock

from kb.codes import CodeMention, iter_codes
from kb.evidence import (
    CodeMatch,
    contains_code,
    match_code,
    measure_coverage,
    measure_similarity,
    score_evidence,
)
from kb.fusion import fuse, interleave
from kb.language import detect_language
from kb.ports import Catalog, Embedder, LexicalIndex, Vectors, VectorStore
from kb.resources import read_lines
from kb.types import Chunk, Collection, Passage, ScoredId
from kb.words import squeeze

_LANGUAGES = ("zh", "en")
_MOST_CODES = 16
_MOST_FETCHED = 16
"""How many times `candidates` an index is asked for when what it returns is not visible."""
_WEIGHTS = (1.0, 1.5)
"""Dense and lexical: words found are the safer sign on manuals, and cost general text nothing."""
_JUDGED = 10
"""Best chunks of each index that the evidence score reads."""


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What was found. `evidence` (0..1) says whether it is about the question at all, in any language.

    `unknown_codes` are the codes of the question, as written there, that no visible chunk holds.
    """

    passages: tuple[Passage, ...]
    evidence: float
    unknown_codes: tuple[str, ...] = ()
    evidence_by_language: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Found:
    """A visible chunk with what one index said of it."""

    chunk: Chunk
    document_name: str
    score: float


class Retriever:
    """Question to passages. May be used from several threads at once."""

    def __init__(
        self,
        *,
        embedder: Embedder,
        vectors: VectorStore,
        lexical: LexicalIndex,
        catalog: Catalog,
        candidates: int,
    ) -> None:
        self._embedder = embedder
        self._vectors = vectors
        self._lexical = lexical
        self._catalog = catalog
        self._candidates = candidates
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="retrieval")
        self._background: dict[str, Vectors] = {}
        self._background_lock = Lock()

    def retrieve(self, collection: Collection, query: str, *, top_k: int) -> Retrieval:
        """Return up to `top_k` passages, best first.

        Chunks that hold a code of the query stand first. Then each language is ranked by itself
        and the lists alternate, the query's own language first: similarities across languages can't
        be compared. Chunks that say the same are shown once.
        """
        language = detect_language(query)
        codes = _unique_codes(query)
        dense_job = self._pool.submit(self._search_dense, collection.id, query, language)
        lexical_hits = self._visible(lambda k: self._lexical.query(collection.id, query, top_k=k))
        code_hits = {
            code.canonical: self._visible(
                lambda k, code=code: self._lexical.find_code(collection.id, code.canonical, top_k=k)  # type: ignore[misc]
            )
            for code in codes
        }
        vector, dense_hits = dense_job.result()

        found: dict[str, _Found] = {}
        for hit in (*dense_hits, *lexical_hits, *(hit for hits in code_hits.values() for hit in hits)):
            found.setdefault(hit.chunk.id, hit)
        if not found:
            return Retrieval(passages=(), evidence=0.0)

        matches = {
            code.canonical: _match_everywhere(code.canonical, code_hits[code.canonical], found.values())
            for code in codes
        }
        names = {hit.document_name for hit in found.values()}
        unknown = tuple(
            code.text
            for code in codes
            if not matches[code.canonical] and not any(contains_code(n, code.canonical) for n in names)
        )

        scores, order = _rank(dense_hits, lexical_hits, language)
        exact = _order_exact(matches, order)
        order = list(dict.fromkeys([*exact, *order]))
        kept = _drop_repeats([found[item].chunk for item in order], limit=top_k)
        stage_scores = _stage_scores(dense_hits, lexical_hits, exact)
        passages = tuple(
            Passage(
                chunk=chunk,
                document_name=found[chunk.id].document_name,
                score=scores.get(chunk.id, 0.0) + (1.0 if chunk.id in stage_scores["exact"] else 0.0),
                rank=rank,
                scores={name: by_id[chunk.id] for name, by_id in stage_scores.items() if chunk.id in by_id},
            )
            for rank, chunk in enumerate(kept)
        )
        evidence = self._judge(
            query,
            language,
            vector=vector,
            dense=dense_hits,
            lexical=lexical_hits,
            matches=matches,
            found=found,
        )
        return Retrieval(
            passages=passages,
            evidence=max(evidence.values(), default=0.0),
            unknown_codes=unknown,
            evidence_by_language=evidence,
        )

    # -- searching
    def _search_dense(self, collection_id: str, query: str, language: str) -> tuple[Vectors, list[_Found]]:
        """Return the query's vector and the nearest chunks, the other language searched apart if hidden."""
        vector = self._embedder.embed_query(query)
        hits = self._visible(lambda k: self._vectors.query(collection_id, vector, top_k=k))
        for other in _LANGUAGES:
            if other == language or sum(hit.chunk.language == other for hit in hits) * 2 >= self._candidates:
                continue
            hits += self._visible(
                lambda k, other=other: self._vectors.query(collection_id, vector, top_k=k, language=other)  # type: ignore[misc]
            )
        unique = {hit.chunk.id: hit for hit in hits}
        return vector, sorted(unique.values(), key=lambda hit: -hit.score)

    def _visible(self, fetch: Callable[[int], Sequence[ScoredId]]) -> list[_Found]:
        """Return up to `candidates` visible chunks, asking for more while too many are not visible."""
        wanted = self._candidates
        while True:
            ids = fetch(wanted)
            visible = self._catalog.find_visible_chunks([item.chunk_id for item in ids])
            exhausted = len(ids) < wanted or wanted >= self._candidates * _MOST_FETCHED
            if len(visible) >= self._candidates or exhausted:
                return [
                    _Found(*visible[item.chunk_id], score=item.score)
                    for item in ids
                    if item.chunk_id in visible
                ][: self._candidates]
            wanted *= 4

    # -- judging
    def _judge(
        self,
        query: str,
        language: str,
        *,
        vector: Vectors,
        dense: Sequence[_Found],
        lexical: Sequence[_Found],
        matches: Mapping[str, Mapping[str, CodeMatch]],
        found: Mapping[str, _Found],
    ) -> dict[str, float]:
        """Return the evidence by language.

        A question that names codes is judged by the chunks that carry one, or by the documents named
        after it, so that a neighbour never vouches for it.
        """
        carriers = {item: match for by_id in matches.values() for item, match in by_id.items()}
        for by_id in matches.values():
            carriers |= {item: max(match, carriers[item]) for item, match in by_id.items()}

        def counts(hit: _Found) -> bool:
            named = any(contains_code(hit.document_name, code) for code in matches)
            return not matches or named or hit.chunk.id in carriers

        evidence: dict[str, float] = {}
        for group in _LANGUAGES:
            cosines = [hit.score for hit in dense if hit.chunk.language == group]
            near = [hit for hit in dense if hit.chunk.language == group and counts(hit)][:_JUDGED]
            worded = [hit for hit in lexical if hit.chunk.language == group and counts(hit)][:_JUDGED]
            coded = [found[item] for item in carriers if found[item].chunk.language == group][:_JUDGED]
            judged = {hit.chunk.id: hit for hit in (*near, *worded, *coded)}
            if not judged:
                continue
            if near:
                cosines[0] = near[0].score
            elif cosines:  # what the index did not return is no nearer than the last that it did
                cosines[0] = cosines[-1]
            evidence[group] = score_evidence(
                measure_similarity(cosines, background=self._get_background(group, vector)),
                coverage=measure_coverage(query, [_shown_text(hit) for hit in judged.values()]),
                same_language=group == language,
                code=max(carriers.get(item, CodeMatch.ABSENT) for item in judged),
            )
        return evidence

    def _get_background(self, language: str, vector: Vectors) -> float:
        """Return the cosine that this query has to text about something else, in that language."""
        with self._background_lock:
            if language not in self._background:
                self._background[language] = self._embedder.embed_passages(
                    read_lines(f"background.{language}")
                )
        return float(median((self._background[language] @ vector).tolist()))


def _unique_codes(query: str) -> list[CodeMention]:
    unique: dict[str, CodeMention] = {}
    for mention in iter_codes(query):
        unique.setdefault(mention.canonical, mention)
    return list(unique.values())[:_MOST_CODES]


def _shown_text(hit: _Found) -> str:
    return f"{hit.document_name}\n{hit.chunk.indexed_text}"


def _match_everywhere(
    canonical: str, indexed: Sequence[_Found], candidates: Iterable[_Found]
) -> dict[str, CodeMatch]:
    """Return every chunk with the code, the index's finds and what the other candidates show."""
    matches = {hit.chunk.id: max(CodeMatch.MENTIONED, match_code(canonical, hit.chunk)) for hit in indexed}
    for hit in candidates:
        if hit.chunk.id not in matches and (match := match_code(canonical, hit.chunk)):
            matches[hit.chunk.id] = match
    return matches


def _rank(
    dense: Sequence[_Found], lexical: Sequence[_Found], language: str
) -> tuple[dict[str, float], list[str]]:
    """Return the fused scores, and the order: each language by itself, then in turn."""
    scores: dict[str, float] = {}
    by_language: list[list[str]] = []
    for own in (True, False):
        lists = [
            [hit.chunk.id for hit in hits if (hit.chunk.language == language) is own]
            for hits in (dense, lexical)
        ]
        fused = fuse(lists, weights=_WEIGHTS)
        scores |= fused
        by_language.append(list(fused))
    return scores, interleave(*by_language)


def _order_exact(matches: Mapping[str, Mapping[str, CodeMatch]], order: Sequence[str]) -> list[str]:
    """Return the chunks with a code: definitions before mentions, the codes in turn."""
    place = {item: index for index, item in enumerate(order)}
    queues = [
        sorted(by_id, key=lambda item, by_id=by_id: (-by_id[item], place.get(item, len(place))))  # type: ignore[misc]
        for by_id in matches.values()
    ]
    merged: dict[str, None] = {}
    for index in range(max(map(len, queues), default=0)):
        for queue in queues:
            if index < len(queue):
                merged.setdefault(queue[index])
    return list(merged)


def _drop_repeats(chunks: Sequence[Chunk], *, limit: int) -> list[Chunk]:
    """Return the first `limit` chunks, without those that an earlier one of like context contains."""
    kept: list[tuple[str, str, Chunk]] = []
    for chunk in chunks:
        text, context = squeeze(chunk.text), squeeze(chunk.context)
        if not any(text in other and context == other_context for other, other_context, _ in kept):
            kept.append((text, context, chunk))
            if len(kept) == limit:
                break
    return [chunk for _, _, chunk in kept]


def _stage_scores(
    dense: Sequence[_Found], lexical: Sequence[_Found], exact: Sequence[str]
) -> dict[str, dict[str, float]]:
    return {
        "dense": {hit.chunk.id: hit.score for hit in dense},
        "dense_rank": {hit.chunk.id: float(rank) for rank, hit in enumerate(dense)},
        "lexical": {hit.chunk.id: hit.score for hit in lexical},
        "lexical_rank": {hit.chunk.id: float(rank) for rank, hit in enumerate(lexical)},
        "exact": dict.fromkeys(exact, 1.0),
    }
