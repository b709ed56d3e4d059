"""Finds the passages for a question: dense and lexical search, codes first, languages apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np

from kb.calibration import find_threshold
from kb.code_matches import (
    MOST_CODES,
    find_homes,
    find_labels,
    is_machine,
    list_codes,
    match_everywhere,
    order_exact,
    soften,
    strip_codes,
)
from kb.codes import CodeMention, iter_possible_codes
from kb.errors import NothingInScopeError
from kb.evidence import contains_code, measure_share
from kb.found import Found, make_found
from kb.fusion import combine, fuse, interleave, measure_margin
from kb.judging import LANGUAGES, Background, judge
from kb.language import detect_language
from kb.ports import Catalog, Embedder, LexicalIndex, Reranker, Vectors, VectorStore
from kb.types import Chunk, Collection, IndexParts, Passage, Scope, ScoredId
from kb.words import get_units, squeeze

IndexName = Literal["dense", "lexical"]

DEFAULT_THRESHOLD = 0.5
_MOST_FETCHED = 16
"""How many times `candidates` an index is asked for when what it returns is not visible."""
_LEXICAL_WEIGHTS = (0.1, 0.45)
"""Of words, where many chunks share as many with the query, and where the best stand out. Measured, as what
follows, on manuals, encyclopedias, news and work orders in both languages."""
_COVERAGE_BONUSES = (0.1, 0.3)
_COMPARED = 6
"""Rank of the chunk that the best one is compared with to see whether it stands out."""
_CLEAR_MARGIN = 0.5
_CODED_BONUS = 0.05
_COVERED = 20
"""Best chunks whose words are compared with the query's once more."""
_AWAY_SHARE = 0.8
"""What a score counts in a document that doesn't name the machine asked for."""
_OTHER_WEIGHTS = (1.5, 0.15, 0.1)
"""Dense, lexical, and chunks with a code of the query across languages, where shared words say little."""
_BRIDGE = 0.4
"""How much the best chunk of the query's own language says of the order in another."""
_AWAY = 4.0
"""What ranks count there, across languages."""
_BALANCED = 0.5
_OTHER_LEAD = 0.6
"""By how much the evidence in another language must be greater for its passages to stand first."""
_SCARCE = 0.1
_LONE = 5
"""Passages of the question's language that stand before all others where those have less evidence than that."""
_RERANKED = 20
"""Best chunks that a reranker reads."""
ANY = Scope()


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What was found. `evidence` (0..1) says whether it is about the question at all, in any language.

    Below `threshold` it is not. `unknown_codes` are the codes of the question, as written there, that no
    visible chunk holds; `labels` those that only say whose note this is, see `kb.code_matches`. `codes`
    are the canonical ones that few chunks hold and that therefore name a fault or a part, not a machine.
    With `is_calibration_stale` the threshold is the setting's, as what it was calibrated with has changed.
    """

    passages: tuple[Passage, ...]
    evidence: float
    unknown_codes: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    evidence_by_language: Mapping[str, float] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    threshold: float = DEFAULT_THRESHOLD
    is_calibration_stale: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """Every stage of one search, for those who ask what became of a chunk.

    `found` are all candidates by chunk id, `scores` what each stage said of them, `order` the ids after
    fusion, `ranked` after exact codes and the reranker; `repeats` names the better chunk that says the
    same. `result` holds what is left of `ranked`, up to the asked number.
    """

    result: Retrieval
    found: Mapping[str, Found] = field(default_factory=dict)
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    order: Sequence[str] = ()
    ranked: Sequence[str] = ()
    repeats: Mapping[str, str] = field(default_factory=dict)


class PassageRetriever(Protocol):
    """Question to passages; `Retriever`, or one that measures it."""

    def retrieve(self, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY) -> Retrieval:
        """Return up to `top_k` passages in the scope, best first; raises a `BackendError`."""
        ...


class IndexRetriever(PassageRetriever, Protocol):
    """The same, each index alone, and all stages."""

    def rank_by(
        self, index: IndexName, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY
    ) -> tuple[Passage, ...]:
        """Return up to `top_k` passages as one index alone ranks them; raises a `BackendError`."""
        ...

    def trace(self, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY) -> Trace:
        """Return what `retrieve` returns, and what each stage did; raises a `BackendError`."""
        ...


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a query looks: the collection, in it these documents if not None, and one language if set."""

    collection_id: str
    keys: tuple[str, ...] | None = None
    language: str = ""

    def holds(self, hit: Found) -> bool:
        return not self.language or hit.is_in(self.language)


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
        reranker: Reranker | None = None,
        evidence_threshold: float = DEFAULT_THRESHOLD,
        get_parts: Callable[[], IndexParts] | None = None,
    ) -> None:
        self._embedder = embedder
        self._vectors = vectors
        self._lexical = lexical
        self._catalog = catalog
        self._candidates = candidates
        self._reranker = reranker
        self._evidence_threshold = evidence_threshold
        self._get_parts = get_parts
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="retrieval")
        self._background = Background(embedder)

    def retrieve(self, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY) -> Retrieval:
        """Return up to `top_k` passages, best first.

        Chunks that hold a code of the query stand first. Then each language is ranked by itself
        and the lists alternate, the query's own language first: similarities across languages can't
        be compared. A reranker, if there is one, orders the best of them anew. Chunks that say the same
        are shown once. Raises `NothingInScopeError` when no document fits the scope.
        """
        return self.trace(collection, query, top_k=top_k, scope=scope).result

    def trace(self, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY) -> Trace:
        """Return what `retrieve` returns, and what each stage did."""
        place = self._open_field(collection, scope)
        language = detect_language(query)
        codes, code_hits = self._find_codes(place, query)
        names = [code for code in codes if is_machine(code.canonical, code_hits[code.canonical])]
        dense_job = self._pool.submit(self._search_dense, place, query, language, names)
        lexical_hits = self._search_lexical(place, query, language, names)
        vector, dense_hits = dense_job.result()

        found: dict[str, Found] = {}
        for hit in (*dense_hits, *lexical_hits, *(hit for hits in code_hits.values() for hit in hits)):
            found.setdefault(hit.chunk.id, hit)
        threshold, is_stale = find_threshold(
            collection.calibration, get_parts=self._get_parts, default=self._evidence_threshold
        )
        blank = Retrieval(passages=(), evidence=0.0, threshold=threshold, is_calibration_stale=is_stale)
        if not found:
            return Trace(blank)

        matches = {
            code.canonical: match_everywhere(code.canonical, code_hits[code.canonical], found.values())
            for code in codes
        }
        documents = {hit.document_name for hit in found.values()}
        unknown = [
            code
            for code in codes
            if not matches[code.canonical] and not any(contains_code(n, code.canonical) for n in documents)
        ]
        labels = find_labels(query, unknown, has_relatives=lambda series: self._knows(collection.id, series))
        for label in labels:
            del matches[label.canonical]

        matches = {code: soften(by_id) for code, by_id in matches.items()}
        machines = {name.canonical for name in names}
        selective = {item for code, by_id in matches.items() if code not in machines for item in by_id}
        evidence = judge(
            strip_codes(query, labels),
            language,
            vector=vector,
            dense=dense_hits,
            lexical=lexical_hits,
            matches=matches,
            found=found,
            machines=machines,
            background=self._background,
        )
        own, others = self._rank(
            place,
            query,
            language,
            vector=vector,
            dense=dense_hits,
            lexical=lexical_hits,
            coded=selective,
            homes=find_homes([name.canonical for name in names], matches, found),
            is_bridged=evidence.get(language, 0.0) >= _BALANCED,
        )
        first, second = own, others
        if max(evidence.values(), default=0.0) - evidence.get(language, 0.0) >= _OTHER_LEAD:
            first, second = others, own
        lone = _LONE if first is own and _measure_across(evidence, language) < _SCARCE else 0
        order = [*list(first)[:lone], *interleave(list(first)[lone:], list(second))]
        ahead = order_exact(matches, order)
        scores = _stage_scores(dense_hits, lexical_hits, {item for ids in matches.values() for item in ids})
        scores["fused"] = own | others
        ranked = list(dict.fromkeys([*ahead, *self._rerank(query, order, found, scores)]))
        kept, repeats = _drop_repeats([found[item].chunk for item in ranked], limit=top_k)
        passages = tuple(
            Passage(
                chunk=chunk,
                document_name=found[chunk.id].document_name,
                score=_final_score(chunk.id, scores) + (1.0 if chunk.id in ahead else 0.0),
                rank=rank,
                scores={name: by_id[chunk.id] for name, by_id in scores.items() if chunk.id in by_id},
            )
            for rank, chunk in enumerate(kept)
        )
        result = replace(
            blank,
            passages=passages,
            evidence=max(evidence.values(), default=0.0),
            unknown_codes=tuple(code.text for code in unknown if code not in labels),
            codes=tuple(code for code in matches if code not in machines),
            evidence_by_language=evidence,
            labels=tuple(label.text for label in labels),
        )
        return Trace(result, found, scores, order, ranked, repeats)

    def rank_by(
        self, index: IndexName, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY
    ) -> tuple[Passage, ...]:
        """Return up to `top_k` passages as one index alone ranks them: what the fusion has to beat.

        Plain cosines or plain BM25 over all languages; no code goes ahead and repetitions stay.
        """
        place = self._open_field(collection, scope)
        limit = max(top_k, self._candidates)
        if index == "dense":
            hits = self._query_dense(place, self._embedder.embed_query(query), candidates=limit)
        else:
            hits = self._query_lexical(place, query, candidates=limit)
        return tuple(
            Passage(hit.chunk, hit.document_name, score=hit.score, rank=rank, scores={index: hit.score})
            for rank, hit in enumerate(hits[:top_k])
        )

    # -- searching
    def _open_field(self, collection: Collection, scope: Scope) -> _Place:
        keys = None
        if scope.selects_documents:
            keys = tuple(self._catalog.list_visible_keys(collection.id, scope))
            if not keys:
                raise NothingInScopeError(collection.name)
        return _Place(collection.id, keys, scope.language)

    def _query_dense(
        self, place: _Place, vector: Vectors, *, language: str | None = None, candidates: int | None = None
    ) -> list[Found]:
        return self._visible(
            place,
            lambda k: self._vectors.query(
                place.collection_id, vector, top_k=k, language=language, document_keys=place.keys
            ),
            candidates=candidates,
        )

    def _query_lexical(self, place: _Place, query: str, *, candidates: int | None = None) -> list[Found]:
        return self._visible(
            place,
            lambda k: self._lexical.query(place.collection_id, query, top_k=k, document_keys=place.keys),
            candidates=candidates,
        )

    def _find_codes(self, place: _Place, query: str) -> tuple[list[CodeMention], dict[str, list[Found]]]:
        """Return the codes of the query with the chunks that the index has for each.

        What only might be a code is one if the index knows it.
        """
        codes = list_codes(query)
        hits = {code.canonical: self._find_code(place, code.canonical) for code in codes}
        for mention in iter_possible_codes(query):
            known = mention.canonical in hits or len(hits) >= MOST_CODES
            if not known and (found := self._find_code(place, mention.canonical)):
                codes.append(mention)
                hits[mention.canonical] = found
        return codes, hits

    def _find_code(self, place: _Place, canonical: str) -> list[Found]:
        return self._visible(
            place,
            lambda k: self._lexical.find_code(
                place.collection_id, canonical, top_k=k, document_keys=place.keys
            ),
        )

    def _knows(self, collection_id: str, series: str) -> bool:
        return bool(self._lexical.list_codes(collection_id, prefix=series))

    def _search_dense(
        self, place: _Place, query: str, language: str, names: Sequence[CodeMention]
    ) -> tuple[Vectors, list[Found]]:
        """Return the query's vector, and the nearest chunks of its language, then those of others.

        Across languages a machine's name draws the query to all that hold it alike, so it is left out
        there; and some chunks are near to every question, so chunks are ranked by how much nearer they
        are than to unrelated questions (Dinu, Lazaridou and Baroni, 2015, on hubs).
        """
        vector = self._embedder.embed_query(query)
        own = self._query_dense(place, vector)
        bare = strip_codes(query, names)
        bare_vector = self._embedder.embed_query(bare) if names and bare else vector
        others: dict[str, Found] = {}
        for other in LANGUAGES:
            if other == language:
                continue
            hits = self._query_dense(place, bare_vector, language=other)
            others |= {hit.chunk.id: hit for hit in hits if not hit.is_in(language)}
        ranked = self._centre(place.collection_id, language, list(others.values()))
        return vector, [*(hit for hit in own if hit.is_in(language)), *ranked]

    def _centre(self, collection_id: str, language: str, hits: Sequence[Found]) -> list[Found]:
        """Return the hits by what their cosine is above their mean cosine to unrelated questions."""
        if not hits:
            return []
        stored = self._vectors.fetch_vectors(collection_id, [hit.chunk.id for hit in hits])
        questions = self._background.get_questions(language)
        centred = [
            replace(hit, centred=hit.score - float(np.mean(questions @ stored[hit.chunk.id])))
            for hit in hits
            if hit.chunk.id in stored
        ]
        # half way ranks best: all of it favours what is far from everything
        return sorted(centred, key=lambda hit: -(hit.score + hit.centred))

    def _search_lexical(
        self, place: _Place, query: str, language: str, names: Sequence[CodeMention]
    ) -> list[Found]:
        """Return the chunks that share words; in another language those that share more than a name."""
        hits = self._query_lexical(place, query)
        if not names:
            return hits
        own = [hit for hit in hits if hit.is_in(language)]
        others = self._query_lexical(place, strip_codes(query, names))
        return [*own, *(hit for hit in others if not hit.is_in(language))]

    def _visible(
        self, place: _Place, fetch: Callable[[int], Sequence[ScoredId]], *, candidates: int | None = None
    ) -> list[Found]:
        """Return up to `candidates` visible chunks, asking for more while too many are not visible."""
        limit = candidates or self._candidates
        wanted = limit
        while True:
            ids = fetch(wanted)
            visible = self._catalog.find_visible_chunks([item.chunk_id for item in ids])
            hits = [
                hit
                for item in ids
                if item.chunk_id in visible
                and place.holds(hit := make_found(*visible[item.chunk_id], score=item.score))
            ]
            exhausted = len(ids) < wanted or wanted >= limit * _MOST_FETCHED
            if len(hits) >= limit or exhausted:
                return [hit for hit in hits if hit.has_content()][:limit]
            wanted *= 4

    # -- ranking
    def _rank(
        self,
        place: _Place,
        query: str,
        language: str,
        *,
        vector: Vectors,
        dense: Sequence[Found],
        lexical: Sequence[Found],
        coded: AbstractSet[str],
        homes: AbstractSet[str],
        is_bridged: bool,
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return the scores of chunks in the query's language and in others, best first each."""
        own = self._rank_own(
            place.collection_id,
            query,
            vector,
            [hit for hit in dense if hit.is_in(language)],
            [hit for hit in lexical if hit.is_in(language)],
            coded=coded,
            homes=homes,
            background=self._background.measure(language, vector),
        )
        across = [hit for hit in dense if not hit.is_in(language)]
        if is_bridged and own and across:
            across = self._bridge(place.collection_id, language, next(iter(own)), across)
        others = _rank_others(
            _prefer(across, homes),
            _prefer([hit for hit in lexical if not hit.is_in(language)], homes),
            coded=coded,
        )
        return own, others

    def _rank_own(
        self,
        collection_id: str,
        query: str,
        vector: Vectors,
        dense: Sequence[Found],
        lexical: Sequence[Found],
        *,
        coded: AbstractSet[str],
        homes: AbstractSet[str],
        background: float,
    ) -> dict[str, float]:
        """Return the combined scores of chunks in the query's language, best first.

        Words decide the less the more chunks share as many of them with the query: news of one event all
        tell its names, and only meaning tells them apart.
        The best count more the more of the query's content they hold; those with a code of the query
        count more, those of documents without the asked machine less.
        """
        cosines = {hit.chunk.id: hit.score for hit in dense}
        unseen = [hit.chunk.id for hit in lexical if hit.chunk.id not in cosines]
        for item, stored in self._vectors.fetch_vectors(collection_id, unseen).items():
            cosines[item] = float(stored @ vector)
        words = {hit.chunk.id: hit.score for hit in lexical}
        clear = min(1.0, measure_margin(words.values(), rank=_COMPARED) / _CLEAR_MARGIN)
        lexical_weight, coverage_bonus = (
            low + (high - low) * clear for low, high in (_LEXICAL_WEIGHTS, _COVERAGE_BONUSES)
        )
        scores = combine(cosines, words, floor=background, lexical_weight=lexical_weight)
        chunks = {hit.chunk.id: hit.chunk for hit in (*dense, *lexical)}
        units = get_units(query)
        for item in list(scores)[:_COVERED]:
            # squared: what holds nearly all of the question is worth more than two that hold half of it
            scores[item] += coverage_bonus * measure_share(units, chunks[item].indexed_text) ** 2
        for item in scores:
            scores[item] += _CODED_BONUS * (item in coded)
            if homes and chunks[item].document_id not in homes:
                scores[item] *= _AWAY_SHARE
        return dict(sorted(scores.items(), key=lambda entry: -entry[1]))

    def _bridge(self, collection_id: str, language: str, best: str, hits: Sequence[Found]) -> list[Found]:
        """Return the hits of other languages, those nearer to the best chunk of the query's own first.

        A chunk that answers the question says more of it than the question does, and a manual in two
        languages says the same in both: pseudo relevance feedback (Rocchio, 1971) across languages.
        """
        stored = self._vectors.fetch_vectors(collection_id, [best, *(hit.chunk.id for hit in hits)])
        if best not in stored:
            return list(hits)
        background = self._background.get_passages(language)
        nearness = {}
        for hit in hits:
            vector = stored.get(hit.chunk.id)
            to_best = to_others = 0.0
            if vector is not None:
                to_best = float(vector @ stored[best])
                to_others = float(np.mean(background @ vector))
            by_query = hit.score + hit.centred
            nearness[hit.chunk.id] = (1.0 - _BRIDGE) * by_query + _BRIDGE * (2.0 * to_best - to_others)
        return sorted(hits, key=lambda hit: -nearness[hit.chunk.id])

    def _rerank(
        self,
        query: str,
        order: Sequence[str],
        found: Mapping[str, Found],
        scores: dict[str, dict[str, float]],
    ) -> list[str]:
        """Return the order with the best chunks as the reranker orders them; notes its scores."""
        if self._reranker is None:
            return list(order)
        best = list(order[:_RERANKED])
        said = self._reranker.score(query, [found[item].chunk.indexed_text for item in best])
        scores["rerank"] = dict(zip(best, said, strict=True))
        return [*sorted(best, key=lambda item: -scores["rerank"][item]), *order[_RERANKED:]]


def _measure_across(evidence: Mapping[str, float], language: str) -> float:
    """Return the evidence in other languages than the question's."""
    return max((value for group, value in evidence.items() if group != language), default=0.0)


def _prefer(hits: Sequence[Found], homes: AbstractSet[str]) -> list[Found]:
    """Move chunks of the preferred documents up, counting ranks elsewhere several times."""
    if not homes:
        return list(hits)
    place = {
        hit.chunk.id: (rank + 1) * (1.0 if hit.chunk.document_id in homes else _AWAY)
        for rank, hit in enumerate(hits)
    }
    return sorted(hits, key=lambda hit: place[hit.chunk.id])


def _rank_others(
    dense: Sequence[Found], lexical: Sequence[Found], *, coded: AbstractSet[str]
) -> dict[str, float]:
    """Return the fused scores of chunks in another language; those with a code of the query count more."""
    lists = [[hit.chunk.id for hit in hits] for hits in (dense, lexical)]
    fused = fuse(lists, weights=_OTHER_WEIGHTS[:2])
    return fuse([*lists, [item for item in fused if item in coded]], weights=_OTHER_WEIGHTS)


def _drop_repeats(chunks: Sequence[Chunk], *, limit: int) -> tuple[list[Chunk], dict[str, str]]:
    """Return the first `limit` chunks, without those that an earlier one of like context contains.

    These are returned as well, each with the one that contains it.
    """
    kept: list[tuple[str, str, Chunk]] = []
    repeats: dict[str, str] = {}
    for chunk in chunks:
        text, context = squeeze(chunk.text), squeeze(chunk.context)
        same = next((other for shown, held, other in kept if text in shown and context == held), None)
        if same is not None:
            repeats[chunk.id] = same.id
            continue
        kept.append((text, context, chunk))
        if len(kept) == limit:
            break
    return [chunk for _, _, chunk in kept], repeats


def _final_score(chunk_id: str, scores: Mapping[str, Mapping[str, float]]) -> float:
    reranked = scores.get("rerank", {})
    return reranked[chunk_id] if chunk_id in reranked else scores["fused"].get(chunk_id, 0.0)


def _stage_scores(
    dense: Sequence[Found], lexical: Sequence[Found], exact: Iterable[str]
) -> dict[str, dict[str, float]]:
    return {
        "dense": {hit.chunk.id: hit.score for hit in dense},
        "dense_rank": {hit.chunk.id: float(rank) for rank, hit in enumerate(dense)},
        "lexical": {hit.chunk.id: hit.score for hit in lexical},
        "lexical_rank": {hit.chunk.id: float(rank) for rank, hit in enumerate(lexical)},
        "exact": dict.fromkeys(exact, 1.0),
    }
