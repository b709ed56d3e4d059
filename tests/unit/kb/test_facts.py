from __future__ import annotations

import pytest

from kb.facts import (
    Number,
    asks_number,
    count_missing,
    find_asked_attribute,
    get_codes,
    has_number,
    iter_numbers,
    negates,
    permits,
    prohibits,
    strip_numbers,
    strip_prohibitions,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("压力为0.5MPa", [Number("0.5", "mpa")]),
        ("压力为０．５ＭＰａ", [Number("0.5", "mpa")]),
        ("torque 1,200 N·m", [Number("1200", "nm")]),
        ("温度 -10 ℃", [Number("-10", "°c")]),
        ("每 5 秒确认", [Number("5", "s")]),
        ("200 rpm, 22kW", [Number("200", "rpm"), Number("22", "kw")]),
        ("1. 检查 3 个螺栓", [Number("3", "")]),
        ("见第 3 步", []),
        ("E-0471 和 P0-15", []),
        ("5.50 bar", [Number("5.5", "bar")]),
        ("拧紧到 30 牛米", [Number("30", "nm")]),
    ],
)
def test_numbers_are_read_with_their_units(text: str, expected: list[Number]) -> None:
    assert list(iter_numbers(text)) == expected


@pytest.mark.parametrize(
    ("claim", "source"),
    [
        ("0.5 MPa", "压力0.5MPa"),
        ("0.5 兆帕", "压力 0.50 MPa"),
        ("5 秒", "every 5 seconds"),
        ("５ ｍｍ", "5毫米"),
        ("630 kN", "顶出力 | 630 | kN"),
        ("0.5 MPa", "压力（MPa）\n0.5"),
        ("5 seconds", "五秒"),
        ("two", "2"),
        ("3", "three bolts"),
        ("1500 r/min", "1,500 rpm"),
    ],
)
def test_the_same_quantity_is_found_in_another_form(claim: str, source: str) -> None:
    assert count_missing(claim, source) == 0


@pytest.mark.parametrize(
    ("claim", "source"),
    [
        ("0.6 MPa", "压力 0.5 MPa"),
        ("300 kg", "长度 300 mm"),
        ("5 min", "5 s"),
        ("-10 °C", "10 °C"),
        ("15 MPa", "115 MPa"),
        ("0.5 MPa", "10.5 MPa"),
        ("E-0472", "E-0471"),
        ("7 bar", "no number at all"),
    ],
)
def test_another_quantity_or_code_is_missing(claim: str, source: str) -> None:
    assert count_missing(claim, source) == 1


def test_a_bare_number_may_stand_with_any_unit() -> None:
    assert has_number("630 kN", Number("630", ""))
    assert not has_number("6300 kN", Number("630", ""))


def test_a_code_may_be_split_over_header_and_cell() -> None:
    assert count_missing("ALARM:2", "Alarm Code | Message\n2 | Soft limit") == 0
    assert count_missing("ALARM:17", "Alarm Code | Message\n2 | Soft limit") == 1


def test_codes_come_once_each() -> None:
    assert get_codes("E-0471, e0471 和 F30001") == ["E0471", "F30001"]


@pytest.mark.parametrize(
    "text", ["严禁带电操作", "不得超压", "请勿打开", "must not be opened", "Never open it", "don't"]
)
def test_prohibitions_are_recognised(text: str) -> None:
    assert prohibits(text)
    assert negates(text)
    assert not prohibits(strip_prohibitions(text))


@pytest.mark.parametrize("text", ["打开阀门", "Open the valve"])
def test_orders_are_no_prohibitions(text: str) -> None:
    assert not prohibits(text)
    assert not negates(text)


def test_an_attribute_is_what_a_number_is_asked_of() -> None:
    assert find_asked_attribute("泵站的额定流量是多少？") == "流量"
    assert find_asked_attribute("最低频率应设为多少？") == "频率"
    assert find_asked_attribute("滤芯怎么更换？") is None


def test_only_a_number_answers_how_much() -> None:
    assert asks_number("滤芯多久换一次？")
    assert asks_number("How long are backups kept?")
    assert not asks_number("滤芯怎么更换？")


def test_permissions_are_told_from_possibilities() -> None:
    assert permits("可以继续生产")
    assert permits("The drive may be restarted.")
    assert not permits("可能是滤芯堵塞")
    assert not permits("检查可靠性")


def test_numbers_and_units_can_be_taken_out() -> None:
    assert strip_numbers("压力为 0.50 MPa。") == "压力为 |。"
