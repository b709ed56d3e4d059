from __future__ import annotations

import pytest

from kb.follow_ups import carry_over, is_faithful, leans_on_history
from kb.types import Message


def _talk(*turns: str) -> tuple[Message, ...]:
    return tuple(Message("assistant" if n % 2 else "user", text) for n, text in enumerate(turns))


FAULT = _talk("E-0471 怎么处理？", "补充氮气。")
PUMP = _talk("What is the pressure of the feed pump?", "It is 16 bar.")


@pytest.mark.parametrize(
    ("question", "history"),
    [
        ("还有别的原因吗", FAULT),
        ("那怎么复位呢？", FAULT),
        ("为什么呢？", FAULT),
        ("它多久检查一次？", FAULT),
        ("那 E-0472 呢？", FAULT),
        ("and for the other pump?", PUMP),
        ("Why?", PUMP),
        ("How often is it checked?", PUMP),
        ("Any other causes?", PUMP),
    ],
)
def test_a_continuation_leans_on_history(question: str, history: tuple[Message, ...]) -> None:
    assert leans_on_history(question, history)
    assert not leans_on_history(question, ())


@pytest.mark.parametrize(
    "question",
    [
        "回油滤芯多久更换一次？",
        "E-0472 怎么处理？",
        "这台 YL-315 压力机的顶出力是多少？",
        "How often is the return filter replaced?",
        "What does ALARM:2 mean and can it be reset?",
        "Which oil is used in the gearbox of the crane when it is cold outside?",
    ],
)
def test_a_question_that_stands_by_itself_is_not_taken_for_a_continuation(question: str) -> None:
    assert not leans_on_history(question, FAULT)
    assert not leans_on_history(question, PUMP)


@pytest.mark.parametrize(
    ("question", "history", "completed"),
    [
        ("还有别的原因吗", FAULT, "E-0471 还有别的原因吗"),
        ("那 E-0472 呢？", FAULT, "E-0472 怎么处理？"),
        ("and for the other pump?", PUMP, "What is the pressure of the feed pump and for the other pump?"),
        ("还有呢？", (*FAULT, *_talk("还有别的原因吗", "没有。")), "E-0471 还有呢？"),
        ("用什么型号？", _talk("回油滤芯多久更换一次？", "3 个月"), "回油滤芯多久更换一次 用什么型号？"),
    ],
)
def test_codes_or_words_of_the_last_whole_question_are_carried_over(
    question: str, history: tuple[Message, ...], completed: str
) -> None:
    assert carry_over(question, history) == completed


@pytest.mark.parametrize(
    ("completed", "faithful"),
    [
        ("E-0471 还有别的原因吗？", True),
        ("报警 E-0471 的其他原因是什么？", True),
        ("E-0472 还有别的原因吗？", False),
        ("还有别的原因吗？", False),
        ("E-0471 压力低于 5 MPa 的其他原因？", False),
        ("What other causes does E-0471 have?", False),
        ("", False),
        ("E-0471 的原因？\n1. 氮气不足", False),
    ],
)
def test_a_completed_question_must_keep_to_what_was_said(completed: str, *, faithful: bool) -> None:
    assert is_faithful(completed, "还有别的原因吗", FAULT) is faithful
