from __future__ import annotations

import pytest

from kb.types import Chunk, Passage, Span
from kb.units import Unit, list_units, list_windows, slice_window
from tests.unit.kb.stand_ins import make_passage


def _texts(passage: Passage) -> list[str]:
    return [unit.text for unit in list_units([passage])]


def test_rows_and_sentences_are_units_and_headings_captions_and_headers_are_not() -> None:
    passage = make_passage(
        "2 技术规格\n表 2-1 参数\n项目 | 参数值\n顶出力 | 630 kN\n以上为额定值。另见附录。",
        context="2 技术规格\n项目 | 参数值",
        heading_path=("2 技术规格",),
        records=({"项目": "顶出力", "参数值": "630 kN"},),
    )

    units = list_units([passage])

    assert [unit.text for unit in units] == ["顶出力 | 630 kN", "以上为额定值。", "另见附录。"]
    assert [unit.is_row for unit in units] == [True, False, False]


def test_a_unit_is_the_slice_of_its_page_and_knows_its_heading() -> None:
    text = "7.3.3 油液发白\n油液呈乳白色。停机。\n7.3.4 压制变慢\n测量泄油量。"
    units = list_units([make_passage(text, offset=50, page=3)])

    assert [(unit.heading, unit.text) for unit in units] == [
        ("7.3.3 油液发白", "油液呈乳白色。"),
        ("7.3.3 油液发白", "停机。"),
        ("7.3.4 压制变慢", "测量泄油量。"),
    ]
    for unit in units:
        assert text[unit.char_start - 50 : unit.char_end - 50] == unit.text
        assert unit.page_number == 3


@pytest.mark.parametrize(
    "line",
    [
        "1.2 Lock out … 3",
        "4.1 Keys . . . . . 12",
        "Table 2-1 Models",
        "图 3-1 接线",
        "代码 | 现象 | 处理",
        "处理步骤：",
    ],
)
def test_what_says_nothing_by_itself_is_no_unit(line: str) -> None:
    assert _texts(make_passage(f"{line}\nThe end.")) == ["The end."]


@pytest.mark.parametrize("line", ["E-0471 | 压力低 | 补氮", "4.5 MPa 时控制系统报警。", "1. Stop the motor."])
def test_what_says_something_is_one(line: str) -> None:
    assert _texts(make_passage(line)) == [line]


def test_a_row_ends_with_its_last_cell_and_before_the_next_row() -> None:
    passage = make_passage(
        "E-1 | hot\noil | clean\nE-2 | cold | warm\nAfter the table.",
        records=(
            {"code": "E-1", "cause": "hot oil", "remedy": "clean"},
            {"code": "E-2", "cause": "cold", "remedy": "warm"},
        ),
    )

    assert _texts(passage) == ["E-1 | hot\noil | clean", "E-2 | cold | warm", "After the table."]


def test_rows_of_other_pages_and_absent_rows_are_passed_over() -> None:
    first, second = "A1 | one", "B2 | two"
    chunk = Chunk(
        "c",
        "d",
        1,
        0,
        f"{first}\n{second}",
        (Span(1, 4, 12), Span(2, 0, 8)),
        records=({"k": "gone"}, {"k": "A1", "v": "one"}, {}, {"k": "B2", "v": "two"}),
    )

    units = list_units([Passage(chunk, "m.pdf", 1.0, 0)])

    assert [(unit.page_number, unit.char_start, unit.text) for unit in units] == [
        (1, 4, first),
        (2, 0, second),
    ]
    assert all(unit.is_row for unit in units)


def test_a_code_is_defined_by_cell_head_or_heading() -> None:
    row = list_units([make_passage("E-1 | hot", records=({"code": "E-1", "cause": "hot"},))])[0]
    sentence, under = list_units([make_passage("• E-2: cold.\n8.1 Fault E-3\nWarm it up. E-4 may follow.")])[
        :2
    ]

    assert row.defines("E1")
    assert not row.defines("E2")
    assert sentence.defines("E2")
    assert under.defines("E3")
    assert not under.defines("E4")


def test_windows_join_neighbouring_sentences_only() -> None:
    passage = make_passage(
        "One. Two. Three.\n8.1 Next\nFour.\nK1 | row",
        records=({"k": "K1", "v": "row"},),
    )

    windows = [slice_window(window) for window in list_windows(list_units([passage]))]

    assert windows == [
        "One.",
        "Two.",
        "Three.",
        "Four.",
        "K1 | row",
        "One. Two.",
        "Two. Three.",
        "One. Two. Three.",
    ]


def test_windows_stay_on_one_page_and_short() -> None:
    chunk = Chunk("c", "d", 1, 0, "One.\nTwo.", (Span(1, 0, 4), Span(2, 0, 4)))
    assert len(list_windows(list_units([Passage(chunk, "m.pdf", 1.0, 0)]))) == 2

    long = make_passage(f"{'word ' * 60}end. {'word ' * 60}end.")
    assert len(list_windows(list_units([long]))) == 2


def test_a_row_is_in_the_language_of_its_table() -> None:
    record = {"件号": "LX-250", "数量": "2"}
    row: Unit = list_units([make_passage("LX-250 | 2", context="易损件\n件号 | 数量", records=(record,))])[0]

    assert row.language == "zh"
