"""Text becomes the terms that a search needs, the same on both sides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.lexemes import code_term, list_query_terms, list_single_characters, tokenise


def test_chinese_gives_characters_and_pairs() -> None:
    assert tokenise("液压泵") == ["液", "压", "泵", "液压", "压泵"]


def test_pairs_do_not_cross_punctuation_or_spaces() -> None:
    assert tokenise("油，泵 站") == ["油", "泵", "站"]


def test_words_are_folded_in_width_and_case() -> None:
    assert tokenise("Ｐump PUMP ﬁlter") == [
        *("pump", "stem_pump", "pump", "stem_pump"),
        *("filter", "stem_filter"),
    ]


def test_joined_words_give_themselves_and_their_parts() -> None:
    assert tokenise("max_torque counter-weight") == [
        *("maxtorque", "max", "torque", "stem_max", "stem_torqu"),
        *("counterweight", "counter", "weight", "stem_counter", "stem_weight"),
    ]


def test_possessives_and_contractions_lose_their_ending() -> None:
    words = [term for term in tokenise("the pump's seal isn't motors' n't") if not term.startswith("stem_")]

    assert words == ["the", "pump", "seal", "isn", "motors", "n"]


def test_forms_of_a_word_share_its_stem() -> None:
    assert "stem_pump" in set(tokenise("pumps")) & set(tokenise("Pumped")) & set(tokenise("pumping"))
    assert "pump" not in tokenise("pumps")


@pytest.mark.parametrize("spelling", ["E-0471", "e0471", "E 0471", "Ｅ－０４７１"])
def test_all_spellings_of_a_code_share_a_term(spelling: str) -> None:
    assert "code_e0471" in tokenise(f"报警{spelling}：压力不足")
    assert code_term(spelling) == "code_e0471"


def test_mixed_script_is_cut_where_the_script_changes() -> None:
    assert tokenise("泵abc12站") == ["泵", "abc12", "站", "code_abc12"]


def test_a_query_leaves_single_characters_to_the_pairs() -> None:
    assert list_query_terms("液压泵 液压 pump pump") == ["液压", "压泵", "pump", "stem_pump"]
    assert list_single_characters("液压泵 液压 站 pump") == ["液", "压", "泵"]
    assert list_query_terms("泵") == ["泵"]


def test_words_without_a_subject_are_searched_for_only_if_there_are_no_others() -> None:
    assert list_query_terms("How do I vent the pump?") == ["vent", "stem_vent", "pump", "stem_pump"]
    assert list_query_terms("how to") == ["how", "stem_how", "to", "stem_to"]


@pytest.mark.parametrize("text", ["", "  ", "!?…", "。，、", "''", "-_-", "\x00", "\ud800"])
def test_text_without_words_has_no_terms(text: str) -> None:
    assert tokenise(text) == []


@given(st.text())
def test_terms_hold_nothing_that_ends_or_quotes_a_term(text: str) -> None:
    for term in tokenise(text):
        assert term
        assert not any(char.isspace() or char in "\"'" for char in term)
        assert all(char.isalnum() or char == "_" for char in term)


@given(st.text())
def test_every_query_term_is_a_term_of_the_same_text(text: str) -> None:
    assert set(list_query_terms(text)) <= set(tokenise(text))
    assert len(set(list_query_terms(text))) == len(list_query_terms(text))
