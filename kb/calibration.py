"""The evidence that an answer needs, set from questions whose right behaviour is known (pure)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kb.errors import CallerError
from kb.types import Calibration, IndexParts

LEAST_QUESTIONS = 5
"""Unanswerable questions below which a rate says nothing."""


class TooFewQuestionsError(CallerError):
    """A set of questions is too small to set a threshold by."""

    code = "too_few_questions"


@dataclass(frozen=True, slots=True)
class Judged:
    """What the retriever said of one question; `is_refused` whatever the threshold is."""

    answerable: bool
    evidence: float
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares, 0..1: unanswerable questions that get an answer, answerable ones that get none."""

    false_answers: float
    false_refusals: float


def choose_threshold(judged: Sequence[Judged], *, target_false_answers: float) -> float:
    """Return the least threshold at which no more than the target share of unanswerable questions pass.

    It lies in the middle between the last that must not pass and the next that does. Raises
    `TooFewQuestionsError`.
    """
    open_ = [item for item in judged if not item.is_refused]
    unanswerable = [item for item in judged if not item.answerable]
    if len(unanswerable) < LEAST_QUESTIONS or not any(item.answerable for item in judged):
        raise TooFewQuestionsError(
            f"{len(unanswerable)} unanswerable of {len(judged)} questions are too few to calibrate by",
            next_step=f"Add questions: at least {LEAST_QUESTIONS} that no document answers, and answerable ones.",
        )
    allowed = math.floor(target_false_answers * len(unanswerable) + 1e-9)
    wrong = sorted((item.evidence for item in open_ if not item.answerable), reverse=True)
    if len(wrong) <= allowed:
        return 0.0
    highest = wrong[allowed]
    above = [item.evidence for item in open_ if item.evidence > highest]
    return (highest + min(above, default=1.0)) / 2 if highest < 1.0 else 1.0


def measure_rates(judged: Sequence[Judged], *, threshold: float) -> Rates:
    """Return how often the threshold is wrong, either way."""

    def share(answerable: bool, *, refused: bool) -> float:
        group = [item for item in judged if item.answerable is answerable]
        wrong = [item for item in group if (item.is_refused or item.evidence < threshold) is refused]
        return len(wrong) / len(group) if group else 0.0

    return Rates(false_answers=share(False, refused=False), false_refusals=share(True, refused=True))


def list_changes(calibration: Calibration, parts: IndexParts) -> list[str]:
    """Return which parts are others than when the threshold was set: embedder, reranker, chunker."""
    return [name for name in parts.__slots__ if getattr(calibration.parts, name) != getattr(parts, name)]


def find_threshold(
    calibration: Calibration | None, *, get_parts: Callable[[], IndexParts] | None, default: float
) -> tuple[float, bool]:
    """Return the threshold that holds, and whether the collection's own is stale and was left aside."""
    if calibration is None:
        return default, False
    is_stale = get_parts is not None and calibration.parts != get_parts()
    return (default if is_stale else calibration.threshold), is_stale
