from __future__ import annotations

from collections.abc import Sequence

import pytest

from kb.citations import CitationChecker
from kb.types import Chunk, Passage, Span
from tests.unit.kb.stand_ins import make_passage

PRESSURE = "系统压力应保持在 0.5 MPa。严禁带电操作阀门。每 3 个月更换回油滤芯。"


def _checker(passages: Sequence[Passage], question: str = "怎么处理？") -> CitationChecker:
    return CitationChecker(passages, question=question)


def _table(*rows: tuple[str, str, str]) -> Passage:
    lines = [" | ".join(row) for row in rows]
    text = "\n".join(lines)
    records = tuple(dict(zip(("代码", "现象", "处理"), row, strict=True)) for row in rows)
    return make_passage(text, context="故障表\n代码 | 现象 | 处理", records=records, page=4)


def test_a_supported_sentence_keeps_its_marker_and_gets_its_quote() -> None:
    checker = _checker([make_passage("前言。" + PRESSURE, page=7, offset=100)])

    assert checker.check("系统压力保持在 0.5 MPa。[1]") == "系统压力保持在 0.5 MPa[1]。"

    citation = checker.citations[0]
    assert citation.quote == "系统压力应保持在 0.5 MPa。"
    assert (citation.number, citation.page_number) == (1, 7)
    assert (citation.char_start, citation.char_end) == (103, 103 + len(citation.quote))


def test_no_blank_stays_where_a_marker_before_the_full_stop_was() -> None:
    checker = _checker([make_passage(PRESSURE)])

    assert checker.check("系统压力保持在 0.5 MPa [1] 。\n") == "系统压力保持在 0.5 MPa[1]。\n"


def test_the_quote_is_the_slice_of_the_page_over_a_page_break() -> None:
    pages = {1: "目录\n更换滤芯前先停机。", 2: "拧紧力矩 30 N·m，分两次拧紧。\n结束"}
    first, second = pages[1][3:], pages[2][:-3]
    chunk = Chunk(
        "c", "d", 1, 0, f"{first}\n{second}", (Span(1, 3, 12), Span(2, 0, len(second))), language="zh"
    )
    checker = _checker([Passage(chunk, "m.pdf", 1.0, 0)])

    checker.check("拧紧力矩为 30 N·m。[1]")
    checker.check("更换滤芯前停机。[1]")

    for citation in checker.citations:
        assert pages[citation.page_number][citation.char_start : citation.char_end] == citation.quote
    assert [citation.page_number for citation in checker.citations] == [2, 1]


@pytest.mark.parametrize(
    "claim", ["系统压力应保持在 0.5MPa。", "系统压力应保持在０．５ＭＰａ。", "系统压力保持 0.50 兆帕。"]
)
def test_a_quantity_may_be_written_differently(claim: str) -> None:
    assert _checker([make_passage(PRESSURE)]).check(claim)


@pytest.mark.parametrize(
    "claim",
    [
        "系统压力应保持在 0.6 MPa。[1]",
        "系统压力应保持在 0.5 bar。[1]",
        "每 6 个月更换回油滤芯。[1]",
        "E-0471 表示系统压力应保持在 0.5 MPa。[1]",
        "变频器的防护等级很高，适合户外安装。[1]",
    ],
)
def test_a_sentence_with_foreign_facts_or_words_is_dropped(claim: str) -> None:
    checker = _checker([make_passage(PRESSURE)])

    assert checker.check(claim) == ""
    assert checker.dropped_count == 1
    assert checker.citations == ()


def test_millimetres_do_not_become_kilograms() -> None:
    checker = _checker([make_passage("工作台行程为 300 mm，滑块重 2 kg。")])

    assert checker.check("工作台行程为 300 kg。[1]") == ""
    assert checker.check("工作台行程为 300 mm。[1]") != ""


def test_a_lost_prohibition_is_dropped() -> None:
    checker = _checker([make_passage(PRESSURE)])

    assert checker.check("可以带电操作阀门。[1]") == ""
    assert checker.check("严禁带电操作阀门。[1]") != ""


def test_an_invented_prohibition_is_dropped() -> None:
    checker = _checker([make_passage("The cover may be opened while the motor is running.")], "cover?")

    assert checker.check("The cover must not be opened while the motor is running. [1]") == ""


def test_markers_out_of_range_are_removed_and_support_is_found() -> None:
    checker = _checker([make_passage("另一页讲冷却水。", rank=0), make_passage(PRESSURE, rank=1)])

    assert checker.check("每 3 个月更换回油滤芯【9】。") == "每 3 个月更换回油滤芯[1]。"
    assert checker.citations[0].chunk_id == "c1"


def test_a_wrong_marker_is_moved_to_the_passage_that_says_so() -> None:
    checker = _checker([make_passage("冷却水温度不超过 35 ℃。", rank=0), make_passage(PRESSURE, rank=1)])

    assert checker.check("每 3 个月更换回油滤芯。[1]").endswith("[1]。")
    assert checker.citations[0].chunk_id == "c1"


def test_numbers_follow_the_order_of_appearance() -> None:
    checker = _checker([make_passage("冷却水温度不超过 35 ℃。", rank=0), make_passage(PRESSURE, rank=1)])

    assert checker.check("每 3 个月更换回油滤芯。[2]") == "每 3 个月更换回油滤芯[1]。"
    assert checker.check("冷却水温度不超过 35 ℃。[1]") == "冷却水温度不超过 35 ℃[2]。"
    assert [citation.number for citation in checker.citations] == [1, 2]


def test_two_sentences_with_one_quote_share_a_number() -> None:
    checker = _checker([make_passage(PRESSURE)])

    assert "[1]" in checker.check("系统压力应保持在 0.5 MPa。[1]")
    assert "[1]" in checker.check("压力应保持 0.5 MPa。[1]")
    assert len(checker.citations) == 1


def test_one_codes_row_does_not_vouch_for_another_code() -> None:
    table = _table(("E-0471", "蓄能器压力低", "补充氮气"), ("E-0472", "回程压力高", "重新调整 RV4"))
    checker = _checker([table], "E-0471 是什么？")

    assert checker.check("E-0471 表示回程压力高，重新调整 RV4。[1]") == ""
    assert checker.check("重新调整 RV4。[1]") == ""
    assert checker.check("E-0471 表示蓄能器压力低。[1]") == "E-0471 表示蓄能器压力低[1]。"
    assert checker.citations[0].quote == "E-0471 | 蓄能器压力低 | 补充氮气"


def test_a_symptom_does_not_get_its_cause_from_another_row() -> None:
    table = _table(("E-0471", "蓄能器压力低", "皮囊漏气，氮气预充压力低于 4.5 MPa"))
    checker = _checker([table], "油泵啸叫并且管路剧烈振动，是什么原因？")

    assert checker.check("油泵啸叫并且管路剧烈振动，可能是皮囊漏气，氮气预充压力低于 4.5 MPa。[1]") == ""


def test_a_condition_does_not_become_a_prohibition() -> None:
    checker = _checker([make_passage("每分钟不超过 1 滴时可继续生产到班末。")])

    assert checker.check("不能继续生产。[1]") == ""
    assert checker.check("每分钟不超过 1 滴时可继续生产。[1]") != ""


def test_a_heading_repeated_as_a_sentence_says_nothing() -> None:
    checker = _checker([make_passage("6 润滑\n每班检查油位。", heading_path=("6 润滑",))])

    assert checker.check("6 润滑\n") == ""


def test_a_repeated_sentence_is_emitted_once() -> None:
    checker = _checker([make_passage(PRESSURE)])

    assert checker.check("系统压力应保持在 0.5 MPa。")
    assert checker.check("系统压力应保持在 0.5 MPa。 [1]") == ""
    assert checker.repeat_count == 1


def test_an_introduction_waits_for_what_it_introduces() -> None:
    checker = _checker([make_passage(PRESSURE)], "滤芯怎么处理？")

    assert checker.check("处理如下：") == ""
    assert checker.check("\n每 3 个月更换回油滤芯。") == "处理如下：\n每 3 个月更换回油滤芯[1]。"
    assert checker.dropped_count == 0


def test_an_introduction_that_claims_something_unknown_is_dropped() -> None:
    checker = _checker([make_passage(PRESSURE)])

    assert checker.check("故障 F9999 的处理方法：") == ""
    assert checker.check("每 3 个月更换回油滤芯。") == "每 3 个月更换回油滤芯[1]。"


def test_between_languages_a_marker_is_believed_when_its_facts_stand() -> None:
    passage = make_passage("Soft limit alarm P0-15. Wait 5 seconds.")
    checker = _checker([passage], "P0-15 怎么处理？")

    assert checker.check("参数 P0-15 触发软限位，等待 5 秒。[1]") != ""
    assert checker.check("参数 P0-15 触发软限位，等待 9 秒。[1]") == ""
    assert checker.check("请联系厂家维修人员。[1]") == ""


def test_between_languages_a_prohibition_is_kept() -> None:
    checker = _checker([make_passage("Do not open P0-15 before 10 minutes.")], "P0-15 怎么处理？")

    assert checker.check("10 分钟后打开 P0-15。[1]") == ""
    assert checker.check("10 分钟内严禁打开 P0-15。[1]") != ""


def test_between_languages_a_sentence_that_only_names_the_code_is_not_believed() -> None:
    checker = _checker([make_passage("F30042 | Fieldbus timeout | Check the RS-485 plug")], "F30042 是什么？")

    assert checker.check("F30042 表示变频器过热。[1]") == ""
    assert checker.check("F30042 需要检查 RS-485 插头。[1]") != ""


def test_between_languages_the_words_of_another_document_are_not_believed() -> None:
    passages = [
        make_passage("F30042 | Fieldbus timeout | Check the RS-485 plug", document_id="d1"),
        make_passage("更换轴承前先把主轴降到室温，再拆下端盖螺栓。", rank=1, document_id="d2"),
    ]
    checker = _checker(passages, "F30042 是什么？")

    assert checker.check("F30042 须把主轴降到室温，再拆下端盖螺栓和 RS-485。[1]") == ""


def test_a_name_from_the_question_may_stand_elsewhere_in_the_document() -> None:
    passages = [
        make_passage(
            "3 | 顶出力 | 630 | kN",
            context="项目 | 参数值 | 单位",
            records=({"序号": "3", "项目": "顶出力"},),
        ),
        make_passage("YL-315 四柱液压机用于拉深。", rank=1),
    ]
    checker = CitationChecker(passages, question="YL-315 的顶出力是多少？", codes=())

    assert checker.check("YL-315 的顶出力是 630 kN。[1]") == "YL-315 的顶出力是 630 kN[1]。"
    assert checker.citations[0].quote == "3 | 顶出力 | 630 | kN"


def test_a_word_of_the_question_is_not_taken_for_a_similar_one() -> None:
    records = ({"部位": "顶出缸导向套", "油品": "2 号锂基润滑脂", "用量": "15 g"},)
    row = make_passage("顶出缸导向套 | 2 号锂基润滑脂 | 15 g", context="部位 | 油品 | 用量", records=records)
    checker = _checker([row], "YL-315 的顶出力是多少？")

    assert checker.check("顶出力是 2 号锂基润滑脂，15 g。[1]") == ""


def test_an_echo_of_the_question_is_no_answer() -> None:
    checker = _checker([make_passage("每 6 个月更换回油滤芯 LH-330。")], "回油滤芯 LH-330 多久换一次？")

    assert checker.check("回油滤芯 LH-330 多久换一次？[1]") == ""
    assert checker.check("回油滤芯 LH-330 每 6 个月更换。[1]") != ""


def test_a_permission_keeps_its_condition() -> None:
    passage = make_passage("活塞杆上有油环。每分钟不超过 1 滴时可继续生产到班末，超过时停机。")

    assert _checker([passage], "还能生产吗？").check("可以继续生产到班末。[1]") == ""
    assert _checker([passage], "还能生产吗？").check("每分钟不超过 1 滴时可以继续生产到班末。[1]") != ""


def test_a_number_comes_from_the_column_that_was_asked_for() -> None:
    record = {"Part": "Filter mat FM-9", "Taken": "2", "Left in store": "14", "Reorder at": "6"}
    passage = make_passage("Filter mat FM-9 | 2 | 14 | 6", context=" | ".join(record), records=(record,))
    question = "How many filter mats FM-9 are left in the store?"

    assert _checker([passage], question).check("6 [1]") == ""
    assert _checker([passage], question).check("14 [1]") != ""
    assert _checker([passage], question).check("Reorder at 6 [1]") != ""


def test_a_quote_is_one_row_and_never_a_heading() -> None:
    table = _table(("E-0471", "压力低", "补充氮气"), ("E-0472", "压力高", "调整 RV4"))
    checker = _checker([table], "故障表里有什么？")

    checker.check("压力低时补充氮气。[1]")

    assert checker.citations[0].quote == "E-0471 | 压力低 | 补充氮气"
    heading = make_passage("7.3 没有故障代码的现象\n油液呈乳白色。", heading_path=("7 故障处理",))
    assert _checker([heading]).check("没有故障代码的现象。[1]") == ""


def test_english_markers_follow_a_space() -> None:
    checker = _checker([make_passage("Check the oil level daily.")], "oil?")

    assert checker.check("Check the oil level daily.") == "Check the oil level daily [1]."


@pytest.mark.parametrize("sentence", ["[1]", "  \n", "***"])
def test_what_holds_no_words_is_nothing(sentence: str) -> None:
    checker = _checker([make_passage(PRESSURE)])

    assert checker.check(sentence) == ""
    assert checker.dropped_count == 0


def test_a_bare_number_rests_on_what_defines_the_asked_code() -> None:
    mention = make_passage("Raising P0-15 from 4.0 to 8.0 kHz makes the motor quieter.")
    row = make_passage(
        "P0-15 | Carrier frequency | 4.0 kHz | 2.0 to 12.0 kHz",
        context="Code | Name | Default | Range",
        records=(
            {"Code": "P0-15", "Name": "Carrier frequency", "Default": "4.0 kHz", "Range": "2.0 to 12.0 kHz"},
        ),
        page=7,
    )
    checker = _checker([mention, row], "What is the default carrier frequency (P0-15)?")

    assert checker.check("4.0 kHz [1].") == "4.0 kHz [1]."
    assert checker.citations[0].page_number == 7
