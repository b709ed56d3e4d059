from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.evaluation import (
    Outcome,
    Place,
    Question,
    contains_answer,
    contains_slots,
    find_first_rank,
    group_outcomes,
    is_exact_quote,
    measure_ndcg,
    measure_recall,
    measure_reciprocal_rank,
    rank,
    rank_places,
    summarise,
)

A1: Place = ("a.pdf", 1)
A2: Place = ("a.pdf", 2)
B7: Place = ("b.pdf", 7)


def places(*groups: tuple[Place, ...]) -> tuple[frozenset[Place], ...]:
    return tuple(frozenset(group) for group in groups)


def make_question(*evidence: Place, kind: str = "fact", **changes: Any) -> Question:
    fields: dict[str, Any] = {
        "id": "q",
        "lang": "en",
        "kind": kind,
        "text": "?",
        "answerable": bool(evidence),
        "answers": ("17.5 MPa",),
        "places": frozenset(evidence),
    }
    return Question(**fields | changes)


def make_outcome(
    question: Question,
    *found_at: tuple[Place, ...],
    refused: bool,
    citations: tuple[int, int] = (0, 0),
    found: bool | None = None,
    seconds: float,
) -> Outcome:
    return Outcome(
        question,
        places(*found_at),
        refused=refused,
        citations=citations[0],
        exact_citations=citations[1],
        answer_found=found,
        search_s=seconds,
    )


def test_the_first_rank_is_that_of_the_first_passage_on_an_evidence_page() -> None:
    assert find_first_rank(places((B7,), (A1, A2), (A1,)), {A1}) == 1
    assert find_first_rank(places((B7,)), {A1}) is None
    assert find_first_rank((), {A1}) is None


def test_recall_counts_pieces_of_evidence_not_passages() -> None:
    found = places((A1,), (A1,), (B7,))

    assert measure_recall(found, {A1, B7}, k=2) == 0.5
    assert measure_recall(found, {A1, B7}, k=3) == 1
    assert measure_recall(found, set(), k=3) == 0


def test_reciprocal_rank_ends_at_k() -> None:
    found = places((B7,), (A1,))

    assert measure_reciprocal_rank(found, {A1}, k=10) == 0.5
    assert measure_reciprocal_rank(found, {A1}, k=1) == 0


def test_ndcg_agrees_with_a_case_worked_by_hand() -> None:
    found = places((B7,), (A1,), (A1,), (A2,))

    expected = (1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3))
    assert measure_ndcg(found, {A1, A2}, k=10) == pytest.approx(expected)


def test_ndcg_is_one_when_a_single_passage_covers_everything() -> None:
    assert measure_ndcg(places((A1, A2)), {A1, A2}, k=10) == 1
    assert measure_ndcg(places((A1,)), set(), k=10) == 0


@given(
    found=st.lists(st.frozensets(st.sampled_from([A1, A2, B7])), max_size=12),
    evidence=st.frozensets(st.sampled_from([A1, A2, B7]), min_size=1),
)
def test_every_measure_stays_between_zero_and_one_and_agrees_on_nothing_found(
    found: list[frozenset[Place]], evidence: frozenset[Place]
) -> None:
    values = [
        measure(found, evidence, k=10) for measure in (measure_recall, measure_reciprocal_rank, measure_ndcg)
    ]

    assert all(0 <= value <= 1 for value in values)
    assert len({value == 0 for value in values}) == 1


def test_a_quote_is_exact_only_as_that_very_slice() -> None:
    page = "压力应为 17.5 MPa。"

    assert is_exact_quote(page, quote="17.5 MPa", char_start=5, char_end=13)
    assert not is_exact_quote(page, quote="17.5 MPa", char_start=4, char_end=12)
    assert not is_exact_quote(page, quote="", char_start=3, char_end=3)


def test_an_expected_answer_is_found_whatever_its_width_case_and_spacing() -> None:
    assert contains_answer(["17.5 mpa"], ["no", "压力应为１７．５ MPa"])
    assert not contains_answer(["17.5 MPa"], ["175 MPa"])
    assert not contains_answer([], ["anything"])


def test_a_multi_question_needs_all_its_evidence_and_others_one_page() -> None:
    found = places((A1,), (A2,))

    assert Outcome(make_question(A1, B7), found).is_hit(k=5)
    assert not Outcome(make_question(A1, B7, kind="multi"), found).is_hit(k=5)
    assert not Outcome(make_question(A2), found).is_hit(k=1)


def test_ok_means_evidence_and_an_answer_or_a_right_refusal() -> None:
    found = places((A1,))
    answerable, unanswerable = make_question(A1), make_question()

    assert Outcome(answerable, found).ok
    assert Outcome(answerable, found, refused=False).ok
    assert Outcome(answerable, found, refused=True).ok is False
    assert Outcome(answerable, (), refused=False).ok is False
    assert Outcome(unanswerable, found, refused=True).ok
    assert Outcome(unanswerable, found, refused=False).ok is False
    assert Outcome(unanswerable, found).ok is None


def test_the_summary_is_the_mean_over_what_was_measured() -> None:
    outcomes = [
        make_outcome(make_question(A1), (A1,), refused=False, citations=(2, 2), found=True, seconds=0.1),
        make_outcome(make_question(B7), (A1,), (B7,), refused=True, found=False, seconds=0.3),
        make_outcome(make_question(), (A2,), refused=True, seconds=0.2),
        make_outcome(make_question(), (A2,), refused=False, citations=(2, 1), seconds=0.2),
    ]

    metrics = summarise(outcomes)

    assert (metrics.questions, metrics.judged, metrics.ok) == (4, 4, 2)
    assert metrics.ranking.questions == 2
    assert metrics.ranking.hit_at_1 == 0.5
    assert metrics.ranking.hit_at_5 == metrics.ranking.recall_at_5 == 1
    assert metrics.ranking.mrr_at_10 == 0.75
    assert metrics.ranking.ndcg_at_10 == pytest.approx((1 + 1 / math.log2(3)) / 2)
    assert metrics.refusal_precision == metrics.refusal_recall == metrics.false_refusals == 0.5
    assert metrics.search.median_s == pytest.approx(0.2)
    assert metrics.search.p95_s == pytest.approx(0.285)
    assert (metrics.citations, metrics.citation_validity) == (4, 0.75)
    assert metrics.answer_match == 0.5


def test_the_summary_of_retrieval_alone_leaves_out_answers() -> None:
    metrics = summarise([Outcome(make_question(A1), places((A1,))), Outcome(make_question(), ())])

    assert (metrics.questions, metrics.judged, metrics.ok) == (2, 1, 1)
    assert metrics.ranking.hit_at_1 == 1
    assert metrics.refusal_precision is None
    assert metrics.refusal_recall is None
    assert metrics.answer.median_s is None
    assert metrics.citation_validity is None
    assert metrics.answer_match is None
    assert summarise([]).ranking.mrr_at_10 is None


def test_passages_of_a_document_are_one_result_where_no_page_is_asked_for() -> None:
    passages = [("b.pdf", [7]), ("a.pdf", [1]), ("b.pdf", [9]), ("c.pdf", [])]

    by_document = rank_places(make_question(("b.pdf", None)), passages)
    by_page = rank_places(make_question(A1, ("b.pdf", None)), passages)

    assert by_document == places((("b.pdf", None),), (("a.pdf", None),), (("c.pdf", None),))
    assert by_page[:2] == places((B7, ("b.pdf", None)), (A1,))
    assert len(by_page) == 4


def test_a_question_without_evidence_is_judged_by_its_answer_and_ranks_nothing() -> None:
    question = make_question(answerable=True)

    assert Outcome(question, (), refused=False, answer_found=True).ok
    assert Outcome(question, (), refused=False, answer_found=False).ok is False
    assert Outcome(question, ()).ok is None
    assert rank([Outcome(question, ())]).questions == 0


def test_each_slot_needs_one_of_its_strings() -> None:
    assert contains_slots([["17.5", "18"], ["bar"]], ["about 18", "in BAR"])
    assert not contains_slots([["17.5", "18"], ["bar"]], ["about 18 MPa"])


def test_one_index_alone_is_ranked_by_what_it_found() -> None:
    outcomes = [
        Outcome(make_question(A1), places((A1,)), plain={"dense": places((B7,), (A1,))}),
        Outcome(make_question(B7), places((B7,))),
    ]

    assert rank(outcomes).hit_at_1 == 1
    assert (rank(outcomes, index="dense").questions, rank(outcomes, index="dense").hit_at_1) == (1, 0)


def test_groups_are_kinds_languages_and_other_evidence_where_there_are_several() -> None:
    code = make_question(A1, kind="code", other_places={"xling": frozenset({B7})})
    outcomes = [Outcome(code, places((A1,), (B7,))), Outcome(make_question(A2), places((A2,)))]

    groups = group_outcomes(outcomes)

    assert {name: len(group) for name, group in groups.items()} == {
        "kind code": 1,
        "kind fact": 1,
        "evidence xling": 1,
    }
    assert groups["evidence xling"][0].first_rank == 1
    assert groups["kind code"][0].first_rank == 0
