"""Finds the passages for a question: dense and lexical search, codes first, languages apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from statistics import median
from threading import Lock
from typing import Literal, Protocol

import numpy as np

from kb.codes import CodeMention, iter_codes, iter_possible_codes
from kb.evidence import (
    CodeMatch,
    contains_code,
    has_unknown_name,
    match_code,
    measure_coverage,
    measure_share,
    measure_similarity,
    measure_unknown,
    score_cross_evidence,
    score_evidence,
)
from kb.fusion import combine, fuse, interleave
from kb.language import detect_language, is_cjk
from kb.ports import Catalog, Embedder, LexicalIndex, Vectors, VectorStore
from kb.resources import read_lines
from kb.types import Chunk, Collection, Passage, ScoredId
from kb.words import get_units, squeeze

IndexName = Literal["dense", "lexical"]

_LANGUAGES = ("zh", "en")
_MOST_CODES = 16
_MOST_FETCHED = 16
"""How many times `candidates` an index is asked for when what it returns is not visible."""
_LEXICAL_WEIGHT = 0.45
"""Measured, as what follows, on manuals, encyclopedias, news and work orders in both languages."""
_CODED_BONUS = 0.05
_COVERAGE_BONUS = 0.3
_COVERED = 20
"""Best chunks whose words are compared with the query's once more."""
_AWAY_SHARE = 0.8
"""What a score counts in a document that doesn't name the machine asked for."""
_OTHER_WEIGHTS = (1.5, 0.15, 0.1)
"""Dense, lexical, and chunks with a code of the query across languages, where shared words say little."""
_BRIDGE = 0.4
"""How much the best chunk of the query's own language says of the order in another."""
_FEW = 5
"""A code that is in more chunks than this names a machine or a series, and can't decide alone."""
_MANY = 12
"""A code that is in more chunks than this tells nothing apart, not even as one sign of several."""
_AWAY = 4.0
"""What ranks count there, across languages."""
_BALANCED = 0.5
_TITLE_CHUNKS = 2
_LEAST_TITLED = 3
_LEAST_CONTENT = 0.35
_CHINESE_SHARE = 0.08
_JUDGED = 10
"""Best chunks of each index that the evidence score reads."""


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What was found. `evidence` (0..1) says whether it is about the question at all, in any language.

    `unknown_codes` are the codes of the question, as written there, that no visible chunk holds; `codes`
    the canonical ones that few chunks hold and that therefore name a fault or a part, not a machine.
    """

    passages: tuple[Passage, ...]
    evidence: float
    unknown_codes: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    evidence_by_language: Mapping[str, float] = field(default_factory=dict)


class PassageRetriever(Protocol):
    """Question to passages; `Retriever`, or one that measures it."""

    def retrieve(self, collection: Collection, query: str, *, top_k: int) -> Retrieval:
        """Return up to `top_k` passages, best first; raises a `BackendError`."""
        ...


class IndexRetriever(PassageRetriever, Protocol):
    """The same, and each index alone."""

    def rank_by(
        self, index: IndexName, collection: Collection, query: str, *, top_k: int
    ) -> tuple[Passage, ...]:
        """Return up to `top_k` passages as one index alone ranks them; raises a `BackendError`."""
        ...


@dataclass(frozen=True, slots=True)
class _Found:
    """A visible chunk with what one index said of it.

    `centred` is set for chunks in another language: the cosine above that to unrelated questions.
    `languages` are those in which it can be read.
    """

    chunk: Chunk
    document_name: str
    score: float
    centred: float = 0.0
    languages: frozenset[str] = frozenset()

    def has_content(self) -> bool:
        """Return False for rows of dots and rules, such as the lines of a table of contents."""
        marks = [char for char in self.chunk.text if not char.isspace()]
        return sum(map(str.isalnum, marks)) > _LEAST_CONTENT * len(marks)

    def is_in(self, language: str) -> bool:
        """Return whether a reader of this language can read it."""
        return language in self.languages


def find_languages(chunk: Chunk) -> frozenset[str]:
    """Return in which of `zh` and `en` a reader can read the chunk; a bilingual page is in both.

    A table row of codes and numbers is in the language of its headings.
    """
    letters = [char for char in chunk.indexed_text if char.isalpha()]
    chinese = sum(map(is_cjk, letters))
    readable = {"zh": chinese > _CHINESE_SHARE * len(letters), "en": chinese * 2 < len(letters)}
    return frozenset(language for language, is_readable in readable.items() if is_readable)


def _make_hit(chunk: Chunk, document_name: str, *, score: float) -> _Found:
    return _Found(chunk, document_name, score=score, languages=find_languages(chunk))


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
        self._questions: dict[str, Vectors] = {}
        self._background_lock = Lock()

    def retrieve(self, collection: Collection, query: str, *, top_k: int) -> Retrieval:
        """Return up to `top_k` passages, best first.

        Chunks that hold a code of the query stand first. Then each language is ranked by itself
        and the lists alternate, the query's own language first: similarities across languages can't
        be compared. Chunks that say the same are shown once.
        """
        language = detect_language(query)
        codes, code_hits = self._find_codes(collection.id, query)
        names = [code for code in codes if _is_machine(code.canonical, code_hits[code.canonical])]
        dense_job = self._pool.submit(self._search_dense, collection.id, query, language, names)
        lexical_hits = self._search_lexical(collection.id, query, language, names)
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
        documents = {hit.document_name for hit in found.values()}
        unknown = tuple(
            code.text
            for code in codes
            if not matches[code.canonical] and not any(contains_code(n, code.canonical) for n in documents)
        )

        matches = {code: _soften(by_id) for code, by_id in matches.items()}
        machines = {name.canonical for name in names}
        selective = {item for code, by_id in matches.items() if code not in machines for item in by_id}
        evidence = self._judge(
            query,
            language,
            vector=vector,
            dense=dense_hits,
            lexical=lexical_hits,
            matches=matches,
            found=found,
            machines=machines,
        )
        homes = _find_homes([name.canonical for name in names], matches, found)
        own = self._rank_own(
            collection.id,
            query,
            vector,
            [hit for hit in dense_hits if hit.is_in(language)],
            [hit for hit in lexical_hits if hit.is_in(language)],
            coded=selective,
            homes=homes,
            background=self._get_background(language, vector),
        )
        across = [hit for hit in dense_hits if not hit.is_in(language)]
        if evidence.get(language, 0.0) >= _BALANCED and own and across:
            across = self._bridge(collection.id, language, next(iter(own)), across)
        others = _rank_others(
            _prefer(across, homes),
            _prefer([hit for hit in lexical_hits if not hit.is_in(language)], homes),
            coded=selective,
        )
        scores = own | others
        first, second = own, others
        if evidence.get(language, 0.0) < _BALANCED < max(evidence.values(), default=0.0):
            first, second = others, own
        order = interleave(list(first), list(second))
        ahead = _order_exact(matches, order)
        exact = {item for by_id in matches.values() for item in by_id}
        order = list(dict.fromkeys([*ahead, *order]))
        kept = _drop_repeats([found[item].chunk for item in order], limit=top_k)
        stage_scores = _stage_scores(dense_hits, lexical_hits, exact)
        passages = tuple(
            Passage(
                chunk=chunk,
                document_name=found[chunk.id].document_name,
                score=scores.get(chunk.id, 0.0) + (1.0 if chunk.id in ahead else 0.0),
                rank=rank,
                scores={name: by_id[chunk.id] for name, by_id in stage_scores.items() if chunk.id in by_id},
            )
            for rank, chunk in enumerate(kept)
        )
        return Retrieval(
            passages=passages,
            evidence=max(evidence.values(), default=0.0),
            unknown_codes=unknown,
            codes=tuple(code for code in matches if code not in {name.canonical for name in names}),
            evidence_by_language=evidence,
        )

    def rank_by(
        self, index: IndexName, collection: Collection, query: str, *, top_k: int
    ) -> tuple[Passage, ...]:
        """Return up to `top_k` passages as one index alone ranks them: what the fusion has to beat.

        Plain cosines or plain BM25 over all languages; no code goes ahead and repetitions stay.
        """
        limit = max(top_k, self._candidates)
        if index == "dense":
            vector = self._embedder.embed_query(query)
            hits = self._visible(
                lambda k: self._vectors.query(collection.id, vector, top_k=k), candidates=limit
            )
        else:
            hits = self._visible(
                lambda k: self._lexical.query(collection.id, query, top_k=k), candidates=limit
            )
        return tuple(
            Passage(hit.chunk, hit.document_name, score=hit.score, rank=rank, scores={index: hit.score})
            for rank, hit in enumerate(hits[:top_k])
        )

    # -- searching
    def _find_codes(
        self, collection_id: str, query: str
    ) -> tuple[list[CodeMention], dict[str, list[_Found]]]:
        """Return the codes of the query with the chunks that the index has for each.

        What only might be a code is one if the index knows it.
        """
        codes = _unique_codes(query)
        hits = {code.canonical: self._find_code(collection_id, code.canonical) for code in codes}
        for mention in iter_possible_codes(query):
            known = mention.canonical in hits or len(hits) >= _MOST_CODES
            if not known and (found := self._find_code(collection_id, mention.canonical)):
                codes.append(mention)
                hits[mention.canonical] = found
        return codes, hits

    def _find_code(self, collection_id: str, canonical: str) -> list[_Found]:
        return self._visible(lambda k: self._lexical.find_code(collection_id, canonical, top_k=k))

    def _search_dense(
        self, collection_id: str, query: str, language: str, names: Sequence[CodeMention]
    ) -> tuple[Vectors, list[_Found]]:
        """Return the query's vector, and the nearest chunks of its language, then those of others.

        Across languages a machine's name draws the query to all that hold it alike, so it is left out
        there; and some chunks are near to every question, so chunks are ranked by how much nearer they
        are than to unrelated questions (Dinu, Lazaridou and Baroni, 2015, on hubs).
        """
        vector = self._embedder.embed_query(query)
        own = self._visible(lambda k: self._vectors.query(collection_id, vector, top_k=k))
        bare = _strip(query, names)
        bare_vector = self._embedder.embed_query(bare) if names and bare else vector
        others: dict[str, _Found] = {}
        for other in _LANGUAGES:
            if other == language:
                continue
            hits = self._visible(
                lambda k, other=other: self._vectors.query(
                    collection_id, bare_vector, top_k=k, language=other
                )  # type: ignore[misc]
            )
            others |= {hit.chunk.id: hit for hit in hits if not hit.is_in(language)}
        ranked = self._centre(collection_id, language, list(others.values()))
        return vector, [*(hit for hit in own if hit.is_in(language)), *ranked]

    def _centre(self, collection_id: str, language: str, hits: Sequence[_Found]) -> list[_Found]:
        """Return the hits by what their cosine is above their mean cosine to unrelated questions."""
        if not hits:
            return []
        stored = self._vectors.fetch_vectors(collection_id, [hit.chunk.id for hit in hits])
        questions = self._get_questions(language)
        centred = [
            replace(hit, centred=hit.score - float(np.mean(questions @ stored[hit.chunk.id])))
            for hit in hits
            if hit.chunk.id in stored
        ]
        # half way ranks best: all of it favours what is far from everything
        return sorted(centred, key=lambda hit: -(hit.score + hit.centred))

    def _bridge(self, collection_id: str, language: str, best: str, hits: Sequence[_Found]) -> list[_Found]:
        """Return the hits of other languages, those nearer to the best chunk of the query's own first.

        A chunk that answers the question says more of it than the question does, and a manual in two
        languages says the same in both: pseudo relevance feedback (Rocchio, 1971) across languages.
        """
        stored = self._vectors.fetch_vectors(collection_id, [best, *(hit.chunk.id for hit in hits)])
        if best not in stored:
            return list(hits)
        background = self._get_background_vectors(language)
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

    def _rank_own(
        self,
        collection_id: str,
        query: str,
        vector: Vectors,
        dense: Sequence[_Found],
        lexical: Sequence[_Found],
        *,
        coded: Set[str],
        homes: Set[str],
        background: float,
    ) -> dict[str, float]:
        """Return the combined scores of chunks in the query's language, best first.

        The best count more the more of the query's content they hold; those with a code of the query
        count more, those of documents without the asked machine less.
        """
        cosines = {hit.chunk.id: hit.score for hit in dense}
        unseen = [hit.chunk.id for hit in lexical if hit.chunk.id not in cosines]
        for item, stored in self._vectors.fetch_vectors(collection_id, unseen).items():
            cosines[item] = float(stored @ vector)
        words = {hit.chunk.id: hit.score for hit in lexical}
        scores = combine(cosines, words, floor=background, lexical_weight=_LEXICAL_WEIGHT)
        chunks = {hit.chunk.id: hit.chunk for hit in (*dense, *lexical)}
        units = get_units(query)
        for item in list(scores)[:_COVERED]:
            # squared: what holds nearly all of the question is worth more than two that hold half of it
            scores[item] += _COVERAGE_BONUS * measure_share(units, chunks[item].indexed_text) ** 2
        for item in scores:
            scores[item] += _CODED_BONUS * (item in coded)
            if homes and chunks[item].document_id not in homes:
                scores[item] *= _AWAY_SHARE
        return dict(sorted(scores.items(), key=lambda entry: -entry[1]))

    def _search_lexical(
        self, collection_id: str, query: str, language: str, names: Sequence[CodeMention]
    ) -> list[_Found]:
        """Return the chunks that share words; in another language those that share more than a name."""
        hits = self._visible(lambda k: self._lexical.query(collection_id, query, top_k=k))
        if not names:
            return hits
        own = [hit for hit in hits if hit.is_in(language)]
        bare = _strip(query, names)
        others = self._visible(lambda k: self._lexical.query(collection_id, bare, top_k=k))
        return [*own, *(hit for hit in others if not hit.is_in(language))]

    def _visible(
        self, fetch: Callable[[int], Sequence[ScoredId]], *, candidates: int | None = None
    ) -> list[_Found]:
        """Return up to `candidates` visible chunks, asking for more while too many are not visible."""
        limit = candidates or self._candidates
        wanted = limit
        while True:
            ids = fetch(wanted)
            visible = self._catalog.find_visible_chunks([item.chunk_id for item in ids])
            exhausted = len(ids) < wanted or wanted >= limit * _MOST_FETCHED
            if len(visible) >= limit or exhausted:
                hits = [
                    _make_hit(*visible[item.chunk_id], score=item.score)
                    for item in ids
                    if item.chunk_id in visible
                ]
                return [hit for hit in hits if hit.has_content()][:limit]
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
        machines: Set[str],
    ) -> dict[str, float]:
        """Return the evidence by language.

        A question that names faults or parts is judged by the chunks that carry one, or by the documents
        named after it, so that a neighbour never vouches for it.
        """
        parts = [code for code in matches if code not in machines]
        carriers: dict[str, CodeMatch] = {}
        for code in parts:
            carriers |= {item: max(match, carriers.get(item, match)) for item, match in matches[code].items()}

        def counts(hit: _Found) -> bool:
            named = any(contains_code(hit.document_name, code) for code in parts)
            return not parts or named or hit.chunk.id in carriers

        texts = [_shown_text(hit) for hit in found.values()]
        unknown_name = has_unknown_name(query, texts)
        # a fault or part says what is asked about, whatever the words around it
        unknown = 0.0 if carriers else measure_unknown(query, texts, names=tuple(matches))
        evidence: dict[str, float] = {}
        for group in _LANGUAGES:
            own = group == language
            cosines = [hit.score for hit in dense if hit.is_in(language) is own]
            near = [hit for hit in dense if hit.is_in(language) is own and counts(hit)][:_JUDGED]
            worded = [hit for hit in lexical if hit.is_in(language) is own and counts(hit)][:_JUDGED]
            coded = [found[item] for item in carriers if found[item].is_in(language) is own][:_JUDGED]
            judged = {hit.chunk.id: hit for hit in (*near, *worded, *coded)}
            if not judged:
                continue
            # what the index did not return is no nearer than the last that it did
            cosine = near[0].score if near else min(cosines, default=-1.0)
            # the name of a machine is in whatever is said of it, and vouches for nothing
            match = max(carriers.get(item, CodeMatch.ABSENT) for item in judged)
            if own:
                evidence[group] = score_evidence(
                    measure_similarity(cosine, background=self._get_background(group, vector)),
                    coverage=measure_coverage(query, [_shown_text(hit) for hit in judged.values()]),
                    language=language,
                    code=match,
                    unknown_name=unknown_name,
                    unknown=unknown,
                )
            else:
                evidence[group] = score_cross_evidence(
                    sorted(
                        (hit.centred for hit in dense if hit.is_in(language) is own and counts(hit)),
                        reverse=True,
                    ),
                    background=self._get_background(group, vector),
                    language=language,
                    code=match,
                    unknown_name=unknown_name,
                )
        return evidence

    def _get_background(self, language: str, vector: Vectors) -> float:
        """Return the cosine that this query has to text about something else, in that language."""
        return float(median((self._get_background_vectors(language) @ vector).tolist()))

    def _get_background_vectors(self, language: str) -> Vectors:
        """Return the vectors of text about something else in the language, one a row."""
        with self._background_lock:
            if language not in self._background:
                texts = read_lines(f"background.{language}")
                self._background[language] = self._embedder.embed_passages(texts)
            return self._background[language]

    def _get_questions(self, language: str) -> Vectors:
        """Return the vectors of unrelated questions in the language, one a row."""
        with self._background_lock:
            if language not in self._questions:
                texts = read_lines(f"background_questions.{language}")
                self._questions[language] = np.stack([self._embedder.embed_query(text) for text in texts])
            return self._questions[language]


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


def _soften(matches: dict[str, CodeMatch]) -> dict[str, CodeMatch]:
    """Take a code that is defined all over for what it is: the name of the machine, not of a fault."""
    if sum(match is CodeMatch.DEFINED for match in matches.values()) <= _FEW:
        return matches
    return dict.fromkeys(matches, CodeMatch.MENTIONED)


def _is_machine(canonical: str, hits: Sequence[_Found]) -> bool:
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


def _find_homes(
    names: Sequence[str], matches: Mapping[str, Mapping[str, CodeMatch]], found: Mapping[str, _Found]
) -> frozenset[str]:
    """Return the documents that name one of the machines, empty if no machine is asked for."""
    return frozenset(found[item].chunk.document_id for name in names for item in matches[name])


def _prefer(hits: Sequence[_Found], homes: Set[str]) -> list[_Found]:
    """Move chunks of the preferred documents up, counting ranks elsewhere several times."""
    if not homes:
        return list(hits)
    place = {
        hit.chunk.id: (rank + 1) * (1.0 if hit.chunk.document_id in homes else _AWAY)
        for rank, hit in enumerate(hits)
    }
    return sorted(hits, key=lambda hit: place[hit.chunk.id])


def _strip(query: str, names: Sequence[CodeMention]) -> str:
    for name in names:
        query = query.replace(name.text, " ")
    return " ".join(query.split())


def _rank_others(dense: Sequence[_Found], lexical: Sequence[_Found], *, coded: Set[str]) -> dict[str, float]:
    """Return the fused scores of chunks in another language; those with a code of the query count more."""
    lists = [[hit.chunk.id for hit in hits] for hits in (dense, lexical)]
    fused = fuse(lists, weights=_OTHER_WEIGHTS[:2])
    return fuse([*lists, [item for item in fused if item in coded]], weights=_OTHER_WEIGHTS)


def _order_exact(matches: Mapping[str, Mapping[str, CodeMatch]], order: Sequence[str]) -> list[str]:
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
    dense: Sequence[_Found], lexical: Sequence[_Found], exact: Iterable[str]
) -> dict[str, dict[str, float]]:
    return {
        "dense": {hit.chunk.id: hit.score for hit in dense},
        "dense_rank": {hit.chunk.id: float(rank) for rank, hit in enumerate(dense)},
        "lexical": {hit.chunk.id: hit.score for hit in lexical},
        "lexical_rank": {hit.chunk.id: float(rank) for rank, hit in enumerate(lexical)},
        "exact": dict.fromkeys(exact, 1.0),
    }
