from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.sentences import SentenceBuffer, ends_sentence, iter_passage_sentences, iter_sentences

_PIECES = st.text(alphabet='油压。！ab1.0 []\n【】,，MP?"”', max_size=60)


def _split(text: str) -> list[str]:
    return [text[start:end].strip() for start, end in iter_sentences(text)]


def test_chinese_and_english_sentences_end_at_their_marks() -> None:
    assert _split("检查油位。更换滤芯！Stop the pump. Wait.") == [
        "检查油位。",
        "更换滤芯！",
        "Stop the pump.",
        "Wait.",
    ]


def test_a_decimal_is_not_an_end() -> None:
    assert _split("Set 0.5 MPa now. Wait.") == ["Set 0.5 MPa now.", "Wait."]


def test_list_numbers_and_abbreviations_are_not_ends() -> None:
    assert _split("1. Check the oil, e.g. daily.\n2. Stop.") == ["1. Check the oil, e.g. daily.", "2. Stop."]


def test_a_marker_behind_the_full_stop_belongs_to_its_sentence() -> None:
    assert _split("检查油位。[1]更换滤芯。[2][3]") == ["检查油位。[1]", "更换滤芯。[2][3]"]


def test_the_buffer_waits_for_a_marker() -> None:
    buffer = SentenceBuffer()

    assert buffer.feed("检查油位。") == []
    assert buffer.feed("[1") == []
    assert buffer.feed("]更") == ["检查油位。[1]"]
    assert buffer.flush() == ["更"]
    assert buffer.flush() == []


@given(_PIECES, st.integers(min_value=1, max_value=7))
def test_how_the_text_arrives_makes_no_difference(text: str, size: int) -> None:
    whole, pieces = SentenceBuffer(), SentenceBuffer()

    at_once = [*whole.feed(text), *whole.flush()]
    in_pieces = [
        s for i in range(0, len(text), size) for s in pieces.feed(text[i : i + size])
    ] + pieces.flush()

    assert [s for s in in_pieces if s.strip()] == [s for s in at_once if s.strip()]


@given(_PIECES)
def test_sentences_hold_every_character(text: str) -> None:
    for split in (iter_sentences, iter_passage_sentences):
        assert "".join(text[start:end] for start, end in split(text)) == text


def test_a_wrapped_line_of_a_page_goes_on() -> None:
    text = "The pump is switched off when the oil\nlevel falls below the mark. Refill it\nat once."

    assert [text[a:b].strip() for a, b in iter_passage_sentences(text)] == [
        "The pump is switched off when the oil\nlevel falls below the mark.",
        "Refill it\nat once.",
    ]


def test_a_list_and_a_short_line_end_where_they_end() -> None:
    text = "Remedy\n- replace the filter of the return line\n- check the valve of the accumulator"

    assert len(list(iter_passage_sentences(text))) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Done.", True), ("完成。[1]", True), ("half a", False), ("line\n", True), ("he said “no.”", True)],
)
def test_an_unfinished_sentence_is_told_from_a_finished_one(text: str, expected: bool) -> None:
    assert ends_sentence(text) is expected
