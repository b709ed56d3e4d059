"""How well questions were answered: ranks of evidence, refusals, citations (pure)."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from statistics import quantiles

Place = tuple[str, int | None]
"""A document's name or id and a page of it, from 1; None stands for the document as a whole."""

Retrieved = tuple[frozenset[Place], ...]
"""The places that each result covers, best result first."""

_ALL_NEEDED = frozenset({"multi", "multi_passage"})


@dataclass(frozen=True, slots=True)
class Question:
    """One question with what a right answer needs.

    `answers` are strings of which any should stand in the answer or its evidence; of `answer_slots`
    each needs one of its strings there. `places` hold the answer: a question of the kind `multi` needs
    them all, any other needs one. `other_places` are further sets of places to rank against, by name,
    such as the same passages in another language.
    """

    id: str
    lang: str
    kind: str
    text: str
    answerable: bool
    answers: tuple[str, ...] = ()
    answer_slots: tuple[tuple[str, ...], ...] = ()
    places: frozenset[Place] = frozenset()
    other_places: Mapping[str, frozenset[Place]] = field(default_factory=dict)

    @property
    def needs_all(self) -> bool:
        """True when every place is needed."""
        return self.kind in _ALL_NEEDED

    @property
    def is_by_document(self) -> bool:
        """True when no place names a page: then documents are ranked, not passages."""
        return all(page is None for _, page in self.places)


def rank_places(question: Question, passages: Iterable[tuple[str, Iterable[int]]]) -> Retrieved:
    """Return what each result covers; `passages` are documents with the pages of each, best first.

    Where no page is asked for, several passages of a document are one result.
    """
    if question.is_by_document:
        names = dict.fromkeys(name for name, _ in passages)
        return tuple(frozenset({(name, None)}) for name in names)
    whole = {name for name, page in question.places if page is None}
    return tuple(
        frozenset({*((name, page) for page in pages), *([(name, None)] if name in whole else [])})
        for name, pages in passages
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the service did with one question.

    `retrieved` are the places each passage covers, best passage first; `plain` the same of one index
    alone, by its name. The other fields are None when no answer was asked for: whether it was refused,
    how it was made, how many citations it has and how many of them are exact, whether the expected
    strings stand in answer or quotes, and whether they stand in the passages the answer was made from.
    """

    question: Question
    retrieved: Retrieved
    plain: Mapping[str, Retrieved] = field(default_factory=dict)
    refused: bool | None = None
    mode: str | None = None
    citations: int | None = None
    exact_citations: int | None = None
    answer_found: bool | None = None
    evidence_found: bool | None = None
    search_s: float | None = None
    answer_s: float | None = None

    @property
    def first_rank(self) -> int | None:
        """Rank (from 0) of the first passage that covers evidence."""
        return find_first_rank(self.retrieved, self.question.places)

    def is_hit(self, *, k: int) -> bool:
        """Return whether the first `k` results cover the evidence: all of it for a `multi` question."""
        return is_hit(self.question, self.retrieved, k=k)

    @property
    def ok(self) -> bool | None:
        """True for the right behaviour: evidence in the top 5 and an answer; or a refusal.

        A question without evidence is judged by its answer. None where that was not asked for.
        """
        if not self.question.answerable:
            return self.refused
        if not self.question.places:
            return self.answer_found
        return self.is_hit(k=5) and not self.refused


@dataclass(frozen=True, slots=True)
class Ranking:
    """Means over answerable questions, each 0..1; None when there are none."""

    questions: int
    hit_at_1: float | None
    hit_at_5: float | None
    recall_at_5: float | None
    mrr_at_10: float | None
    ndcg_at_10: float | None


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds that requests took as their caller sees them; None where none was made."""

    median_s: float | None
    p95_s: float | None


@dataclass(frozen=True, slots=True)
class Metrics:
    """Means over a set of outcomes, each 0..1, and counts; None where nothing was measured."""

    questions: int
    judged: int
    ok: int
    ranking: Ranking
    refusal_precision: float | None
    refusal_recall: float | None
    false_refusals: float | None
    citations: int
    citation_validity: float | None
    answer_match: float | None
    evidence_match: float | None
    search: Latency
    answer: Latency


def is_hit(question: Question, retrieved: Retrieved, *, k: int) -> bool:
    """Return whether the first `k` results cover the evidence: all of it for a `multi` question."""
    recall = measure_recall(retrieved, question.places, k=k)
    return recall == 1 if question.needs_all else recall > 0


def find_first_rank(retrieved: Sequence[AbstractSet[Place]], evidence: AbstractSet[Place]) -> int | None:
    """Return the rank (from 0) of the first passage that covers any evidence."""
    return next((rank for rank, places in enumerate(retrieved) if places & evidence), None)


def measure_recall(retrieved: Sequence[AbstractSet[Place]], evidence: AbstractSet[Place], *, k: int) -> float:
    """Return the share of the evidence that the first `k` passages cover."""
    found = evidence & frozenset(place for places in retrieved[:k] for place in places)
    return len(found) / len(evidence) if evidence else 0.0


def measure_reciprocal_rank(
    retrieved: Sequence[AbstractSet[Place]], evidence: AbstractSet[Place], *, k: int
) -> float:
    """Return 1 / position of the first passage with evidence, 0 beyond `k`."""
    rank = find_first_rank(retrieved[:k], evidence)
    return 0.0 if rank is None else 1 / (rank + 1)


def measure_ndcg(retrieved: Sequence[AbstractSet[Place]], evidence: AbstractSet[Place], *, k: int) -> float:
    """Return the normalised discounted cumulative gain (Järvelin and Kekäläinen, 2002), 0..1.

    A passage gains one for each piece of evidence that no better passage covered: a second chunk of
    the same page adds nothing. One passage that covers several pieces counts at most as the ideal.
    """
    seen = set[Place]()
    gain = 0.0
    for rank, places in enumerate(retrieved[:k]):
        new = (places & evidence) - seen
        gain += len(new) / math.log2(rank + 2)
        seen |= new
    ideal = sum(1 / math.log2(rank + 2) for rank in range(min(k, len(evidence))))
    return min(1.0, gain / ideal) if ideal else 0.0


def is_exact_quote(page_text: str, *, quote: str, char_start: int, char_end: int) -> bool:
    """Return whether the quote is exactly that slice of the page, and not empty."""
    return bool(quote) and page_text[char_start:char_end] == quote


def contains_answer(answers: Iterable[str], texts: Iterable[str]) -> bool:
    """Return whether any expected answer stands in any text; width, case and spaces don't count."""
    folded = [_fold(text) for text in texts]
    return any(_fold(answer) in text for answer in answers for text in folded)


def contains_slots(slots: Iterable[Iterable[str]], texts: Sequence[str]) -> bool:
    """Return whether each slot has one of its strings in some text."""
    return all(contains_answer(slot, texts) for slot in slots)


def _fold(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def summarise(outcomes: Sequence[Outcome]) -> Metrics:
    """Return the metrics of a set of outcomes.

    Ranking is measured on answerable questions; refusals on all that were answered, where refusing
    an unanswerable question is the positive case; citations over all citations.
    """
    asked = [item for item in outcomes if item.refused is not None]
    refused = [item for item in asked if item.refused]
    unanswerable = [item for item in asked if not item.question.answerable]
    rightly = sum(1 for item in refused if not item.question.answerable)
    answerable = len(asked) - len(unanswerable)
    citations = sum(item.citations or 0 for item in asked)
    exact = sum(item.exact_citations or 0 for item in asked)
    return Metrics(
        questions=len(outcomes),
        judged=sum(1 for item in outcomes if item.ok is not None),
        ok=sum(1 for item in outcomes if item.ok),
        ranking=rank(outcomes),
        refusal_precision=rightly / len(refused) if refused else None,
        refusal_recall=rightly / len(unanswerable) if unanswerable else None,
        false_refusals=(len(refused) - rightly) / answerable if answerable else None,
        citations=citations,
        citation_validity=exact / citations if citations else None,
        answer_match=_mean([item.answer_found for item in asked if item.answer_found is not None]),
        evidence_match=_mean([item.evidence_found for item in asked if item.evidence_found is not None]),
        search=_measure_latency([item.search_s for item in outcomes if item.search_s is not None]),
        answer=_measure_latency([item.answer_s for item in outcomes if item.answer_s is not None]),
    )


def rank(outcomes: Sequence[Outcome], *, index: str | None = None) -> Ranking:
    """Return how well the evidence was ranked, by one index alone if it is given."""
    pairs = [
        (item.question, item.retrieved if index is None else item.plain[index])
        for item in outcomes
        if item.question.places and (index is None or index in item.plain)
    ]

    def mean(measure: Callable[..., float], *, k: int) -> float | None:
        return _mean([measure(retrieved, question.places, k=k) for question, retrieved in pairs])

    return Ranking(
        questions=len(pairs),
        hit_at_1=_mean([is_hit(question, retrieved, k=1) for question, retrieved in pairs]),
        hit_at_5=_mean([is_hit(question, retrieved, k=5) for question, retrieved in pairs]),
        recall_at_5=mean(measure_recall, k=5),
        mrr_at_10=mean(measure_reciprocal_rank, k=10),
        ndcg_at_10=mean(measure_ndcg, k=10),
    )


def group_outcomes(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Return the outcomes by kind and by language where a set has several, and by other evidence."""
    groups: dict[str, list[Outcome]] = {}
    labels = {
        "kind": [item.question.kind for item in outcomes],
        "language": [item.question.lang for item in outcomes],
    }
    for label, values in labels.items():
        if len(set(values)) < 2:
            continue
        for value, item in sorted(zip(values, outcomes, strict=True), key=lambda pair: pair[0]):
            groups.setdefault(f"{label} {value or '–'}", []).append(item)
    for name in sorted({name for item in outcomes for name in item.question.other_places}):
        groups[f"evidence {name}"] = [
            replace(item, question=replace(item.question, places=item.question.other_places[name]))
            for item in outcomes
            if item.question.other_places.get(name)
        ]
    return groups


def _measure_latency(seconds: Sequence[float]) -> Latency:
    if not seconds:
        return Latency(None, None)
    if len(seconds) == 1:
        return Latency(seconds[0], seconds[0])
    cuts = quantiles(seconds, n=20, method="inclusive")
    return Latency(median_s=cuts[9], p95_s=cuts[18])


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
