from __future__ import annotations

import pytest

from ingest.numbering import heading_level, is_list_item


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("第三章 液压系统", 1),
        ("第 2 节 日常点检", 2),
        ("一、发行人历史信用评级情况", 2),
        ("（二）润滑", 3),
        ("1 Safety", 1),
        ("1.2 Electrical connection", 2),
        ("1.2.3 油泵", 3),
        ("1.2.3油泵的检查", 3),
        ("Chapter 4 Alarms", 1),
        ("Appendix A Spare parts", 1),
        ("附录A 备件清单", 1),
        ("Check the oil level", 0),
        ("1. Check the oil level", 0),
        ("3.5kW motor", 0),
        ("380.5 V", 0),
        ("2.5 mm gap", 0),
        ("1.2 停机后检查冷却水阀与回油滤芯。", 0),
        ("2024 年度报告", 0),
        ("第三个月检查油位", 0),
        ("x" * 80, 0),
        ("", 0),
    ],
)
def test_numbering_gives_the_level(line: str, level: int) -> None:
    assert heading_level(line) == level


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("• oil level", True),
        ("- oil level", True),
        ("1. Check", True),
        ("2) Check", True),
        ("(a) Check", True),
        ("① 检查", True),
        ("1、检查油位", True),
        ("-5 °C", False),
        ("1.5 mm", False),
        ("Check", False),
    ],
)
def test_list_items_are_recognised(line: str, expected: bool) -> None:
    assert is_list_item(line) is expected
