from __future__ import annotations

import pytest

from kb.evidence import (
    CodeMatch,
    complete_clipped,
    contains_code,
    has_unknown_name,
    match_code,
    measure_coverage,
    measure_share,
    measure_similarity,
    measure_unknown,
    score_cross_evidence,
    score_evidence,
)
from kb.words import get_units
from tests.unit.kb.stand_ins import make_chunk


@pytest.mark.parametrize("text", ["E-0471", "e0471", "Ｅ－０４７１", "E 0471", "报警E.0471停机", "(E_0471)"])
def test_a_code_is_found_in_any_spelling(text: str) -> None:
    assert contains_code(text, "E0471")


@pytest.mark.parametrize("text", ["E-04711", "XE-0471", "E-0472", "0471", ""])
def test_a_neighbour_is_not_the_code(text: str) -> None:
    assert not contains_code(text, "E0471")


def test_a_row_defines_its_code_and_prose_mentions_it() -> None:
    row = make_chunk("E-0471 | 压力低", records=({"代码": "E-0471", "现象": "压力低"},))
    line = make_chunk("• E-0471：压力低")
    headed = make_chunk("压力低", context="E-0471", heading_path=("故障", "E-0471"))
    prose = make_chunk("压力低于 4.5 MPa 时报警 E-0471。")

    assert match_code("E0471", row) is CodeMatch.DEFINED
    assert match_code("E0471", line) is CodeMatch.DEFINED
    assert match_code("E0471", headed) is CodeMatch.DEFINED
    assert match_code("E0471", prose) is CodeMatch.MENTIONED
    assert match_code("E0472", prose) is CodeMatch.ABSENT


def test_a_word_and_a_number_may_be_split_over_header_and_cell() -> None:
    row = make_chunk("2,Soft limit", records=({"Alarm Code": "2", "Message": "Soft limit"},))

    assert match_code("ALARM2", row) is CodeMatch.DEFINED
    assert match_code("ALARM17", row) is CodeMatch.ABSENT


def test_coverage_counts_what_tells_passages_apart() -> None:
    texts = ["变频器 过压 制动电阻", "变频器 散热 风扇", "变频器 接线"]

    assert measure_coverage("变频器的制动电阻", texts) > measure_coverage("变频器的通信协议", texts)
    assert measure_coverage("制动电阻", ["加装制动电阻"]) == pytest.approx(1.0)
    assert measure_coverage("什么？", texts) == 0.0
    assert measure_coverage("制动电阻", []) == 0.0


def test_similarity_is_relative_to_unrelated_text() -> None:
    assert measure_similarity(0.75, background=0.75) == 0.0
    assert measure_similarity(1.0, background=0.75) == pytest.approx(1.0)
    assert measure_similarity(0.5, background=1.0) < 0


def test_evidence_rises_with_similarity_and_words() -> None:
    weak = score_evidence(0.2, coverage=0.2, language="zh")
    middle = score_evidence(0.45, coverage=0.2, language="zh")
    strong = score_evidence(0.45, coverage=0.9, language="zh")

    assert 0 <= weak < 0.5 < middle < strong <= 1


def test_a_defined_code_is_evidence_by_itself_and_a_mention_is_not() -> None:
    assert score_evidence(0.0, coverage=0.0, language="en", code=CodeMatch.DEFINED) >= 0.7
    assert score_evidence(0.0, coverage=0.0, language="en", code=CodeMatch.MENTIONED) < 0.5
    assert score_cross_evidence([0.0], background=0.7, language="zh", code=CodeMatch.DEFINED) >= 0.7


def test_across_languages_the_nearest_must_beat_unrelated_questions() -> None:
    def score(*centred: float, language: str = "zh") -> float:
        return score_cross_evidence(centred, background=0.7, language=language)

    assert score() == 0.0
    assert score(0.03) < 0.5 < score(0.12)
    assert score(0.12, language="en") < score(0.12)


def test_across_languages_what_stands_out_counts() -> None:
    alike, apart = [0.07] * 12, [0.07, *[0.0] * 11]

    scores = [score_cross_evidence(c, background=0.7, language="zh") for c in (alike, apart)]

    assert scores[0] < 0.5 < scores[1]


def test_content_that_stands_nowhere_speaks_against_the_passages() -> None:
    texts = ["主泵的额定压力为 25 MPa。", "更换主泵。"]

    assert measure_unknown("YL-315 主泵的采购价格是多少？", texts, names=["YL315"]) == pytest.approx(4 / 6)
    assert measure_unknown("主泵的额定压力", texts) == 0.0
    assert measure_unknown("YL-315", texts, names=["YL315"]) == 0.0
    little, much = (score_evidence(0.5, coverage=0.5, language="zh", unknown=u) for u in (0.3, 0.7))
    assert much < 0.5 < little == score_evidence(0.5, coverage=0.5, language="zh")


def test_an_unknown_name_speaks_against_the_passages() -> None:
    assert score_evidence(0.4, coverage=0.5, language="en", unknown_name=True) < score_evidence(
        0.4, coverage=0.5, language="en"
    )


def test_names_are_words_with_capitals_or_latin_words_among_chinese() -> None:
    assert has_unknown_name("What is the EtherCAT cycle time?", ["Modbus baud rate"])
    assert not has_unknown_name("What is the EtherCAT cycle time?", ["EtherCAT 1 ms"])
    assert has_unknown_name("防护等级是IP多少？", ["变频器"])
    assert not has_unknown_name("What is the cycle time?", [])
    assert not has_unknown_name("REPL CAB SEAT SHOCKIE", ["seat"])


def test_the_share_counts_each_piece_of_the_question_once() -> None:
    units = get_units("How is the pump vented, pump?")

    assert measure_share(units, "Vent the valve.") == 0.5
    assert measure_share(units, "Vent the pumps.") == 1
    assert measure_share([], "Vent the pumps.") == 0


def test_the_clipped_words_of_a_note_are_written_out_as_the_texts_have_them() -> None:
    texts = ["Replace the transmission temperature sensor.", "Temporary replacement"]

    assert complete_clipped("REPL TRANS TEMP SENSOR", texts) == "replace transmission temporary SENSOR"
    assert complete_clipped("the svce rep", texts) == "the svce replace"
    assert complete_clipped("更换 temp 传感器 A1B", []) == "更换 temp 传感器 A1B"
