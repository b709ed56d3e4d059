from __future__ import annotations

import pytest

from kb.conflicts import ConflictFinder
from kb.units import list_units
from tests.unit.kb.stand_ins import make_passage


def _find(question: str, *texts: str | tuple[str, str], said: str | None = None) -> list[tuple[str, str]]:
    """Return what the finder reports as (document, value); a text is a document, or a name with one."""
    named = [text if isinstance(text, tuple) else (f"{n}.pdf", text) for n, text in enumerate(texts)]
    passages = [
        make_passage(text, rank=n, name=name, document_id=f"d{n}") for n, (name, text) in enumerate(named)
    ]
    units = list_units(passages)
    first = [unit for unit in units if unit.passage_index == 0]
    stated = ConflictFinder(question, units).find(first, said=named[0][1] if said is None else said)
    return [(statement.unit.passage.document_name, statement.value) for statement in stated]


@pytest.mark.parametrize(
    ("question", "one", "other", "values"),
    [
        (
            "回油滤芯多久更换一次？",
            "回油滤芯每 3 个月更换一次。",
            "回油滤芯每 6 个月更换一次。",
            ["3 个月", "6 个月"],
        ),
        (
            "How often is the return filter replaced?",
            "The return filter is replaced every 500 hours of operation.",
            "The return filter is replaced every 250 hours of operation.",
            ["500 hours", "250 hours"],
        ),
        (
            "系统压力应设为多少？",
            "系统工作压力应设定为 16 MPa，不得超过。",
            "请将系统工作压力设定在 21 MPa。",
            ["16 MPa", "21 MPa"],
        ),
        (
            "谁负责液压站的点检？",
            "液压站的点检由维修班王建国负责，每周一次。",
            "液压站的点检由维修班李志强负责，每周一次。",
            ["王建国", "李志强"],
        ),
        (
            "Who supplies the spare seals for the press?",
            "Spare seals for the press are supplied by Parker Hannifin in the agreed sizes.",
            "Spare seals for the press are supplied by Trelleborg in the agreed sizes.",
            ["Parker Hannifin", "Trelleborg"],
        ),
        (
            "年度检修从哪天开始？",
            "年度检修从 5月6日 开始，由设备部组织。",
            "年度检修从 6月10日 开始，由设备部组织。",
            ["5月6日", "6月10日"],
        ),
    ],
)
def test_two_documents_that_differ_on_the_value_are_both_reported(
    question: str, one: str, other: str, values: list[str]
) -> None:
    assert _find(question, one, other) == [("0.pdf", values[0]), ("1.pdf", values[1])]


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        # another machine, year, part, fault
        (
            "1号泵的压力是多少？",
            "1号泵的工作压力为 3 MPa，允许偏差很小。",
            "2号泵的工作压力为 5 MPa，允许偏差很小。",
        ),
        (
            "YL-315 的压力是多少？",
            "YL-315 的工作压力为 25 MPa，不得超过。",
            "YL-200 的工作压力为 20 MPa，不得超过。",
        ),
        (
            "2019年的产量是多少？",
            "2019年工厂的产量为 300 台，创新高。",
            "2020年工厂的产量为 400 台，创新高。",
        ),
        ("顶出力是多少？", "压机的顶出力为 630 kN，由油缸产生。", "压机的公称力为 3150 kN，由主油缸产生。"),
        ("报警怎么处理？", "出现报警时先清洗冷却器，再检查风扇。", "出现报警时先更换冷却器，再检查风扇。"),
        # the same in other words or units, or in one document only
        ("滤芯多久更换一次？", "滤芯每 3 个月更换一次，先停机。", "滤芯每3个月更换1次，须先停机泄压。"),
        ("额定电压是多少？", "变频器的额定电压为 380 V，三相。", "变频器的额定电流为 45 A，三相。"),
        (
            "Who checks the pump?",
            "The pump is checked by the operator every week.",
            "Grease is kept in the store.",
        ),
    ],
)
def test_what_is_about_something_else_is_no_conflict(question: str, one: str, other: str) -> None:
    assert _find(question, one, other) == []


def test_one_document_does_not_contradict_itself() -> None:
    text = "左侧滤芯每 3 个月更换一次。右侧滤芯每 6 个月更换一次。"

    assert _find("滤芯多久更换一次？", text) == []


def test_a_value_that_the_answer_does_not_state_is_still_reported() -> None:
    reported = _find(
        "回油滤芯多久更换一次？",
        "滤芯备件见附录。",
        "回油滤芯每 3 个月更换一次。",
        "回油滤芯每 6 个月更换一次。",
    )

    assert reported == [("1.pdf", "3 个月"), ("2.pdf", "6 个月")]


def test_the_manual_of_another_machine_does_not_contradict_the_asked_one() -> None:
    reported = _find(
        "YL-315 的系统压力是多少？",
        ("YL-315 手册.pdf", "系统工作压力应设定为 16 MPa，不得超过。"),
        ("YL-200 手册.pdf", "系统工作压力应设定为 21 MPa，不得超过。"),
    )

    assert reported == []


def test_three_values_are_reported_once_each() -> None:
    reported = _find(
        "回油滤芯多久更换一次？",
        "回油滤芯每 3 个月更换一次。",
        "回油滤芯每 6 个月更换一次。",
        "回油滤芯每 9 个月更换一次。",
        "回油滤芯每 6 个月更换一次。",
    )

    assert [value for _, value in reported] == ["3 个月", "6 个月", "9 个月"]
