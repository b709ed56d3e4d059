from __future__ import annotations

from collections.abc import Mapping

import pytest

from kb.adapters.extractive_generator import ExtractiveGenerator
from kb.language import detect_language
from kb.types import Chunk, GenerationDelta, GenerationRequest, Passage, Span


def passage(
    text: str, *, context: str = "", records: tuple[Mapping[str, str], ...] = (), rank: int = 0
) -> Passage:
    chunk = Chunk(f"c{rank}", "d", 1, rank, text, (Span(1, 0, len(text)),), context=context, records=records)
    return Passage(chunk, "manual.pdf", 1.0, rank)


def answer(question: str, *passages: Passage, max_sentences: int = 3) -> list[str]:
    request = GenerationRequest((), question, passages, detect_language(question))
    events = list(ExtractiveGenerator(max_sentences=max_sentences).stream(request))
    return "".join(event.text for event in events if isinstance(event, GenerationDelta)).splitlines()


FAULT_ROWS = (
    {"代码": "E-0471", "原因": "油温过高", "处理": "清洗冷却器"},
    {"代码": "E-0472", "原因": "油位过低", "处理": "补充液压油"},
)
FAULT_TABLE = passage(
    "E-0471 | 油温过高 | 清洗冷却器\nE-0472 | 油位过低 | 补充液压油",
    context="XJ-200 > 故障代码表\n代码 | 原因 | 处理",
    records=FAULT_ROWS,
)


def test_the_sentence_that_shares_most_with_the_question_is_quoted_with_its_marker() -> None:
    lines = answer(
        "What is the oil cooler cleaned with?",
        passage("The pump is blue. Clean the oil cooler with compressed air. Close the door."),
    )

    assert lines == ["Clean the oil cooler with compressed air. [1]"]


def test_the_marker_counts_passages_from_one() -> None:
    lines = answer("冷却器怎么清洗？", passage("铭牌在右侧。"), passage("用压缩空气清洗冷却器。", rank=1))

    assert lines == ["用压缩空气清洗冷却器。 [2]"]


def test_a_code_selects_its_own_row_and_no_other() -> None:
    assert answer("E-0472 是什么意思？", FAULT_TABLE) == [
        "代码：E-0472；原因：油位过低；处理：补充液压油 [1]"
    ]


def test_a_model_number_in_the_heading_does_not_let_in_another_fault() -> None:
    assert answer("XJ-200 报 E0471 怎么办", FAULT_TABLE) == [
        "代码：E-0471；原因：油温过高；处理：清洗冷却器 [1]"
    ]


def test_a_code_that_no_passage_names_gives_no_quote() -> None:
    assert answer("E-0999 是什么意思？", FAULT_TABLE) == []


def test_a_code_in_the_heading_counts_for_the_text_below() -> None:
    lines = answer(
        "What to do on F30001?",
        passage("Check the motor cable. Also see F30005.", context="Faults > F30001 overcurrent"),
        passage("F30005: overload. Reduce the load.", rank=1),
    )

    assert lines
    assert all(line.endswith("[1]") for line in lines)
    assert "Check the motor cable. [1]" in lines


def test_a_row_over_two_lines_is_quoted_whole() -> None:
    table = passage(
        "Before.\nE-11 | hot\noil | clean\nAfter the table.",
        records=({"code": "E-11", "cause": "hot oil", "remedy": "clean"},),
    )

    assert answer("E-11", table) == ["code: E-11; cause: hot oil; remedy: clean [1]"]


def test_records_that_are_not_in_the_text_are_passed_over() -> None:
    table = passage("Oil is hot.", records=({"a": "absent"}, {"a": ""}))

    assert answer("oil", table) == ["Oil is hot. [1]"]


def test_a_question_in_another_language_gets_the_best_passage() -> None:
    assert answer("油温过高怎么办", passage("Clean the cooler. Then restart.")) == ["Clean the cooler. [1]"]


def test_no_passages_give_no_text() -> None:
    assert answer("油温过高怎么办") == []


def test_at_most_the_allowed_sentences_are_quoted_in_the_order_of_the_text() -> None:
    text = "油温过高时停机。油温过高时报警。油温过高时清洗冷却器。"

    lines = answer("油温过高", passage(text), max_sentences=2)

    assert lines == ["油温过高时停机。 [1]", "油温过高时报警。 [1]"]


def test_the_same_sentence_is_quoted_once() -> None:
    lines = answer("oil hot", passage("Oil is hot."), passage("Oil is hot.", rank=1))

    assert lines == ["Oil is hot. [1]"]


def test_a_printed_bracket_number_is_no_marker() -> None:
    assert answer("torque", passage("Torque 40 Nm, see [2].")) == ["Torque 40 Nm, see (2). [1]"]


@pytest.mark.parametrize("text", ["Set 2.5 bar at P-101.2 first.", "温度为 65.5 °C。"])
def test_decimal_points_end_no_sentence(text: str) -> None:
    assert answer(text, passage(text)) == [f"{text} [1]"]


SPECIFICATION = passage(
    "3 | 顶出力 | 630 | kN\n4 | 顶出缸行程 | 250 | mm",
    context="2 技术规格\n序号 | 项目 | 参数值 | 单位",
    records=(
        {"序号": "3", "项目": "顶出力", "参数值": "630", "单位": "kN"},
        {"序号": "4", "项目": "顶出缸行程", "参数值": "250", "单位": "mm"},
    ),
)


def test_a_row_is_shown_with_the_names_of_its_columns() -> None:
    assert answer("YL-315 的顶出力是多少？", SPECIFICATION) == [
        "序号：3；项目：顶出力；参数值：630；单位：kN [1]"
    ]


def test_columns_without_a_name_and_empty_cells_are_left_out() -> None:
    table = passage("pump | 5 |", records=({"column 1": "pump", "Size": "5", "Note": ""},))

    assert answer("size of the pump", table) == ["pump; Size: 5 [1]"]


def test_another_quantity_is_no_answer() -> None:
    assert answer("泵站的额定流量是多少？", passage("泵站的额定压力为 17.5 MPa。")) == []


def test_a_finding_is_followed_by_its_cause_and_remedy_as_far_as_its_heading_reaches() -> None:
    text = "7.1 发白\n油液呈乳白色。说明油中进水。停机。\n7.2 变慢\n测量泄油量。"

    assert answer("油液呈乳白色怎么处理？", passage(text)) == [
        "油液呈乳白色。 [1]",
        "说明油中进水。 [1]",
        "停机。 [1]",
    ]


def test_each_part_of_a_question_gets_its_sentence() -> None:
    lines = answer(
        "主缸密封哪天更换，法兰螺栓的拧紧力矩是多少？",
        passage("主缸密封于 9 月 14 日更换。"),
        passage("法兰螺栓的拧紧力矩为 1350 N·m。", rank=1),
    )

    assert lines == ["主缸密封于 9 月 14 日更换。 [1]", "法兰螺栓的拧紧力矩为 1350 N·m。 [2]"]


def test_nothing_in_common_gives_no_quote() -> None:
    assert (
        answer("液压站压力波动的原因是什么？", passage("食堂在五号楼。"), passage("领用登记。", rank=1)) == []
    )


def test_a_definition_in_another_language_stands_beside_what_the_own_says() -> None:
    table = passage("E-0421 | 吸油滤芯堵塞", records=({"代码": "E-0421", "现象": "吸油滤芯堵塞"},))
    note = passage("Wednesday: alarm E-0421 came twice.", rank=1)

    assert answer("What happened when alarm E-0421 came twice?", table, note) == [
        "Wednesday: alarm E-0421 came twice. [2]",
        "代码：E-0421；现象：吸油滤芯堵塞 [1]",
    ]


def test_in_another_language_the_number_asked_for_goes_first() -> None:
    text = "Set the ramp first. Set the minimum frequency to 20.0 Hz."

    assert answer("最低频率应设为多少？", passage(text)) == ["Set the minimum frequency to 20.0 Hz. [1]"]


def test_the_number_of_another_part_is_no_answer() -> None:
    bolt = passage("压板螺栓 M24 的拧紧力矩为 450 N·m。")

    assert answer("压板螺栓的拧紧力矩是多少？", bolt) != []
    assert answer("立柱螺母的拧紧力矩是多少？", bolt) == []


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("1 号压机哪天停机检修？", "3号压机停机检修，更换主缸密封。"),
        ("When is press 1 serviced?", "Press 3 is serviced in May."),
    ],
)
def test_another_machine_of_the_kind_is_no_answer(question: str, text: str) -> None:
    assert answer(question, passage(text)) == []
    asked = question.replace("1", "3")
    assert answer(asked, passage(text)) != []


def test_what_to_do_about_a_code_in_prose_is_quoted_with_it() -> None:
    log = passage("E07：排气温度传感器断线。处理：检查接线端子 X3。E08：油位低。处理：加油。")

    said = answer("E07 怎么处理？", log)

    assert said[0].startswith("E07：排气温度传感器断线。")
    assert "X3" in said[1]
    assert not any("加油" in line for line in said)


def test_a_number_that_is_asked_for_is_not_answered_by_a_sentence_without_one() -> None:
    assert answer("变频器的防护等级是IP多少？", passage("变频器有多种防护等级可选。")) == []
    text = "变频器有多种防护等级可选。变频器的防护等级为 IP54。"
    assert answer("变频器的防护等级是IP多少？", passage(text)) == ["变频器的防护等级为 IP54。 [1]"]


def test_a_number_is_not_looked_for_in_another_language_s_words() -> None:
    assert (
        answer("电机的额定功率是多少？", passage("The drive should be mounted in a separate cabinet.")) == []
    )


def test_the_sentence_with_the_command_that_was_asked_for_follows_the_finding() -> None:
    text = (
        "After an update the stored settings may not match the firmware. "
        "Send M502 and M500 to reset them. Then restart the machine."
    )

    quoted = answer(
        "The stored settings do not match after an update, which commands do I send?", passage(text)
    )

    assert any("M502 and M500" in line for line in quoted)


def test_a_part_of_a_question_is_understood_by_the_others() -> None:
    rows = ({"故障": "电机调谐故障", "代码": "ERR19"}, {"故障": "电机对地短路", "代码": "ERR23"})
    text = "\n".join(" | ".join(row.values()) for row in rows)

    quoted = answer(
        "一上电就报电机对地短路，对应哪个故障代码？",
        passage(text, context="故障 | 代码", records=rows),
    )

    assert len(quoted) == 1
    assert "ERR23" in quoted[0]
