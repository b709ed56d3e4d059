from __future__ import annotations

from kb.relevance import Relevance
from kb.resources import read_lines
from kb.synonyms import get_groups, get_units_or_synonyms
from kb.units import list_units
from kb.words import get_units
from tests.unit.kb.stand_ins import make_passage


def test_words_of_a_group_have_one_name() -> None:
    assert get_groups("通电后黑屏") == get_groups("上电无显示") != frozenset()
    assert get_groups("The wiring is damaged.") == get_groups("a faulty cable")
    assert get_groups("recovery of the warehouse") == frozenset()


def test_no_word_stands_in_two_groups_and_none_is_a_code() -> None:
    words = [word for line in read_lines("synonyms") if not line.startswith("#") for word in line.split()]

    assert len(words) == len(set(words))
    assert not any(char.isdigit() for word in words for char in word)


def test_a_text_without_such_words_has_the_usual_units() -> None:
    assert get_units_or_synonyms("油箱容积是多少？") == get_units("油箱容积是多少？")


def test_the_row_that_says_it_in_other_words_scores_best() -> None:
    texts = ("上电无显示时检查输入电源。", "上电重复显示时检查母线电压。", "面板显示故障代码时查表。")
    units = list_units([make_passage(text, rank=n) for n, text in enumerate(texts)])

    relevance = Relevance("通电以后面板黑屏没有任何显示，查什么？", units)

    assert max(units, key=relevance.score).text == texts[0]
