from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.characters import clean_line, clean_text, count_words, join_lines, undecodable_share


def test_nuls_controls_and_lone_surrogates_are_removed() -> None:
    assert clean_text("a\0b\x07c\ud800d\ufeffe") == "abc\ufffdde"


def test_ligatures_become_letters() -> None:
    assert clean_text("ﬁlter ﬂow e\ufb03cient") == "filter flow efficient"


def test_hyphenation_between_small_letters_is_undone() -> None:
    assert join_lines(["the lubri-", "cation unit"]) == "the lubrication unit"


def test_a_broken_code_keeps_its_hyphen_and_gets_no_space() -> None:
    assert join_lines(["see alarm E-", "0471 first"]) == "see alarm E-0471 first"


def test_chinese_lines_join_without_a_space() -> None:
    assert join_lines(["检查液压", "油位。"]) == "检查液压油位。"


def test_chinese_and_latin_lines_join_with_a_space() -> None:
    assert join_lines(["检查", "PLC 模块"]) == "检查 PLC 模块"


def test_a_line_has_single_spaces_and_no_line_feed() -> None:
    assert clean_line("  a\u00a0  b\nc ") == "a b c"


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("检查油位", 4), ("alarm E-0471 stops", 3), ("更换 filter 滤芯", 5)],
)
def test_words_are_counted_in_both_scripts(text: str, count: int) -> None:
    assert count_words(text) == count


@pytest.mark.parametrize(
    ("text", "share"),
    [("", 0.0), ("abcd", 0.0), ("ab\ufffd\ue000", 0.5), ("(cid:12)(cid:7)", 1.0), ("检查", 0.0)],
)
def test_undecodable_characters_are_a_share(text: str, share: float) -> None:
    assert undecodable_share(text) == share


@given(st.text())
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    once = clean_text(text)

    assert clean_text(once) == once


@given(st.lists(st.text(alphabet="ab中文-E1 ", max_size=8), max_size=6))
def test_joining_lines_keeps_every_letter(lines: list[str]) -> None:
    joined = join_lines(lines)

    assert "\n" not in joined
    assert [c for c in joined if c.isalnum()] == [c for line in lines for c in line if c.isalnum()]
