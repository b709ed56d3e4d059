from __future__ import annotations

from collections.abc import Mapping

import pytest

from kb.adapters.extractive_generator import ExtractiveGenerator
from kb.types import Chunk, GenerationDelta, GenerationRequest, Passage, Span


def passage(
    text: str, *, context: str = "", records: tuple[Mapping[str, str], ...] = (), rank: int = 0
) -> Passage:
    chunk = Chunk(f"c{rank}", "d", 1, rank, text, (Span(1, 0, len(text)),), context=context, records=records)
    return Passage(chunk, "manual.pdf", 1.0, rank)


def answer(question: str, *passages: Passage, max_sentences: int = 3) -> list[str]:
    request = GenerationRequest((), question, passages, "en")
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
        "How do I clean the oil cooler?",
        passage("The pump is blue. Clean the oil cooler with compressed air. Close the door."),
    )

    assert lines == ["Clean the oil cooler with compressed air. [1]"]


def test_the_marker_counts_passages_from_one() -> None:
    lines = answer("冷却器怎么清洗？", passage("铭牌在右侧。"), passage("用压缩空气清洗冷却器。", rank=1))

    assert lines == ["用压缩空气清洗冷却器。 [2]"]


def test_a_code_selects_its_own_row_and_no_other() -> None:
    assert answer("E-0472 是什么意思？", FAULT_TABLE) == ["E-0472 | 油位过低 | 补充液压油 [1]"]


def test_a_model_number_in_the_heading_does_not_let_in_another_fault() -> None:
    assert answer("XJ-200 报 E0471 怎么办", FAULT_TABLE) == ["E-0471 | 油温过高 | 清洗冷却器 [1]"]


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
        records=({"code": "E-11", "cause": "oil", "remedy": "clean"},),
    )

    assert answer("E-11", table) == ["E-11 | hot oil | clean [1]"]


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
