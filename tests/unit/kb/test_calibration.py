from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.calibration import (
    Judged,
    TooFewQuestionsError,
    choose_threshold,
    find_threshold,
    list_changes,
    measure_rates,
)
from kb.types import Calibration, IndexParts

PARTS = IndexParts("embedder-1", "", "1-320-48")
CALIBRATION = Calibration(0.7, 0.05, 0.04, 0.1, 40, 25, PARTS, datetime(2026, 1, 1, tzinfo=UTC))

GOOD = [Judged(True, evidence) for evidence in (0.95, 0.9, 0.8, 0.55)]
BAD = [Judged(False, evidence) for evidence in (0.6, 0.4, 0.3, 0.2, 0.1)]


def test_the_threshold_lies_between_what_must_not_pass_and_the_next_that_does() -> None:
    assert choose_threshold([*GOOD, *BAD], target_false_answers=0) == pytest.approx(0.7)
    # one of five may pass
    assert choose_threshold([*GOOD, *BAD], target_false_answers=0.2) == pytest.approx(0.475)


def test_rates_are_of_those_that_should_have_gone_the_other_way() -> None:
    rates = measure_rates([*GOOD, *BAD], threshold=0.5)

    assert rates.false_answers == pytest.approx(1 / 5)
    assert rates.false_refusals == 0
    assert measure_rates([*GOOD, *BAD], threshold=0.7).false_refusals == pytest.approx(1 / 4)


def test_what_is_refused_anyway_needs_no_threshold() -> None:
    refused = [Judged(False, 0.99, is_refused=True)] * 6

    assert choose_threshold([*GOOD, *refused], target_false_answers=0) == 0.0
    assert measure_rates([*GOOD, *refused], threshold=0.0).false_answers == 0
    lost = [Judged(True, 0.99, is_refused=True)]
    assert measure_rates([*lost, *refused], threshold=0.0).false_refusals == 1


def test_a_handful_of_questions_says_nothing() -> None:
    with pytest.raises(TooFewQuestionsError):
        choose_threshold([*GOOD, *BAD[:4]], target_false_answers=0.1)
    with pytest.raises(TooFewQuestionsError):
        choose_threshold(BAD, target_false_answers=0.1)


@given(
    st.lists(st.floats(0, 0.999), min_size=5, max_size=40),
    st.lists(st.floats(0, 0.999), min_size=1, max_size=40),
    st.floats(0, 1),
)
def test_the_target_is_never_exceeded(wrong: list[float], right: list[float], target: float) -> None:
    judged = [Judged(False, evidence) for evidence in wrong] + [Judged(True, evidence) for evidence in right]

    threshold = choose_threshold(judged, target_false_answers=target)

    assert measure_rates(judged, threshold=threshold).false_answers <= target + 1e-9


def test_the_settings_hold_without_a_calibration_and_when_it_is_stale() -> None:
    other = replace(PARTS, embedder="embedder-2")

    assert find_threshold(None, get_parts=lambda: PARTS, default=0.5) == (0.5, False)
    assert find_threshold(CALIBRATION, get_parts=lambda: PARTS, default=0.5) == (0.7, False)
    assert find_threshold(CALIBRATION, get_parts=lambda: other, default=0.5) == (0.5, True)


def test_what_has_changed_is_named() -> None:
    assert list_changes(CALIBRATION, PARTS) == []
    assert list_changes(CALIBRATION, IndexParts("x", "y", PARTS.chunker)) == ["embedder", "reranker"]
