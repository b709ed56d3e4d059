from __future__ import annotations

import pytest

from kb.fault_fields import (
    FaultFields,
    find_leading_code,
    is_code_row,
    is_fault_row,
    is_headed_by,
    read_row,
    read_section,
    tells_of_faults,
)

CHINESE = {"故障代码": "E-0471", "故障现象": "压力低", "可能原因": "漏气", "处理措施": "补氮气"}


@pytest.mark.parametrize(
    ("code", "description", "cause", "remedy"),
    [
        ("代码", "现象", "原因", "处理"),
        ("报警号", "报警内容", "原因分析", "对策"),
        ("故障代码", "故障", "可能原因", "排除方法"),
        ("报警代码（十六进制）", "名称", "故障原因", "解决办法"),
        ("Ｃｏｄｅ", "Fault", "Possible cause(s)", "Corrective action"),
        ("Alarm No.", "Description", "CAUSE", "What to do"),
        ("Alarm", "Meaning", "Causes of the alarm", "Remedies"),
        ("Error code", "Message", "Probable causes", "Action to take"),
    ],
)
def test_headers_in_both_languages_name_the_fields(
    code: str, description: str, cause: str, remedy: str
) -> None:
    record = {code: "E-0471", description: "pressure low", cause: "leak", "x": "y", remedy: "refill"}

    assert read_row(record) == FaultFields("E-0471", "pressure low", "leak", "refill")
    assert is_fault_row(record)
    assert is_headed_by(record, "E0471")
    assert find_leading_code(record) == "E0471"


@pytest.mark.parametrize(
    "header", ["处理人", "设备代码", "故障时间", "Reaction", "设备名称", "备件", "Range", "参数说明", ""]
)
def test_other_headers_name_none(header: str) -> None:
    assert read_row({header: "something"}) == FaultFields()


def test_a_column_for_two_fields_serves_both() -> None:
    fields = read_row({"代码": "E1", "原因及处理措施": "漏气：补氮", "现象/说明": "压力低"})

    assert (fields.cause, fields.remedy, fields.description) == ("漏气：补氮", "漏气：补氮", "压力低")


def test_a_whole_name_goes_before_one_that_only_ends_so() -> None:
    assert read_row({"代码": "E1", "预防措施": "点检", "措施": "更换"}).remedy == "更换"


def test_several_columns_of_one_field_are_joined() -> None:
    record = {"代码": "E1", "故障名称": "过流", "故障现象": "加速时跳闸", "原因": "负载大"}

    assert read_row(record).description == "过流\n加速时跳闸"


@pytest.mark.parametrize(
    ("cell", "code", "description"),
    [("F30001", "F30001", ""), ("Motor hums", "", "Motor hums"), ("OC", "OC", ""), ("2", "2", "")],
)
def test_a_vague_header_stands_above_codes_or_names(cell: str, code: str, description: str) -> None:
    fields = read_row({"Fault": cell, "Cause": "load", "Remedy": "unload"})

    assert (fields.code, fields.description) == (code, description)


def test_a_code_and_a_name_in_one_cell_are_told_apart() -> None:
    assert read_row({"Fault code": "F30001: Overcurrent", "Cause": "load"}) == FaultFields(
        "F30001", "Overcurrent", "load", ""
    )
    assert read_row({"报警": "E-0471 压力低", "处理": "补氮"}).code == "E-0471"


def test_the_code_that_was_asked_for_is_shown_as_it_is_written() -> None:
    record = {"工单": "WO-2024-0822", "故障代码": "E-0203 / F30015", "现象": "停转", "处理": "换滤网"}

    assert read_row(record, code="F30015").code == "F30015"
    assert is_headed_by(record, "F30015")
    assert is_headed_by(record, "E0203")
    assert not is_headed_by(record, "WO20240822")


def test_without_a_column_of_codes_the_first_cell_heads_the_row() -> None:
    assert is_headed_by({"序号": "3", "件号": "LX-250", "数量": "2"}, "LX250")
    assert not is_headed_by({"序号": "3", "项目": "变频驱动 VD300", "数值": "22"}, "VD300")
    assert not is_headed_by({"件号": "LX-250", "配用": "LH-330"}, "LH330")


def test_a_row_of_another_code_is_not_headed_by_one_that_it_mentions() -> None:
    record = {"代码": "E-0421", "现象": "堵塞", "处理": "更换 LX-250，见 E-0471"}

    assert not is_headed_by(record, "E0471")
    assert not is_headed_by(record, "LX250")


@pytest.mark.parametrize(
    ("record", "is_fault"),
    [
        (CHINESE, True),
        ({"现象": "油液发白", "处理": "换油"}, True),
        ({"报警代码": "E-1", "报警名称": "油温高"}, True),
        ({"代码": "P0-15", "名称": "加速时间", "范围": "0-60"}, False),
        ({"件号": "LX-250", "名称": "滤芯", "数量": "2"}, False),
        ({"故障代码": "", "故障现象": "", "处理措施": "x"}, False),
        ({"日期": "1", "措施": "x"}, False),
        ({}, False),
    ],
)
def test_a_row_is_about_a_fault_if_it_says_what_and_why_or_what_to_do(
    record: dict[str, str], is_fault: bool
) -> None:
    assert is_fault_row(record) is is_fault


@pytest.mark.parametrize(
    ("record", "code", "found"),
    [
        ({"报警号": "414", "内容": "伺服"}, "414", True),
        ({"报警号": "4.14", "内容": "伺服"}, "414", False),
        ({"Alarm": "2", "Meaning": "target"}, "ALARM:2", True),
        ({"Alarm": "12", "Meaning": "target"}, "ALARM:2", False),
        ({"代码": "oc", "名称": "过流"}, "ＯＣ", True),
        ({"数量": "414", "名称": "螺钉"}, "414", False),
        ({"代码": "1", "名称": "OC"}, "OC", False),
    ],
)
def test_a_bare_number_or_word_is_a_code_only_in_a_column_of_codes(
    record: dict[str, str], code: str, found: bool
) -> None:
    assert is_code_row(record, code) is found


def test_a_section_is_read_by_its_heading_and_labels() -> None:
    text = "液压系统压力不足。\n可能原因：\n1. 皮囊漏气\n2. 阀芯损坏\n处理措施：补充氮气。\n更换阀芯。"

    fields, labelled = read_section("8.2.3 E-0471 蓄能器压力低", text, code="E0471")

    assert fields == FaultFields(
        "E-0471", "蓄能器压力低", "1. 皮囊漏气\n2. 阀芯损坏", "补充氮气。\n更换阀芯。"
    )
    assert labelled == {"可能原因": "1. 皮囊漏气\n2. 阀芯损坏", "处理措施": "补充氮气。\n更换阀芯。"}


def test_labels_within_a_line_and_as_headings_are_read() -> None:
    inline, _ = read_section("", "E-12: Oil hot. Cause: cooler dirty. Remedy: clean it.", code="E12")
    headed, _ = read_section("Fault E-12", "Cause\nCooler dirty.\nCorrective action\nClean it.", code="E12")

    assert (inline.code, inline.cause, inline.remedy) == ("E-12", "cooler dirty.", "clean it.")
    assert (headed.cause, headed.remedy) == ("Cooler dirty.", "Clean it.")


def test_a_section_without_labels_has_no_invented_fields() -> None:
    fields, labelled = read_section("7.3.3 油液发白", "油液呈乳白色，说明油中进水。停机换油。")

    assert fields == FaultFields("", "油液发白", "", "")
    assert labelled == {}


@pytest.mark.parametrize("heading", ["7 故障处理", "8.3 Symptoms without a code", "Alarms", "常见异常"])
def test_headings_that_tell_of_faults(heading: str) -> None:
    assert tells_of_faults(heading)


@pytest.mark.parametrize("heading", ["5.4 蓄能器", "Default settings", "Maintenance", ""])
def test_other_headings_do_not(heading: str) -> None:
    assert not tells_of_faults(heading)
