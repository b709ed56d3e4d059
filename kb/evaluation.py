"""How well questions were answered: ranks of evidence, refusals, citations (pure)."""

from __future__ import annotations

import math
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kb.errors import CallerError

Place = tuple[str, int]
"""A document's name and a page of it, from 1."""

QUESTION_KINDS = ("code", "symptom", "table", "fact", "multi", "unanswerable")


class QuestionsFileError(CallerError):
    """A file of questions cannot be used."""

    code = "questions_file"


class EvidenceIn(BaseModel):
    """Where the answer stands."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    document: str = Field(min_length=1)
    page: int = Field(ge=1)


class Question(BaseModel):
    """One question with what a right answer needs.

    `answers` are strings of which any should stand in the answer or its evidence. `evidence` are
    pages that hold the answer: a `multi` question needs them all, any other needs one of them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(min_length=1)
    lang: Literal["en", "zh"]
    kind: Literal["code", "symptom", "table", "fact", "multi", "unanswerable"]
    text: str = Field(min_length=1)
    answerable: bool
    answers: tuple[str, ...] = ()
    evidence: tuple[EvidenceIn, ...] = ()

    @property
    def places(self) -> frozenset[Place]:
        """The evidence as places."""
        return frozenset((item.document, item.page) for item in self.evidence)


class _QuestionsFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    question: list[Question] = Field(min_length=1)


def load_questions(path: Path) -> list[Question]:
    """Return the questions of a TOML file, in order; raises `QuestionsFileError` naming what is wrong."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise QuestionsFileError(f"{str(path)!r} cannot be read: {error}") from error
    try:
        questions = _QuestionsFile.model_validate(content).question
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise QuestionsFileError(
            f"{str(path)!r}: {place}: {first['msg']}",
            next_step="Correct the file; docs/evaluation.md describes it.",
        ) from error
    seen = set[str]()
    for question in questions:
        if question.id in seen:
            raise QuestionsFileError(f"{str(path)!r}: the id {question.id!r} occurs twice")
        seen.add(question.id)
        if question.answerable and not question.evidence:
            raise QuestionsFileError(f"{str(path)!r}: {question.id!r} is answerable but has no evidence")
    return questions


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the service did with one question.

    `retrieved` are the places each passage covers, best passage first. The other fields are None
    when no answer was asked for: whether it was refused, how it was made, how many citations it
    has and how many of them are exact, whether an expected string stands in answer or quotes.
    """

    question: Question
    retrieved: tuple[frozenset[Place], ...]
    refused: bool | None = None
    mode: str | None = None
    citations: int | None = None
    exact_citations: int | None = None
    answer_found: bool | None = None

    @property
    def first_rank(self) -> int | None:
        """Rank (from 0) of the first passage that covers evidence."""
        return find_first_rank(self.retrieved, self.question.places)

    def is_hit(self, *, k: int) -> bool:
        """Return whether the first `k` passages cover the evidence: all of it for a `multi` question."""
        recall = measure_recall(self.retrieved, self.question.places, k=k)
        return recall == 1 if self.question.kind == "multi" else recall > 0

    @property
    def ok(self) -> bool | None:
        """True for the right behaviour: evidence in the top 5 and an answer; or a refusal.

        None for an unanswerable question that was not asked.
        """
        if not self.question.answerable:
            return self.refused
        return self.is_hit(k=5) and not self.refused


@dataclass(frozen=True, slots=True)
class Metrics:
    """Means over a set of outcomes, each 0..1, and counts; None where nothing was measured."""

    questions: int
    judged: int
    ok: int
    hit_at_1: float | None
    hit_at_5: float | None
    recall_at_5: float | None
    mrr_at_10: float | None
    ndcg_at_10: float | None
    refusal_precision: float | None
    refusal_recall: float | None
    citations: int
    citation_validity: float | None
    answer_match: float | None


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


def _fold(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def summarise(outcomes: Sequence[Outcome]) -> Metrics:
    """Return the metrics of a set of outcomes.

    Ranking is measured on answerable questions; refusals on all that were answered, where refusing
    an unanswerable question is the positive case; citations over all citations.
    """
    ranked = [item for item in outcomes if item.question.answerable]
    asked = [item for item in outcomes if item.refused is not None]
    refused = [item for item in asked if item.refused]
    unanswerable = [item for item in asked if not item.question.answerable]
    rightly = sum(1 for item in refused if not item.question.answerable)
    citations = sum(item.citations or 0 for item in asked)
    exact = sum(item.exact_citations or 0 for item in asked)
    matches = [
        item.answer_found
        for item in asked
        if item.question.answerable and item.question.answers and item.answer_found is not None
    ]

    def mean(measure: Callable[..., float], *, k: int) -> float | None:
        return _mean([measure(item.retrieved, item.question.places, k=k) for item in ranked])

    return Metrics(
        questions=len(outcomes),
        judged=sum(1 for item in outcomes if item.ok is not None),
        ok=sum(1 for item in outcomes if item.ok),
        hit_at_1=_mean([item.is_hit(k=1) for item in ranked]),
        hit_at_5=_mean([item.is_hit(k=5) for item in ranked]),
        recall_at_5=mean(measure_recall, k=5),
        mrr_at_10=mean(measure_reciprocal_rank, k=10),
        ndcg_at_10=mean(measure_ndcg, k=10),
        refusal_precision=rightly / len(refused) if refused else None,
        refusal_recall=rightly / len(unanswerable) if unanswerable else None,
        citations=citations,
        citation_validity=exact / citations if citations else None,
        answer_match=_mean(matches),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
