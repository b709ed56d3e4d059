from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.evaluation import (
    EvidenceIn,
    Outcome,
    Question,
    QuestionsFileError,
    contains_answer,
    find_first_rank,
    is_exact_quote,
    load_questions,
    measure_ndcg,
    measure_recall,
    measure_reciprocal_rank,
    summarise,
)

A1, A2, B7 = ("a.pdf", 1), ("a.pdf", 2), ("b.pdf", 7)


def places(*groups: tuple[tuple[str, int], ...]) -> tuple[frozenset[tuple[str, int]], ...]:
    return tuple(frozenset(group) for group in groups)


def make_question(*evidence: tuple[str, int], kind: str = "fact", **changes: Any) -> Question:
    fields: dict[str, Any] = {
        "id": "q",
        "lang": "en",
        "kind": kind,
        "text": "?",
        "answerable": bool(evidence),
        "answers": ("17.5 MPa",),
        "evidence": tuple(EvidenceIn(document=name, page=page) for name, page in evidence),
    }
    return Question(**fields | changes)


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
    found: list[frozenset[tuple[str, int]]], evidence: frozenset[tuple[str, int]]
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
        Outcome(make_question(A1), places((A1,)), False, "generated", 2, 2, True),
        Outcome(make_question(B7), places((A1,), (B7,)), True, "refused", 0, 0, False),
        Outcome(make_question(), places((A2,)), True, "refused", 0, 0, False),
        Outcome(make_question(), places((A2,)), False, "generated", 2, 1, False),
    ]

    metrics = summarise(outcomes)

    assert (metrics.questions, metrics.judged, metrics.ok) == (4, 4, 2)
    assert metrics.hit_at_1 == 0.5
    assert metrics.hit_at_5 == metrics.recall_at_5 == 1
    assert metrics.mrr_at_10 == 0.75
    assert metrics.ndcg_at_10 == pytest.approx((1 + 1 / math.log2(3)) / 2)
    assert metrics.refusal_precision == metrics.refusal_recall == 0.5
    assert (metrics.citations, metrics.citation_validity) == (4, 0.75)
    assert metrics.answer_match == 0.5


def test_the_summary_of_retrieval_alone_leaves_out_answers() -> None:
    metrics = summarise([Outcome(make_question(A1), places((A1,))), Outcome(make_question(), ())])

    assert (metrics.questions, metrics.judged, metrics.ok) == (2, 1, 1)
    assert metrics.hit_at_1 == 1
    assert metrics.refusal_precision is None
    assert metrics.refusal_recall is None
    assert metrics.citation_validity is None
    assert metrics.answer_match is None
    assert summarise([]).mrr_at_10 is None


QUESTIONS = """
[[question]]
id = "press-e0471"
lang = "zh"
kind = "code"
text = "E-0471 是什么故障，怎么处理？"
answerable = true
answers = ["吸油滤芯"]
evidence = [{ document = "press_manual_zh.pdf", page = 9 }]

[[question]]
id = "moon"
lang = "en"
kind = "unanswerable"
text = "How far is the moon?"
answerable = false
"""


def test_questions_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "questions.toml"
    path.write_text(QUESTIONS, encoding="utf-8")

    first, second = load_questions(path)

    assert first.text == "E-0471 是什么故障，怎么处理？"
    assert first.places == {("press_manual_zh.pdf", 9)}
    assert second.places == frozenset()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('kind = "code"', 'kind = "riddle"'), "question.0.kind"),
        (("page = 9", "page = 0"), "question.0.evidence.0.page"),
        (('id = "moon"', 'id = "press-e0471"'), "occurs twice"),
        (("answerable = false", "answerable = true"), "no evidence"),
        (("text =", "txt ="), "question.0"),
        (("[[question]]", "[[question"), "cannot be read"),
    ],
)
def test_a_wrong_questions_file_names_what_is_wrong(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    path = tmp_path / "questions.toml"
    path.write_text(QUESTIONS.replace(*change), encoding="utf-8")

    with pytest.raises(QuestionsFileError, match=said):
        load_questions(path)


def test_a_missing_questions_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(QuestionsFileError, match=r"none\.toml"):
        load_questions(tmp_path / "none.toml")
