"""Judges how well what was found is about a question, language by language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from statistics import median
from threading import Lock

import numpy as np

from kb.code_matches import asks
from kb.evidence import (
    CodeMatch,
    complete_clipped,
    contains_code,
    has_unknown_name,
    measure_coverage,
    measure_similarity,
    measure_unknown,
    score_cross_evidence,
    score_evidence,
)
from kb.found import Found
from kb.ports import Embedder, Vectors
from kb.resources import read_lines

LANGUAGES = ("zh", "en")
_JUDGED = 10
"""Best chunks of each index that the evidence score reads."""


class Background:
    """What the embedder makes of text about something else; read once. May be used from several threads."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._passages: dict[str, Vectors] = {}
        self._questions: dict[str, Vectors] = {}
        self._lock = Lock()

    def measure(self, language: str, vector: Vectors) -> float:
        """Return the cosine that this query has to text about something else, in that language."""
        return float(median((self.get_passages(language) @ vector).tolist()))

    def get_passages(self, language: str) -> Vectors:
        """Return the vectors of text about something else in the language, one a row."""
        with self._lock:
            if language not in self._passages:
                texts = read_lines(f"background.{language}")
                self._passages[language] = self._embedder.embed_passages(texts)
            return self._passages[language]

    def get_questions(self, language: str) -> Vectors:
        """Return the vectors of unrelated questions in the language, one a row."""
        with self._lock:
            if language not in self._questions:
                texts = read_lines(f"background_questions.{language}")
                self._questions[language] = np.stack([self._embedder.embed_query(text) for text in texts])
            return self._questions[language]


def judge(
    query: str,
    language: str,
    *,
    vector: Vectors,
    dense: Sequence[Found],
    lexical: Sequence[Found],
    matches: Mapping[str, Mapping[str, CodeMatch]],
    found: Mapping[str, Found],
    machines: AbstractSet[str],
    background: Background,
) -> dict[str, float]:
    """Return the evidence by language.

    A question that names faults or parts is judged by the chunks that carry one, or by the documents
    named after it, so that a neighbour never vouches for it.
    """
    parts = [code for code in matches if code not in machines]
    carriers: dict[str, CodeMatch] = {}
    for code in parts:
        carriers |= {item: max(match, carriers.get(item, match)) for item, match in matches[code].items()}

    def counts(hit: Found) -> bool:
        named = any(contains_code(hit.document_name, code) for code in parts)
        return not parts or named or hit.chunk.id in carriers

    texts = [_shown_text(hit) for hit in found.values()]
    if not asks(query):
        query = complete_clipped(query, texts)
    unknown_name = has_unknown_name(query, texts)
    # a fault or part says what is asked about, whatever the words around it
    unknown = 0.0 if carriers else measure_unknown(query, texts, names=tuple(matches))
    evidence: dict[str, float] = {}
    for group in LANGUAGES:
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
        usual = background.measure(group, vector)
        if own:
            evidence[group] = score_evidence(
                measure_similarity(cosine, background=usual),
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
                background=usual,
                language=language,
                code=match,
                unknown_name=unknown_name,
            )
    return evidence


def _shown_text(hit: Found) -> str:
    return f"{hit.document_name}\n{hit.chunk.indexed_text}"
