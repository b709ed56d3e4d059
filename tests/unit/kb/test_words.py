from __future__ import annotations

import pytest

from kb.words import fold, get_all_terms, get_terms, get_units, squeeze, stem, strip_glue


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("filters", "filter"),
        ("cleaning", "cleaned"),
        ("stopped", "stopping"),
        ("batteries", "battery"),
        ("replace", "replacing"),
        ("losses", "loss"),
    ],
)
def test_forms_of_a_word_share_a_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


def test_short_words_and_codes_are_left_alone() -> None:
    assert stem("gas") == "gas"
    assert stem("e0471") == "e0471"
    assert stem("bus") == "bus"


def test_question_words_are_no_content() -> None:
    assert get_terms("请问是什么？") == frozenset()
    assert get_terms("What is the?") == frozenset()


def test_chinese_pairs_do_not_span_question_words() -> None:
    assert get_terms("过载怎么处理") == {"过载", "处理"}


def test_width_and_case_do_not_matter() -> None:
    assert get_terms("ＰＵＭＰ") == get_terms("pump")
    assert fold("Ｅ－０４７１") == "e-0471"


def test_a_joined_word_is_found_whole_and_in_parts() -> None:
    assert {"e0471", "e", "0471"} <= get_all_terms("E-0471")


def test_every_unit_of_a_text_is_present_in_the_text_itself() -> None:
    text = "液压站压力波动，检查 oil filter P0-15"

    assert all(unit & get_all_terms(text) for unit in get_units(text))


def test_a_pair_across_two_words_costs_nothing() -> None:
    units = get_units("面板显示")

    assert all(unit & get_all_terms("显示在面板上") for unit in units)


def test_a_line_break_inside_chinese_text_is_layout() -> None:
    assert "压力" in get_all_terms("压\n力")


def test_squeezing_leaves_letters_and_digits() -> None:
    assert squeeze("Ａ-1， b\n") == "a1b"


def test_glue_is_what_joins_an_answers_words_to_its_content() -> None:
    assert get_units(strip_glue("E-0471 表示蓄能器压力低")) == get_units("E-0471|蓄能器压力低")
    assert get_units(strip_glue("This code means: earth fault")) == get_units("earth")


def test_what_glue_parted_stays_apart() -> None:
    assert "类火" not in get_terms(strip_glue("油类着火"))
